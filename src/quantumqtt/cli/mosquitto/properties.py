"""`-D command identifier value`: properties of MQTT 5 from the command line."""

from typing import Final

from quantumqtt import _core
from quantumqtt.cli.mosquitto.usage import number, refuse
from quantumqtt.errors import LocalProtocolError

Value = int | str | bytes | tuple[str, str]

_BYTE: Final = 0xFF
_INT16: Final = 0xFFFF
_INT32: Final = 0xFFFF_FFFF
_VARINT: Final = 268_435_455
USER_PROPERTY: Final = 0x26
RESPONSE_TOPIC: Final = 0x08
TOPIC_ALIAS: Final = 0x23
SESSION_EXPIRY: Final = 0x11
RECEIVE_MAXIMUM: Final = 0x21
_FLAGS: Final = frozenset({0x01, 0x17, 0x19})

# Name on the command line: its number, and the largest number or the kind of text it holds.
NAMES: Final[dict[str, tuple[int, int | type]]] = {
    "payload-format-indicator": (0x01, 1),
    "message-expiry-interval": (0x02, _INT32),
    "content-type": (0x03, str),
    "response-topic": (RESPONSE_TOPIC, str),
    "correlation-data": (0x09, bytes),
    "subscription-identifier": (0x0B, _VARINT),
    "session-expiry-interval": (SESSION_EXPIRY, _INT32),
    "authentication-method": (0x15, str),
    "authentication-data": (0x16, bytes),
    "request-problem-information": (0x17, 1),
    "will-delay-interval": (0x18, _INT32),
    "request-response-information": (0x19, 1),
    "reason-string": (0x1F, str),
    "receive-maximum": (RECEIVE_MAXIMUM, _INT16),
    "topic-alias-maximum": (0x22, _INT16),
    "topic-alias": (TOPIC_ALIAS, _INT16),
    "user-property": (USER_PROPERTY, tuple),
    "maximum-packet-size": (0x27, _INT32),
}
_MESSAGE: Final = (
    "payload-format-indicator",
    "message-expiry-interval",
    "content-type",
    "response-topic",
    "correlation-data",
    "user-property",
)
ALLOWED: Final[dict[str, tuple[str, ...]]] = {
    "connect": (
        "session-expiry-interval",
        "authentication-method",
        "authentication-data",
        "request-problem-information",
        "request-response-information",
        "receive-maximum",
        "topic-alias-maximum",
        "maximum-packet-size",
        "user-property",
    ),
    "publish": (*_MESSAGE, "topic-alias"),
    "subscribe": ("subscription-identifier", "user-property"),
    "unsubscribe": ("user-property",),
    "disconnect": ("session-expiry-interval", "reason-string", "user-property"),
    "will": (*_MESSAGE, "will-delay-interval"),
}


class PropertyLists:
    """The properties of each packet, in the order they were given."""

    def __init__(self) -> None:
        self._lists: dict[str, list[tuple[int, Value]]] = {name: [] for name in ALLOWED}

    def add(self, command: str, name: str, values: list[str]) -> None:
        """Add one property.

        Raises:
            UsageError: The packet, the property or the value does not exist.
        """
        packet = command.lower()
        if packet not in ALLOWED:
            refuse(f"-D {command}: no such packet", f"one of {', '.join(ALLOWED)}")
        if name not in NAMES:
            refuse(f"-D {command} {name}: no such property", f"one of {', '.join(ALLOWED[packet])}")
        if name not in ALLOWED[packet]:
            refuse(
                f"-D {command} {name}: {packet} does not carry it",
                f"one of {', '.join(ALLOWED[packet])}",
            )
        identifier, kind = NAMES[name]
        value = _value(f"-D {command} {name}", kind, values)
        if identifier != USER_PROPERTY and any(one == identifier for one, _ in self._lists[packet]):
            refuse(f"-D {command} {name}: given twice", "it can be given once")
        self._lists[packet].append((identifier, value))

    def add_response_topic(self, topic: str) -> None:
        """Have a request say where its response should go.

        Raises:
            UsageError: `-D publish response-topic` says it already.
        """
        self.add("publish", "response-topic", [topic])

    def has(self, packet: str, identifier: int) -> bool:
        """Whether a packet carries a property."""
        return any(one == identifier for one, _ in self._lists[packet])

    def number(self, packet: str, identifier: int, default: int) -> int:
        """The value of a numeric property."""
        for one, value in self._lists[packet]:
            if one == identifier and isinstance(value, int):
                return value
        return default

    def block(self, packet: str, *more: tuple[int, Value]) -> bytes:
        """The property block of a packet, without its length."""
        missing = [pair for pair in more if not self.has(packet, pair[0])]
        listed = [*self._lists[packet], *missing]
        as_typed = [(key, bool(value) if key in _FLAGS else value) for key, value in listed]
        return _core.encode_properties(as_typed) if as_typed else b""

    def check(self) -> None:
        """Write every block once for nothing.

        Raises:
            UsageError: A value is out of its property's range.
        """
        for packet in ALLOWED:
            try:
                self.block(packet)
            except (LocalProtocolError, OverflowError, UnicodeEncodeError) as error:
                refuse(f"-D {packet}: {error}")


def _value(what: str, kind: int | type, values: list[str]) -> Value:
    if kind is tuple:
        name, value = values
        return name, value
    (text,) = values
    if kind is str:
        return text
    if kind is bytes:
        return text.encode("utf-8", "surrogateescape")
    assert isinstance(kind, int), "numbers name their largest value"
    return number(what, text, 0, kind)
