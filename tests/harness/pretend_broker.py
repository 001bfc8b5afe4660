"""A broker for one client, on a pretend wire: no socket, no clock, only what a session needs.

It is deliberately simple and deliberately not ours: packets are written and read by the tests' own
codec (`packets.py`), so that a mistake shared by both sides of the real one cannot hide. It counts
what it was handed, which is what the tests compare against what the client promised.
"""

from dataclasses import dataclass, field

from tests.harness import packets
from tests.harness.packets import Kind, Version


@dataclass
class PretendBroker:
    """One session's broker side; a connection is what happens between CONNECT and `cut`."""

    version: Version = Version.V5
    keeps_session: bool = True
    properties: packets.Properties = ()
    received: list[bytes] = field(default_factory=list)
    acknowledged_by_client: list[int] = field(default_factory=list)
    subscriptions: dict[str, int] = field(default_factory=dict)
    has_session: bool = False
    _half: bytes = b""
    _exactly_once: set[int] = field(default_factory=set)
    _outgoing: dict[int, bytes] = field(default_factory=dict)
    _next_id: int = 1

    def take(self, data: bytes) -> bytes:
        """Answer what a client sends."""
        data = self._half + data
        answers = b""
        while (length := _packet_length(data)) is not None and length <= len(data):
            answers += self._answer(data[:length])
            data = data[length:]
        self._half = data
        return answers

    def cut(self) -> None:
        """The connection is gone; the session stays or not."""
        self._half = b""
        if not self.keeps_session:
            self.forget()

    def forget(self) -> None:
        """Lose the session."""
        self.has_session = False
        self._exactly_once.clear()
        self._outgoing.clear()
        self.subscriptions.clear()

    def send(self, payload: bytes, *, qos: int, topic: str = "down") -> bytes:
        """Publish to the client."""
        packet_id = None
        if qos:
            packet_id = self._next_id
            self._next_id += 1
        packet = packets.publish(topic, payload, version=self.version, qos=qos, packet_id=packet_id)
        if packet_id is not None:
            self._outgoing[packet_id] = packet
        return packet

    @property
    def owed(self) -> int:
        """Messages the client has not acknowledged to the end."""
        return len(self._outgoing)

    def _answer(self, packet: bytes) -> bytes:
        kind = Kind(packet[0] >> 4)
        body = packet[1 + _length_bytes(packet) :]
        if kind is Kind.CONNECT:
            return self._connack(clean=bool(body[7] & 2))
        if kind is Kind.PUBLISH:
            return self._on_publish(packet[0], body)
        if kind in (Kind.SUBSCRIBE, Kind.UNSUBSCRIBE):
            return self._on_filters(kind, body)
        if kind is Kind.PINGREQ:
            return b"\xd0\x00"
        if kind is Kind.DISCONNECT:
            return b""
        packet_id = int.from_bytes(body[:2], "big")
        if kind is Kind.PUBREL:
            self._exactly_once.discard(packet_id)
            return packets.ack(Kind.PUBCOMP, packet_id)
        if kind is Kind.PUBREC:
            self._outgoing[packet_id] = packets.ack(Kind.PUBREL, packet_id)
            return self._outgoing[packet_id]
        self.acknowledged_by_client.append(packet_id)
        self._outgoing.pop(packet_id, None)
        return b""

    def _connack(self, *, clean: bool) -> bytes:
        if clean:
            self.forget()
        present, self.has_session = self.has_session, True
        flags = bytes([present, 0])
        if self.version is Version.V5:
            flags += packets.property_block(self.properties)
        answer = bytes([Kind.CONNACK << 4, len(flags)]) + flags
        for packet in self._outgoing.values():
            again = packet[0] | 8 if packet[0] >> 4 == Kind.PUBLISH else packet[0]
            answer += bytes([again]) + packet[1:]
        return answer

    def _on_publish(self, first: int, body: bytes) -> bytes:
        qos = first >> 1 & 3
        topic_bytes = int.from_bytes(body[:2], "big")
        rest = body[2 + topic_bytes :]
        packet_id = int.from_bytes(rest[:2], "big") if qos else 0
        rest = rest[2:] if qos else rest
        if self.version is Version.V5:
            assert rest[0] < 128, "the tests' properties are short"
            rest = rest[1 + rest[0] :]
        if qos == 2 and packet_id in self._exactly_once:
            return packets.ack(Kind.PUBREC, packet_id)
        self.received.append(rest)
        if qos == 2:
            self._exactly_once.add(packet_id)
            return packets.ack(Kind.PUBREC, packet_id)
        return packets.ack(Kind.PUBACK, packet_id) if qos else b""

    def _on_filters(self, kind: Kind, body: bytes) -> bytes:
        packet_id, rest = body[:2], body[2:]
        if self.version is Version.V5:
            rest = rest[1 + rest[0] :]
        codes = b""
        while rest:
            end = 2 + int.from_bytes(rest[:2], "big")
            text = rest[2:end].decode()
            if kind is Kind.SUBSCRIBE:
                self.subscriptions[text] = rest[end]
                codes += bytes([rest[end] & 3])
                end += 1
            else:
                self.subscriptions.pop(text, None)
                codes += b"\x00"
            rest = rest[end:]
        answer = packet_id + (b"\x00" if self.version is Version.V5 else b"")
        if kind is Kind.SUBSCRIBE or self.version is Version.V5:
            answer += codes
        answering = Kind.SUBACK if kind is Kind.SUBSCRIBE else Kind.UNSUBACK
        return bytes([answering << 4, len(answer)]) + answer


def _length_bytes(packet: bytes) -> int:
    return next(count for count in range(1, 5) if packet[count] < 128)


def _packet_length(data: bytes) -> int | None:
    length = 0
    for at, byte in enumerate(data[1:5]):
        length |= (byte & 127) << 7 * at
        if byte < 128:
            return 2 + at + length
    return None
