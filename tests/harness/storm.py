"""Connections by the thousand: as little Python per connection as there can be.

What is sent was built beforehand. Sockets are ended with a reset, so that a test of many thousand
connections leaves no port waiting for its next minute.
"""

import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from tests.harness.ports import LOOPBACK

DEADLINE_S: Final = 20.0
_RESET: Final = struct.pack("ii", 1, 0)


def open_socket(port: int) -> socket.socket:
    """Connect; closing it will send a reset."""
    opened = socket.create_connection((LOOPBACK, port), timeout=DEADLINE_S)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


@contextmanager
def crowd(port: int, count: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """Hold many connections that have all sent the same."""
    with ExitStack() as sockets:
        members = [sockets.enter_context(open_socket(port)) for _ in range(count)]
        for member in members:
            member.sendall(sent)
        yield members


def send_and_wait_for_the_end(port: int, blobs: Iterable[bytes]) -> int:
    """Send each blob on a connection of its own until the broker ends it; returns how many."""
    count = 0
    for blob in blobs:
        with open_socket(port) as peer, suppress(ConnectionResetError, BrokenPipeError):
            peer.sendall(blob)
            while peer.recv(4096):
                pass
        count += 1
    return count


def receive_exactly(peer: socket.socket, count: int) -> bytes:
    """Read `count` bytes."""
    received = bytearray()
    while len(received) < count:
        chunk = peer.recv(count - len(received))
        assert chunk, f"closed after {len(received)} of {count} bytes"
        received += chunk
    return bytes(received)
