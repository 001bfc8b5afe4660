"""A client that tells on itself: who touched what, holding which locks, on which thread.

Its session is swapped for one that notes every access without the session lock, its driver for one
that notes accesses to the connection's fields without the connection lock, and to the transport
from any thread but the loop's. What blocks is noted when it happens under any lock.
"""

import threading
from dataclasses import dataclass, field
from typing import Final

import pytest

from quantumqtt.client import SyncClient
from quantumqtt.client.driver import Driver
from quantumqtt.client.protocol import Session
from quantumqtt.client.receipts import Pending, Receipt
from tests.harness.checked_lock import LockOrder

_OF_THE_CONNECTION: Final = {"_is_connected", "_last_error", "_connections_total"}


@dataclass(slots=True)
class Watch:
    """What was noted of one client."""

    order: LockOrder = field(default_factory=LockOrder)
    # Accesses that broke a rule, by name.
    trespasses: list[str] = field(default_factory=list)
    # What was called: name, locks held, whether on the loop's thread.
    trace: list[tuple[str, tuple[str, ...], bool]] = field(default_factory=list)
    # Payloads, in the order in which their callers got the session lock.
    published: list[bytes] = field(default_factory=list)

    def note(self, what: str) -> None:
        """Add to the trace."""
        on_loop = threading.current_thread().name == "quantumqtt client"
        self.trace.append((what, tuple(self.order.held()), on_loop))


def watch(client: SyncClient, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin to watch a client whose locks were made by `watch.order`."""
    order, trespasses = watch.order, watch.trespasses

    class WatchedSession(Session[object]):
        def __getattribute__(self, name: str) -> object:
            if not name.startswith("__") and "session" not in order.held():
                trespasses.append(f"session.{name}")
            return super().__getattribute__(name)

        def publish(self, receipt: Receipt, drop_oldest: bool = False) -> None:
            watch.note("publish")
            watch.published.append(receipt.payload)
            super().publish(receipt, drop_oldest)

    class WatchedDriver(Driver):
        def __getattribute__(self, name: str) -> object:
            if name in _OF_THE_CONNECTION and "connection" not in order.held():
                trespasses.append(f"driver.{name}")
            if name == "_transport":
                owner = super().__getattribute__("_loop_thread")
                if owner and owner != threading.get_ident():
                    trespasses.append("driver._transport from another thread")
            return super().__getattribute__(name)

    driver = client._driver
    driver._session.__class__ = WatchedSession  # type: ignore[assignment]
    driver.__class__ = WatchedDriver
    call_waiters = Pending._call_waiters

    def call_unlocked(self: Pending[object]) -> None:
        watch.note("settle")
        if order.held():
            trespasses.append(f"a promise settled while holding {order.held()}")
        call_waiters(self)

    monkeypatch.setattr(Pending, "_call_waiters", call_unlocked)


def watch_writes(client: SyncClient, watch: Watch) -> None:
    """Note every write of the open connection; call it on the loop's thread."""
    transport = client._driver._transport
    assert transport is not None
    write = transport.write

    def noted(data: bytes) -> None:
        watch.note("write")
        if watch.order.held():
            watch.trespasses.append(f"a write while holding {watch.order.held()}")
        write(data)

    transport.write = noted  # type: ignore[method-assign,assignment]
