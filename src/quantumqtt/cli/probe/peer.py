"""One scripted connection of a probe: it sends what a check says and hands back what comes.

Nothing happens by itself: no ping, no acknowledgement. Every wait has a deadline, and what a broker
sends is read by the same decoder our client uses, so bytes that are no MQTT end a check by name.
"""

import select
import time
from collections import deque
from typing import Final, NamedTuple, NoReturn, TypeVar

from quantumqtt import _core
from quantumqtt._core import AckRun, Control, Message
from quantumqtt.cli.mosquitto.link import Link
from quantumqtt.cli.mosquitto.options import Options
from quantumqtt.errors import ConnectionLost, RemoteProtocolError
from quantumqtt.mqtt import PropertyId, encode_properties
from quantumqtt.mqtt.properties import PropertyValue

V311: Final = 4
V5: Final = 5
CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP = 2, 4, 5, 6, 7
SUBACK, UNSUBACK, PINGRESP, DISCONNECT = 9, 11, 13, 14
NAMES: Final = {
    CONNACK: "CONNACK",
    PUBACK: "PUBACK",
    PUBREC: "PUBREC",
    PUBREL: "PUBREL",
    PUBCOMP: "PUBCOMP",
    SUBACK: "SUBACK",
    UNSUBACK: "UNSUBACK",
    PINGRESP: "PINGRESP",
    DISCONNECT: "DISCONNECT",
    15: "AUTH",
}
PINGREQ_BYTES: Final = b"\xc0\x00"
_PACKET_BYTES_MAX: Final = 268_435_460

Properties = tuple[tuple[PropertyId, PropertyValue | None], ...]
P = TypeVar("P")


class Violation(Exception):
    """The broker does something MQTT forbids, or not what it demands."""


class NotOffered(Exception):
    """The broker says that it does not do this, which MQTT allows; nothing to judge."""


class Ack(NamedTuple):
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    kind: int
    packet_id: int
    reason_code: int


class Closed(NamedTuple):
    """The broker ended the connection."""

    reason_code: int | None


Packet = Message | Ack | Control | Closed


def violated(what: str) -> NoReturn:
    """End a check: the broker broke MQTT.

    Raises:
        Violation: Always.
    """
    raise Violation(what)


def words(packet: Packet | None) -> str:
    """Say what came."""
    match packet:
        case None:
            return "nothing"
        case Message():
            return f"PUBLISH on {packet.topic!r}"
        case Ack():
            return f"{NAMES[packet.kind]} {packet.packet_id} with {packet.reason_code:#04x}"
        case Closed(None):
            return "a close"
        case Closed(code):
            return f"a close with {code:#04x}"
        case _:
            return f"{NAMES.get(packet.kind, packet.kind)} with {packet.reason_code:#04x}"


class Peer:
    """One connection that speaks one version."""

    def __init__(self, target: Options, version: int, timeout_s: float) -> None:
        """Connect the transport; no packet is sent yet.

        Raises:
            ConnectFailed: No connection came about.
        """
        self.version = version
        self.timeout_s = timeout_s
        self.client_id = ""
        self.connack: Control | None = None
        self._link = Link(target)
        self._rest = b""
        self._came: deque[Packet] = deque()
        self._said_goodbye_with: int | None = None
        self._is_closed = False

    def close(self) -> None:
        """Drop the connection without a word."""
        self._link.close()
        self._is_closed = True

    # --- packets ------------------------------------------------------------------------------

    def send(self, *packets: bytes) -> None:
        """Send bytes; a broker that has gone is found out by `receive`."""
        try:
            self._link.send(b"".join(packets))
        except ConnectionLost:
            self._is_closed = True

    def receive(self, timeout_s: float | None = None) -> Packet | None:
        """Take the next packet; None when none comes in time.

        Raises:
            Violation: What came is not MQTT.
        """
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        while not self._came:
            if self._is_closed:
                return Closed(self._said_goodbye_with)
            left_ms = int((deadline - time.monotonic()) * 1000)
            if left_ms <= 0:
                return None
            poll = select.poll()
            poll.register(self._link.fileno(), self._link.wanted)
            poll.poll(left_ms)
            try:
                self._link.send()
                self._take(self._link.receive())
            except ConnectionLost:
                self._is_closed = True
        return self._came.popleft()

    def _take(self, data: bytes) -> None:
        data = self._rest + data
        version = self.version
        if self.connack is None and data[:2] == b"\x20\x02" and data[3:4] != b"\0":
            version = V311  # that is how older brokers refuse a newer version
        items, taken, _ = _core.decode_packets(version, data, _PACKET_BYTES_MAX)
        self._rest = data[taken:]
        for item in items:
            if isinstance(item, RemoteProtocolError):
                raise Violation(f"what came is no MQTT: {item}")
            if isinstance(item, list):
                self._came += item
            elif isinstance(item, AckRun):
                self._came += [Ack(item.kind, one, item.reason_code) for one in item.packet_ids]
            elif isinstance(item, Control) and PUBACK <= item.kind <= PUBCOMP:
                self._came.append(Ack(item.kind, item.packet_id, item.reason_code))
            elif isinstance(item, Control) and item.kind == DISCONNECT:
                self._said_goodbye_with = item.reason_code
            else:
                self._came.append(item)

    # --- steps nearly every check needs ---------------------------------------------------------

    def connect(
        self,
        client_id: str,
        *,
        clean: bool = True,
        keep_alive_s: int = 60,
        will: tuple[str, bytes, int, bool] | None = None,
        user_name: str | None = None,
        password: str | None = None,
        properties: Properties = (),
    ) -> Control:
        """Say CONNECT and read the answer, whatever it says.

        Raises:
            Violation: Something else than CONNACK came, or nothing.
        """
        self.client_id = client_id
        is_v5 = self.version == V5
        self.send(
            _core.encode_connect(
                self.version,
                client_id,
                clean_start=clean,
                keep_alive_s=keep_alive_s,
                user_name=user_name,
                password=None if password is None else password.encode(),
                will=None if will is None else (*will, b""),
                properties=encode_properties(properties) if is_v5 else None,
            )
        )
        answer = self.receive()
        if not isinstance(answer, Control) or answer.kind != CONNACK:
            violated(f"CONNECT was answered with {words(answer)}")
        self.connack = answer
        return answer

    def subscribe(
        self, topic_filter: str, options: int = 0, *, packet_id: int = 1, subscription_id: int = 0
    ) -> int:
        """Subscribe to one filter; returns the code of SUBACK. Messages before it are kept."""
        properties = encode_properties(((PropertyId.SUBSCRIPTION_ID, subscription_id or None),))
        is_v5 = self.version == V5
        self.send(
            _core.encode_subscribe(
                self.version,
                packet_id,
                [(topic_filter, options if is_v5 else options & 3)],
                properties if is_v5 else None,
            )
        )
        suback = self._control(SUBACK, packet_id)
        if len(suback.codes) != 1:
            violated(f"SUBACK has {len(suback.codes)} codes for one filter")
        return suback.codes[0]

    def unsubscribe(self, topic_filter: str, *, packet_id: int = 2) -> bytes:
        """Unsubscribe; returns the codes of UNSUBACK."""
        self.send(_core.encode_unsubscribe(self.version, packet_id, [topic_filter]))
        return self._control(UNSUBACK, packet_id).codes

    def _control(self, kind: int, packet_id: int) -> Control:
        kept: list[Packet] = []
        while True:
            answer = self.receive()
            if isinstance(answer, Message):
                kept.append(answer)
                continue
            if not isinstance(answer, Control) or answer.kind != kind:
                violated(f"{NAMES[kind]} was due, {words(answer)} came")
            if answer.packet_id != packet_id:
                violated(f"{NAMES[kind]} has packet id {answer.packet_id} instead of {packet_id}")
            self._came.extendleft(reversed(kept))
            return answer

    def send_publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        *,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 10,
        properties: Properties = (),
        user_properties: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Send one PUBLISH and wait for nothing."""
        flags = dup << 3 | qos << 1 | retain
        block = encode_properties(properties, user_properties) if self.version == V5 else b""
        item = (topic, payload, flags, packet_id if qos else 0, block)
        self.send(_core.encode_batch(self.version, [item]))

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 1,
        *,
        retain: bool = False,
        packet_id: int = 10,
        properties: Properties = (),
        user_properties: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Publish and finish the exchange."""
        self.send_publish(
            topic, payload, qos, retain=retain, packet_id=packet_id,
            properties=properties, user_properties=user_properties,
        )  # fmt: skip
        if qos == 1:
            self.expect_ack(PUBACK, packet_id)
        elif qos == 2:
            self.expect_ack(PUBREC, packet_id)
            self.send_ack(PUBREL, packet_id)
            self.expect_ack(PUBCOMP, packet_id)

    def send_ack(self, kind: int, packet_id: int) -> None:
        """Send an acknowledgement that says success."""
        self.send(_core.encode_batch(self.version, [kind << 16 | packet_id]))

    def expect_ack(self, kind: int, packet_id: int) -> None:
        """Wait for an acknowledgement that says success."""
        answer = self.receive()
        if not isinstance(answer, Ack) or answer.kind != kind:
            violated(f"{NAMES[kind]} was due, {words(answer)} came")
        if answer.packet_id != packet_id:
            violated(f"{NAMES[kind]} has packet id {answer.packet_id} instead of {packet_id}")
        if answer.reason_code >= 0x80:
            raise NotOffered(f"the broker refuses our publish with {answer.reason_code:#04x}")

    def take(self, *, acknowledge: bool = True) -> Message:
        """Wait for a message and finish its exchange.

        Raises:
            Violation: None came, or something else.
        """
        message = self.receive()
        if not isinstance(message, Message):
            violated(f"a message was due, {words(message)} came")
        if acknowledge and message.packet_id is not None:
            self.acknowledge(message)
        return message

    def acknowledge(self, message: Message) -> None:
        """Finish the exchange of a message."""
        packet_id = message.packet_id
        if packet_id is None:
            return
        if message.qos == 1:
            self.send_ack(PUBACK, packet_id)
            return
        self.send_ack(PUBREC, packet_id)
        kept: list[Packet] = []
        while isinstance(answer := self.receive(), Message):
            kept.append(answer)
        self._came.extendleft(reversed(kept))
        if answer != Ack(PUBREL, packet_id, 0):
            violated(f"PUBREL {packet_id} was due, {words(answer)} came")
        self.send_ack(PUBCOMP, packet_id)

    def expect_silence(self) -> None:
        """Ask for a sign of life; nothing may come before it."""
        self.send(PINGREQ_BYTES)
        answer = self.receive()
        if not isinstance(answer, Control) or answer.kind != PINGRESP:
            violated(f"nothing was due but PINGRESP, {words(answer)} came")

    def expect_closed(self, why: str, timeout_s: float | None = None) -> None:
        """Wait for the broker to end the connection.

        Raises:
            Violation: It stays open, or something else comes first.
        """
        answer = self.receive(timeout_s)
        if answer is None:
            violated(f"the connection stays open after {why}")
        if not isinstance(answer, Closed):
            violated(f"{words(answer)} came after {why}, instead of a close")

    def leave(self) -> None:
        """Say DISCONNECT, and close once the broker has."""
        self.send(_core.encode_disconnect(self.version))
        while not isinstance(self.receive(min(self.timeout_s, 1.0)), Closed | None):
            pass
        self.close()
