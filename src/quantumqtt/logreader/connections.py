"""One connection per process and place, kept for the next read.

A Spark task that opens a connection of its own takes twice the time, and a worker process lives for
many tasks. A Flight client may be used by many threads at once, so one per place is enough.

Where it is kept. Spark workers are forked, and gRPC does not survive a fork: the process id is part
of the key. And this room may be sent to workers by value, without being installed there; then each
task has classes and globals of its own, so what must outlive a task hangs on a module that is made
at run time and found again by its name.
"""

import os
import sys
from types import ModuleType
from typing import Final

from pyarrow import flight

from quantumqtt.logreader.place import LogPlace

# Enough for a process that reads from every node of a cluster; the oldest is closed first.
CONNECTIONS_MAX: Final = 16

_HOME: Final = "_quantumqtt_log_connections"

_Key = tuple[int, str, str | None, bytes | None]


def connect(place: LogPlace) -> flight.FlightClient:
    """Take this process's connection to a place, or make it. Nothing is sent yet."""
    kept = _kept()
    key = _key(place)
    client = kept.get(key)
    if client is None:
        while len(kept) >= CONNECTIONS_MAX:
            # Another process's, from before a fork, is forgotten and not closed: it is not ours.
            oldest = next(iter(kept))
            dropped = kept.pop(oldest)
            if oldest[0] == os.getpid():
                dropped.close()
        # Block sizes of the log exceed gRPC's default of 4 MiB for one message: no limit here, the
        # service has its own.
        client = flight.FlightClient(place.location, tls_root_certs=place.tls_roots)
        client = kept.setdefault(key, client)
    return client


def forget(place: LogPlace, client: flight.FlightClient) -> None:
    """Drop a connection that failed, unless another thread has replaced it already."""
    kept = _kept()
    if kept.get(_key(place)) is client:
        del kept[_key(place)]


def _key(place: LogPlace) -> _Key:
    # The token is sent with each call and would not need a place here; but whoever changes it
    # usually wants to be somebody else from now on, and expects nothing left over.
    return (os.getpid(), place.location, place.token, place.tls_roots)


def _kept() -> dict[_Key, flight.FlightClient]:
    home = sys.modules.get(_HOME)
    if home is None:
        home = sys.modules.setdefault(_HOME, ModuleType(_HOME))
    kept: dict[_Key, flight.FlightClient] = home.__dict__.setdefault("kept", {})
    return kept
