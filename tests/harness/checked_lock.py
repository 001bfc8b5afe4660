"""A lock that knows its place: taking two in the wrong order, or one twice, fails the test.

It stands in for the client's plain locks in tests. Violations are kept, not only raised, because a
thread of the client that raises may be nobody's to watch.
"""

import threading
from collections import defaultdict
from types import TracebackType
from typing import Final

# The order of docs/internals/locks.md: only a later one may be taken while an earlier is held.
RANKS: Final = {"connection": 0, "session": 1, "subscription": 2}


class LockOrder:
    """One test's locks: makes them, and remembers who held what."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.taken: dict[str, int] = defaultdict(int)
        self._held = threading.local()

    def new_lock(self, name: str) -> "CheckedLock":
        """Make a lock; what the client takes as its factory."""
        return CheckedLock(name, self)

    def held(self) -> list[str]:
        """What this thread holds now."""
        names: list[str] = getattr(self._held, "names", [])
        self._held.names = names
        return names

    def on_take(self, name: str) -> None:
        """Judge before the lock is taken: afterwards may be never."""
        held = self.held()
        if any(RANKS[other] >= RANKS[name] for other in held):
            self.violations.append(f"{name} taken while holding {held}")
            raise AssertionError(self.violations[-1])
        held.append(name)
        self.taken[name] += 1


class CheckedLock:
    """A `threading.Lock` that reports to its `LockOrder`."""

    def __init__(self, name: str, order: LockOrder) -> None:
        self._name = name
        self._order = order
        self._lock = threading.Lock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it, if that is allowed."""
        if not blocking:
            taken = self._lock.acquire(blocking=False)
            if taken:
                self._order.held().append(self._name)
            return taken
        self._order.on_take(self._name)
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        """Give it back."""
        self._order.held().remove(self._name)
        self._lock.release()

    def is_mine(self) -> bool:
        """Whether this thread holds a lock of this name."""
        return self._name in self._order.held()

    def _is_owned(self) -> bool:
        """What `threading.Condition` asks."""
        return self.is_mine()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
