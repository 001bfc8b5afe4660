"""The client's side of a WebSocket, byte by byte, so that tests can lie.

It wraps a connected socket and looks like one to `MqttPeer`: what is sent becomes frames, what
frames hold can be received. `cut` says how large frames are.
"""

import base64
import os
import socket
import struct
from typing import Final, Self

REQUEST: Final = (
    "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
    "Sec-WebSocket-Protocol: mqtt\r\n{more}\r\n"
)
BINARY: Final = 0x82
CLOSE: Final = 0x88
PING: Final = 0x89
PONG: Final = 0x8A


def request(more: str = "") -> bytes:
    """Write a request for an upgrade; `more` are further lines."""
    key = base64.b64encode(os.urandom(16)).decode()
    return REQUEST.format(key=key, more=more).encode()


def frame(first: int, payload: bytes) -> bytes:
    """Write one masked frame."""
    mask = os.urandom(4)
    length = len(payload)
    if length < 126:
        head = bytes([first, 0x80 | length])
    elif length < 65_536:
        head = bytes([first, 0xFE]) + struct.pack("!H", length)
    else:
        head = bytes([first, 0xFF]) + struct.pack("!Q", length)
    repeated = mask * (length // 4 + 1)
    masked = bytes(one ^ other for one, other in zip(payload, repeated, strict=False))
    return head + mask + masked


def read_answer(wire: socket.socket) -> tuple[int, str]:
    """Read an HTTP answer: status, and everything as text."""
    received = b""
    while b"\r\n\r\n" not in received:
        chunk = wire.recv(1)
        assert chunk, f"closed after {received!r}"
        received += chunk
    head = received.decode()
    return int(head.split(" ", 2)[1]), head


class WebSocketWire:
    """An open WebSocket that can be used as if it were the socket below it."""

    def __init__(self, wire: socket.socket, *, cut: int | None = None) -> None:
        """Ask for the upgrade, which must be granted."""
        self.wire = wire
        self.cut = cut
        self.controls: list[tuple[int, bytes]] = []
        self._plain = bytearray()
        wire.sendall(request())
        status, head = read_answer(wire)
        assert status == 101, head
        assert "Sec-WebSocket-Protocol: mqtt\r\n" in head

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sendall(self, data: bytes) -> None:
        """Send bytes as frames of at most `cut` bytes, the fragments of one message."""
        step = self.cut or len(data)
        parts = [data[at : at + step] for at in range(0, len(data), step)]
        for number, part in enumerate(parts):
            opcode = 0x02 if number == 0 else 0x00
            final = 0x80 if number == len(parts) - 1 else 0
            self.wire.sendall(frame(opcode | final, part))

    def recv(self, count: int) -> bytes:
        """Receive payload; empty at the end, close frames being kept in `controls`."""
        while not self._plain:
            if not self._read_frame():
                return b""
        taken = bytes(self._plain[:count])
        del self._plain[:count]
        return taken

    def read_control(self) -> tuple[int, bytes]:
        """Wait for a control frame."""
        while not self.controls:
            assert self._read_frame(), "closed"
        return self.controls.pop(0)

    def close(self) -> None:
        """Drop the connection without a word."""
        self.wire.close()

    def _read_frame(self) -> bool:
        head = self._exactly(2)
        if head is None:
            return False
        first, length = head
        assert length < 0x80, "a server does not mask"
        if length == 126:
            (length,) = struct.unpack("!H", self._exactly(2) or b"")
        elif length == 127:
            (length,) = struct.unpack("!Q", self._exactly(8) or b"")
        payload = self._exactly(length) if length else b""
        assert payload is not None
        if first == BINARY:
            self._plain += payload
        else:
            self.controls.append((first, payload))
        return True

    def _exactly(self, count: int) -> bytes | None:
        received = bytearray()
        while len(received) < count:
            chunk = self.wire.recv(count - len(received))
            if not chunk:
                return None
            received += chunk
        return bytes(received)
