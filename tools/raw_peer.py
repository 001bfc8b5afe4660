"""The smallest MQTT 3.1.1 peer that can pass one message: bytes in, bytes out, nothing shared.

It shares no code with the product on purpose. When the product's codec and this one agree about a
message, two people read the standard the same way.
"""

import socket
from types import TracebackType
from typing import Self

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, DISCONNECT = 1, 2, 3, 4, 8, 9, 14


class UnexpectedPacket(Exception):
    """The broker answered with something else than the standard asks for."""


class RawPeer:
    """One blocking connection."""

    def __init__(self, host: str, port: int, client_id: str, *, timeout_s: float = 10.0) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        variable = _text("MQTT") + bytes([4, 0b0000_0010]) + (30).to_bytes(2)
        self._send(CONNECT, 0, variable + _text(client_id))
        if self._receive(CONNACK) != b"\x00\x00":
            raise UnexpectedPacket("CONNACK refuses the connection")

    def __enter__(self) -> Self:
        """Return the connected peer."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Say goodbye and close."""
        if error is None:
            self._send(DISCONNECT, 0, b"")
        self._socket.close()

    def subscribe(self, topic_filter: str, *, qos: int) -> None:
        """Subscribe and wait for the grant."""
        self._send(SUBSCRIBE, 0b0010, (1).to_bytes(2) + _text(topic_filter) + bytes([qos]))
        if self._receive(SUBACK) != (1).to_bytes(2) + bytes([qos]):
            raise UnexpectedPacket("SUBACK does not grant what was asked")

    def publish(self, topic: str, payload: bytes) -> None:
        """Publish with QoS 1 and wait for the acknowledgement."""
        self._send(PUBLISH, 0b0010, _text(topic) + (7).to_bytes(2) + payload)
        if self._receive(PUBACK) != (7).to_bytes(2):
            raise UnexpectedPacket("PUBACK is for another packet")

    def receive_message(self) -> tuple[str, bytes]:
        """Wait for one QoS 1 message, acknowledge it, return topic and payload."""
        body = self._receive(PUBLISH)
        topic_end = 2 + int.from_bytes(body[:2])
        self._send(PUBACK, 0, body[topic_end : topic_end + 2])
        return body[2:topic_end].decode(), body[topic_end + 2 :]

    def _send(self, kind: int, flags: int, body: bytes) -> None:
        if len(body) > 127:
            raise ValueError("this peer writes short packets only")
        self._socket.sendall(bytes([kind << 4 | flags, len(body)]) + body)

    def _receive(self, wanted: int) -> bytes:
        first, length = self._read(2)
        if length > 127:
            raise UnexpectedPacket("a long packet, where only short ones were sent")
        body = self._read(length)
        if first >> 4 != wanted:
            raise UnexpectedPacket(f"packet type {first >> 4}, wanted {wanted}")
        return body

    def _read(self, count: int) -> bytes:
        read = b""
        while len(read) < count:
            more = self._socket.recv(count - len(read))
            if not more:
                raise UnexpectedPacket("the broker closed the connection")
            read += more
        return read


def _text(text: str) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(2) + encoded
