"""Sessions that stay behind: what a broker has to carry over a restart."""

import socket
from collections.abc import Sequence
from typing import Final

from bench import subscriptions
from bench.brokers import LOOPBACK

_TOGETHER: Final = 200
_DEADLINE_S: Final = 60.0
_CONNECT_CLEAN_OFF: Final = b"\x04\x00\x00\x00"
_DISCONNECT: Final = b"\xe0\x00"
_QUEUE: Final = "queued"
_CONNACK_AND_SUBACK: Final = 4 + 5


def leave_sessions(port: int, count: int) -> None:
    """Let `count` clients subscribe to a topic of their own and go, their sessions staying."""
    for first in range(0, count, _TOGETHER):
        numbers = range(first, min(first + _TOGETHER, count))
        visits = [_visit(port) for _ in numbers]
        for visit, number in zip(visits, numbers, strict=True):
            visit.sendall(_introduction(f"stored-{number}", f"stored/{number}"))
        for visit in visits:
            with visit:
                _await_goodbye(visit)


def leave_a_queue(port: int, count: int) -> Sequence[str]:
    """Let one client subscribe and go; gives what makes the generator fill its queue."""
    with _visit(port) as visit:
        visit.sendall(_introduction(_QUEUE, _QUEUE))
        _await_goodbye(visit)
    return ("pub", "-c", "1", "-q", "1", "-t", _QUEUE, "-L", str(count), "-F", "1000", "-V", "4")


def _visit(port: int) -> socket.socket:
    return socket.create_connection((LOOPBACK, port), timeout=_DEADLINE_S)


def _introduction(client_id: str, topic: str) -> bytes:
    connect = subscriptions.text("MQTT") + _CONNECT_CLEAN_OFF + subscriptions.text(client_id)
    subscribe = b"\x00\x01" + subscriptions.text(topic) + b"\x01"
    return b"".join(
        head + subscriptions.length(len(body)) + body
        for head, body in ((b"\x10", connect), (b"\x82", subscribe))
    )


def _await_goodbye(visit: socket.socket) -> None:
    subscriptions.receive(visit, _CONNACK_AND_SUBACK)
    visit.sendall(_DISCONNECT)
    while visit.recv(64):
        pass
