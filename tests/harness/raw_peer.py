"""A scripted MQTT peer that speaks raw bytes: it sends what it is told and compares what comes.

It knows nothing of MQTT but where a packet ends, so it can say wrong things on purpose. Every wait
has a deadline on the socket; a test never sleeps.
"""

import socket
from types import TracebackType
from typing import Self

# A deadline ends a hang; it measures nothing, and a busy machine must not meet it.
DEADLINE_S = 20.0
_REMAINING_LENGTH_BYTES_MAX = 4


class RawPeer:
    """One TCP connection to a broker."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        deadline_s: float = DEADLINE_S,
        over: socket.socket | None = None,
    ) -> None:
        """Connect; every later read and write must end within `deadline_s`.

        `over` is a connection that was made already, TLS included.
        """
        if over is not None:
            self._socket = over
            return
        self._socket = socket.create_connection((host, port), timeout=deadline_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def send(self, *parts: bytes | str) -> None:
        """Send bytes, or text that spells them in hexadecimal; blanks in it are for the reader."""
        self._socket.sendall(b"".join(as_bytes(part) for part in parts))

    def expect(self, *parts: bytes | str) -> None:
        """Read exactly as many bytes as are expected and compare."""
        expected = b"".join(as_bytes(part) for part in parts)
        got = self.receive_exactly(len(expected))
        assert got == expected, f"expected {expected.hex(' ')}, got {got.hex(' ')}"

    def receive_exactly(self, count: int) -> bytes:
        """Read `count` bytes; a close before that is an error of the test."""
        received = bytearray()
        while len(received) < count:
            chunk = self._socket.recv(count - len(received))
            if not chunk:
                raise AssertionError(f"closed after {received.hex(' ') or 'nothing'}")
            received += chunk
        return bytes(received)

    def receive_packet(self) -> bytes:
        """Read one whole packet, fixed header included."""
        header = self.receive_exactly(2)
        remaining = header[1] & 0x7F
        while header[-1] & 0x80:
            assert len(header) <= _REMAINING_LENGTH_BYTES_MAX, f"bad length: {header.hex(' ')}"
            header += self.receive_exactly(1)
            remaining |= (header[-1] & 0x7F) << (7 * (len(header) - 2))
        return header + self.receive_exactly(remaining)

    def expect_closed(self) -> None:
        """Wait for the broker to close; anything it says before is an error of the test."""
        try:
            rest = self._socket.recv(4096)
        except ConnectionResetError:
            return
        assert rest == b"", f"expected a close, got {rest.hex(' ')}"

    def shrink_receive_buffer(self, size: int) -> None:
        """Let the kernel hold fewer bytes for us, so that not reading is soon noticed."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)

    def shut_writing(self) -> None:
        """Say that nothing more will come, and keep reading."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Drop the connection without a DISCONNECT."""
        self._socket.close()


def as_bytes(part: bytes | str) -> bytes:
    """Take bytes as they are; read text as hexadecimal."""
    return bytes.fromhex(part) if isinstance(part, str) else part


def text(content: str) -> bytes:
    """Encode a UTF-8 string of MQTT: two bytes of length, then the text."""
    encoded = content.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def packet(first_byte: int, *parts: bytes | str) -> bytes:
    """Put a fixed header before a body."""
    body = b"".join(as_bytes(part) for part in parts)
    length = bytearray()
    rest = len(body)
    while True:
        rest, low = rest >> 7, rest & 0x7F
        length.append(low | (0x80 if rest else 0))
        if not rest:
            return bytes([first_byte]) + bytes(length) + body


def connect_packet(client_id: str, *, level: int = 4, keep_alive_s: int = 60) -> bytes:
    """Make a CONNECT with a clean start and without credentials; `level` 4 is 3.1.1, 5 is 5.0."""
    properties = "00" if level >= 5 else b""
    return packet(
        0x10,
        text("MQTT"),
        bytes([level, 0x02]),
        keep_alive_s.to_bytes(2, "big"),
        properties,
        text(client_id),
    )
