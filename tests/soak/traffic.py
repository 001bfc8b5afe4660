"""Clients of every habit, each a thread that goes on until it is told to stop.

They check nothing of what they receive: the conformance suite does. What they are for is that
everything happens at once and for long, while somebody watches what the broker uses.
"""

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from tests.harness import packets
from tests.harness.packets import Key, Version, Will
from tests.harness.storm import open_socket

Habit = Callable[[int, int], None]
KEEP: Final = ((Key.SESSION_EXPIRY, 2),)
_GONE: Final = (ConnectionError, TimeoutError)


def _talk(port: int, *said: bytes, reads: int = 1) -> None:
    """Say all of it on one connection, read a little, leave by a reset."""
    with open_socket(port) as peer, suppress(*_GONE):
        peer.settimeout(0.2)
        peer.sendall(b"".join(said))
        for _ in range(reads):
            if not peer.recv(65_536):
                return


def _connect(client_id: str, turn: int, *, will: Will | None = None) -> bytes:
    version = Version.V5
    return packets.connect(
        client_id, version=version, clean=turn % 3 == 0, will=will, properties=KEEP
    )


def storm(port: int, turn: int) -> None:
    """Come, subscribe, go; sometimes say nonsense."""
    said = packets.subscribe(1, (f"soak/{turn % 50}/#", turn % 3), version=Version.V5)
    nonsense = b"\x00\xff" if turn % 7 == 0 else b""
    _talk(port, packets.connect("", version=Version.V5), said, nonsense)


def takeovers(port: int, turn: int) -> None:
    """Few ids for many connections."""
    said = packets.subscribe(1, ("soak/stored/+", 2), version=Version.V5)
    _talk(port, _connect(f"taken-{turn % 4}", turn), said)


def publishers(port: int, turn: int) -> None:
    """All qualities of service in one connection, some of it retained, some of it cleared again."""
    with open_socket(port) as peer, suppress(*_GONE):
        peer.sendall(packets.connect("", version=Version.V5))
        for number in range(1, 200):
            qos = number % 3
            topic = f"soak/{number % 50}/{turn % 20}" if number % 4 else f"soak/stored/{number % 9}"
            peer.sendall(
                packets.publish(
                    topic,
                    b"" if number % 25 == 0 else bytes(number * 7 % 900),
                    version=Version.V5,
                    qos=qos,
                    packet_id=number if qos else None,
                    retain=number % 5 == 0,
                )
            )
            if qos == 2:
                peer.sendall(packets.ack(packets.Kind.PUBREL, number))
            peer.recv(4096) if qos else None


def wills(port: int, turn: int) -> None:
    """Die without a word."""
    will = Will(f"soak/{turn % 50}/will", b"gone", turn % 3, turn % 2 == 0)
    _talk(port, _connect(f"mortal-{turn % 30}", turn, will=will))


def slow_readers(port: int, turn: int) -> None:
    """Subscribe to everything and hardly read."""
    with open_socket(port) as peer, suppress(*_GONE):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
        peer.settimeout(1.0)
        peer.sendall(packets.connect("", version=Version.V5))
        peer.sendall(packets.subscribe(1, ("soak/#", turn % 2), version=Version.V5))
        for _ in range(20):
            if not peer.recv(512):
                return


HABITS: Final[tuple[Habit, ...]] = (storm, takeovers, publishers, publishers, wills, slow_readers)


@contextmanager
def everything_at_once(port: int) -> Iterator[list[int]]:
    """Run every habit; yields the number of turns each has taken, growing while it runs."""
    stop = threading.Event()
    turns = [0] * len(HABITS)

    def go_on(at: int) -> None:
        for turn in itertools.count():
            if stop.is_set():
                return
            HABITS[at](port, turn)
            turns[at] += 1

    threads = [threading.Thread(target=go_on, args=(at,)) for at in range(len(HABITS))]
    for thread in threads:
        thread.start()
    try:
        yield turns
    finally:
        stop.set()
        for thread in threads:
            thread.join()
