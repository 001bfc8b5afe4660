"""Clients that hold subscriptions nobody publishes to, to see what they cost others."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from bench.brokers import LOOPBACK

_PER_CLIENT: Final = 5_000
_PER_PACKET: Final = 250
_DEADLINE_S: Final = 60.0
_CONNACK_BYTES: Final = 4
_KEEP_ALIVE_OFF: Final = b"\x00\x00"


@contextmanager
def held_subscriptions(port: int, count: int) -> Iterator[None]:
    """Hold `count` distinct subscriptions while the body runs."""
    with ExitStack() as stack:
        for first in range(0, count, _PER_CLIENT):
            peer = stack.enter_context(
                socket.create_connection((LOOPBACK, port), timeout=_DEADLINE_S)
            )
            peer.sendall(_connect(f"holder-{first}"))
            receive(peer, _CONNACK_BYTES)
            _subscribe_all(peer, range(first, min(first + _PER_CLIENT, count)))
        yield


def _subscribe_all(peer: socket.socket, numbers: range) -> None:
    for at in range(0, len(numbers), _PER_PACKET):
        part = numbers[at : at + _PER_PACKET]
        filters = b"".join(text(f"held/{number // 1000}/{number}") + b"\x00" for number in part)
        body = b"\x00\x01" + filters
        peer.sendall(b"\x82" + length(len(body)) + body)
        answer_bytes = 2 + len(part)
        receive(peer, 1 + len(length(answer_bytes)) + answer_bytes)


def _connect(client_id: str) -> bytes:
    body = text("MQTT") + b"\x04\x02" + _KEEP_ALIVE_OFF + text(client_id)
    return b"\x10" + length(len(body)) + body


def text(words: str) -> bytes:
    """Encode a string as packets hold it."""
    encoded = words.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def length(value: int) -> bytes:
    """Encode a remaining length."""
    encoded = bytearray()
    while True:
        value, low = divmod(value, 128)
        encoded.append(low | (0x80 if value else 0))
        if not value:
            return bytes(encoded)


def receive(peer: socket.socket, count: int) -> None:
    """Take exactly so many bytes: the answer has no more, as nobody publishes to us.

    Raises:
        ConnectionError: The broker closed before that.
    """
    while count > 0:
        part = peer.recv(count)
        if not part:
            raise ConnectionError("the broker closed a connection that only subscribes")
        count -= len(part)
