"""MQTT packets for tests: built and read in plain Python, from the standard's text alone.

It shares no code with the broker, so the two can disagree; that is its whole worth. Building allows
what is illegal (any flag, any order, any property), since tests say wrong things on purpose.
Reading is strict: a packet that is not exactly what the standard draws is an error of the test.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tests.harness.raw_peer import packet, text


class Version(IntEnum):
    """Protocol levels, as CONNECT carries them."""

    V31 = 3
    V311 = 4
    V5 = 5


class Kind(IntEnum):
    """Control packets by their number (§2.1.2)."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Key(IntEnum):
    """Property identifiers (§2.2.2.2)."""

    PAYLOAD_FORMAT = 0x01
    MESSAGE_EXPIRY = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_ID = 0x0B
    SESSION_EXPIRY = 0x11
    ASSIGNED_CLIENT_ID = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTHENTICATION_METHOD = 0x15
    AUTHENTICATION_DATA = 0x16
    REQUEST_PROBLEM_INFORMATION = 0x17
    WILL_DELAY = 0x18
    REQUEST_RESPONSE_INFORMATION = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_SUBSCRIPTION_AVAILABLE = 0x28
    SUBSCRIPTION_ID_AVAILABLE = 0x29
    SHARED_SUBSCRIPTION_AVAILABLE = 0x2A


Value = int | str | bytes | tuple[str, str]
Properties = tuple[tuple[Key, Value], ...]

_ONE_BYTE: Final = frozenset(
    {
        Key.PAYLOAD_FORMAT,
        Key.REQUEST_PROBLEM_INFORMATION,
        Key.REQUEST_RESPONSE_INFORMATION,
        Key.MAXIMUM_QOS,
        Key.RETAIN_AVAILABLE,
        Key.WILDCARD_SUBSCRIPTION_AVAILABLE,
        Key.SUBSCRIPTION_ID_AVAILABLE,
        Key.SHARED_SUBSCRIPTION_AVAILABLE,
    }
)
_TWO_BYTES: Final = frozenset(
    {Key.SERVER_KEEP_ALIVE, Key.RECEIVE_MAXIMUM, Key.TOPIC_ALIAS_MAXIMUM, Key.TOPIC_ALIAS}
)
_FOUR_BYTES: Final = frozenset(
    {Key.MESSAGE_EXPIRY, Key.SESSION_EXPIRY, Key.WILL_DELAY, Key.MAXIMUM_PACKET_SIZE}
)
_BINARY: Final = frozenset({Key.CORRELATION_DATA, Key.AUTHENTICATION_DATA})
NO_PROPERTIES: Final[Properties] = ()


# --- building ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Will:
    """What a CONNECT leaves behind to be published."""

    topic: str
    payload: bytes = b"gone"
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


def varint(number: int) -> bytes:
    """Encode a variable byte integer (§1.5.5)."""
    encoded = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        encoded.append(low | (0x80 if number else 0))
        if not number:
            return bytes(encoded)


def two_bytes(number: int) -> bytes:
    """Encode a two byte integer."""
    return number.to_bytes(2, "big")


def binary(content: bytes) -> bytes:
    """Encode binary data: two bytes of length, then the bytes."""
    return two_bytes(len(content)) + content


def property_block(properties: Properties) -> bytes:
    """Encode properties in the order given, behind their length."""
    block = b"".join(bytes([key]) + _property_value(key, value) for key, value in properties)
    return varint(len(block)) + block


def _property_value(key: Key, value: Value) -> bytes:
    match value:
        case int() if key in _ONE_BYTE:
            return bytes([value])
        case int() if key in _TWO_BYTES:
            return two_bytes(value)
        case int() if key in _FOUR_BYTES:
            return value.to_bytes(4, "big")
        case int():
            return varint(value)
        case str():
            return text(value)
        case bytes():
            return binary(value)
        case (name, content):
            return text(name) + text(content)


def _block_for(version: Version, properties: Properties) -> bytes:
    if version == Version.V5:
        return property_block(properties)
    assert not properties, "MQTT 3 has no properties"
    return b""


def connect(
    client_id: str,
    *,
    version: Version = Version.V311,
    clean: bool = True,
    keep_alive_s: int = 60,
    will: Will | None = None,
    user_name: str | None = None,
    password: bytes | None = None,
    properties: Properties = NO_PROPERTIES,
) -> bytes:
    """Build CONNECT; `clean` is Clean Session before MQTT 5 and Clean Start there."""
    flags = 0x02 if clean else 0
    tail = [text(client_id)]
    if will is not None:
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        tail += [_block_for(version, will.properties), text(will.topic), binary(will.payload)]
    if user_name is not None:
        flags |= 0x80
        tail.append(text(user_name))
    if password is not None:
        flags |= 0x40
        tail.append(binary(password))
    name = "MQIsdp" if version == Version.V31 else "MQTT"
    head = [text(name), bytes([version, flags]), two_bytes(keep_alive_s)]
    return packet(0x10, *head, _block_for(version, properties), *tail)


def publish(
    topic: str,
    payload: bytes = b"",
    *,
    version: Version = Version.V311,
    qos: int = 0,
    packet_id: int | None = None,
    dup: bool = False,
    retain: bool = False,
    properties: Properties = NO_PROPERTIES,
) -> bytes:
    """Build PUBLISH."""
    first = Kind.PUBLISH << 4 | (8 if dup else 0) | qos << 1 | int(retain)
    identifier = b"" if packet_id is None else two_bytes(packet_id)
    return packet(first, text(topic), identifier, _block_for(version, properties), payload)


def ack(
    kind: Kind,
    packet_id: int,
    *,
    reason: int = 0,
    properties: Properties = NO_PROPERTIES,
) -> bytes:
    """Build PUBACK, PUBREC, PUBREL or PUBCOMP; short when it means success, as both forms may."""
    first = kind << 4 | (2 if kind == Kind.PUBREL else 0)
    if not reason and not properties:
        return packet(first, two_bytes(packet_id))
    block = property_block(properties) if properties else b""
    return packet(first, two_bytes(packet_id), bytes([reason]), block)


def subscribe_options(
    qos: int = 0,
    *,
    no_local: bool = False,
    retain_as_published: bool = False,
    retain_handling: int = 0,
) -> int:
    """Put subscription options into their byte (§3.8.3.1)."""
    return qos | no_local << 2 | retain_as_published << 3 | retain_handling << 4


def subscribe(
    packet_id: int,
    *filters: tuple[str, int],
    version: Version = Version.V311,
    properties: Properties = NO_PROPERTIES,
) -> bytes:
    """Build SUBSCRIBE of filters with their option bytes."""
    wanted = [text(name) + bytes([options]) for name, options in filters]
    return packet(0x82, two_bytes(packet_id), _block_for(version, properties), *wanted)


def unsubscribe(
    packet_id: int, *filters: str, version: Version = Version.V311, properties: Properties = ()
) -> bytes:
    """Build UNSUBSCRIBE."""
    names = [text(name) for name in filters]
    return packet(0xA2, two_bytes(packet_id), _block_for(version, properties), *names)


def disconnect(
    version: Version, *, reason: int = 0, properties: Properties = NO_PROPERTIES
) -> bytes:
    """Build DISCONNECT; reason and properties exist in MQTT 5 only."""
    if version != Version.V5 or (not reason and not properties):
        return PACKET_DISCONNECT
    return packet(0xE0, bytes([reason]), property_block(properties))


def auth(reason: int, properties: Properties = NO_PROPERTIES) -> bytes:
    """Build AUTH, which exists in MQTT 5 only."""
    return packet(0xF0, bytes([reason]), property_block(properties))


PACKET_PINGREQ: Final = b"\xc0\x00"
PACKET_DISCONNECT: Final = b"\xe0\x00"


# --- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConnAck:
    """The answer to CONNECT."""

    session_present: bool
    reason: int
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Publish:
    """A message."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    packet_id: int | None
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Ack:
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    kind: Kind
    packet_id: int
    reason: int = 0
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class SubAck:
    """One code per filter."""

    packet_id: int
    codes: tuple[int, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class UnsubAck:
    """One code per filter; no codes before MQTT 5."""

    packet_id: int
    codes: tuple[int, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class PingResp:
    """The answer to PINGREQ."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """The server's last word; MQTT 5 only."""

    reason: int
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Auth:
    """A step of enhanced authentication; MQTT 5 only."""

    reason: int
    properties: Properties = NO_PROPERTIES


Packet = Auth | ConnAck | Publish | Ack | SubAck | UnsubAck | PingResp | Disconnect


def values(properties: Properties, key: Key) -> list[Value]:
    """List what a property was set to, in order."""
    return [value for name, value in properties if name == key]


def value(properties: Properties, key: Key) -> Value | None:
    """Take the value of a property that may stand there once."""
    found = values(properties, key)
    assert len(found) <= 1, f"{key!r} stands there {len(found)} times"
    return found[0] if found else None


class Cursor:
    """Reads fields off the front of bytes; every read beyond the end is an error of the test."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def take(self, count: int) -> bytes:
        """Read `count` bytes."""
        taken = self._content[self._at : self._at + count]
        assert len(taken) == count, f"{count} bytes wanted at {self._at}: {self._content.hex(' ')}"
        self._at += count
        return taken

    def number(self, count: int) -> int:
        """Read a big-endian integer of `count` bytes."""
        return int.from_bytes(self.take(count), "big")

    def varint(self) -> int:
        """Read a variable byte integer; four bytes at most."""
        number = 0
        for place in range(4):
            byte = self.number(1)
            number |= (byte & 0x7F) << (7 * place)
            if not byte & 0x80:
                assert byte or not place, "a variable byte integer is longer than it needs to be"
                return number
        raise AssertionError("a variable byte integer of five bytes")

    def text(self) -> str:
        """Read a UTF-8 string."""
        return self.take(self.number(2)).decode()

    def rest(self) -> bytes:
        """Read whatever is left."""
        return self.take(len(self._content) - self._at)

    def is_empty(self) -> bool:
        """Tell whether everything was read."""
        return self._at == len(self._content)

    def properties(self) -> Properties:
        """Read a property block."""
        block = Cursor(self.take(self.varint()))
        found: list[tuple[Key, Value]] = []
        while not block.is_empty():
            key = Key(block.varint())
            found.append((key, block._property_value(key)))
        return tuple(found)

    def _property_value(self, key: Key) -> Value:
        if key in _ONE_BYTE:
            return self.number(1)
        if key in _TWO_BYTES:
            return self.number(2)
        if key in _FOUR_BYTES:
            return self.number(4)
        if key == Key.SUBSCRIPTION_ID:
            return self.varint()
        if key in _BINARY:
            return self.take(self.number(2))
        if key == Key.USER_PROPERTY:
            return (self.text(), self.text())
        return self.text()


def parse(content: bytes, version: Version) -> Packet:
    """Read one whole packet of a server."""
    kind = Kind(content[0] >> 4)
    flags = content[0] & 0x0F
    header = Cursor(content[1:])
    length = header.varint()
    body = header.rest()
    assert len(body) == length, f"{length} bytes announced: {content.hex(' ')}"
    if kind == Kind.PUBLISH:
        return _parse_publish(flags, Cursor(body), version)
    assert flags == (2 if kind == Kind.PUBREL else 0), f"bad flags: {content.hex(' ')}"
    cursor = Cursor(body)
    parsed = _parse_body(kind, cursor, version)
    assert cursor.is_empty(), f"bytes behind the end: {content.hex(' ')}"
    return parsed


def _parse_body(kind: Kind, cursor: Cursor, version: Version) -> Packet:
    is_v5 = version == Version.V5
    match kind:
        case Kind.CONNACK:
            acknowledge_flags = cursor.number(1)
            assert acknowledge_flags in {0, 1}
            reason = cursor.number(1)
            return ConnAck(acknowledge_flags == 1, reason, _properties(cursor, is_v5=is_v5))
        case Kind.PUBACK | Kind.PUBREC | Kind.PUBREL | Kind.PUBCOMP:
            packet_id = cursor.number(2)
            reason, properties = _reason_and_properties(cursor, is_v5=is_v5)
            return Ack(kind, packet_id, reason, properties)
        case Kind.SUBACK:
            packet_id, properties = cursor.number(2), _properties(cursor, is_v5=is_v5)
            return SubAck(packet_id, tuple(cursor.rest()), properties)
        case Kind.UNSUBACK:
            packet_id, properties = cursor.number(2), _properties(cursor, is_v5=is_v5)
            return UnsubAck(packet_id, tuple(cursor.rest()) if is_v5 else (), properties)
        case Kind.PINGRESP:
            return PingResp()
        case Kind.DISCONNECT:
            assert is_v5, "a server of MQTT 3 sends no DISCONNECT"
            return Disconnect(*_reason_and_properties(cursor, is_v5=True))
        case Kind.AUTH:
            assert is_v5, "AUTH exists in MQTT 5 only"
            return Auth(*_reason_and_properties(cursor, is_v5=True))
        case _:
            raise AssertionError(f"a server does not send {kind.name}")


def _parse_publish(flags: int, cursor: Cursor, version: Version) -> Publish:
    qos = flags >> 1 & 3
    topic = cursor.text()
    packet_id = cursor.number(2) if qos else None
    assert packet_id != 0, "packet identifier 0"
    properties = _properties(cursor, is_v5=version == Version.V5)
    dup, retain = bool(flags & 8), bool(flags & 1)
    return Publish(topic, cursor.rest(), qos, retain, dup, packet_id, properties)


def _properties(cursor: Cursor, *, is_v5: bool) -> Properties:
    return cursor.properties() if is_v5 else NO_PROPERTIES


def _reason_and_properties(cursor: Cursor, *, is_v5: bool) -> tuple[int, Properties]:
    """Both may be left out at the end (§3.4.2.1)."""
    if not is_v5 or cursor.is_empty():
        return 0, NO_PROPERTIES
    reason = cursor.number(1)
    return reason, NO_PROPERTIES if cursor.is_empty() else cursor.properties()
