"""Ports of the loopback interface, borrowed for a test."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

LOOPBACK = "127.0.0.1"


@contextmanager
def taken_port() -> Iterator[int]:
    """Hold a port that nobody else can listen on meanwhile."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as holder:
        holder.bind((LOOPBACK, 0))
        holder.listen(1)
        yield int(holder.getsockname()[1])


def free_port() -> int:
    """Find a port that is free now.

    Somebody else may take it before the caller does; ask for port 0 wherever that is possible, and
    use this only to prove that nobody listens.
    """
    with taken_port() as port:
        return port
