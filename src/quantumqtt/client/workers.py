"""Threads that run the application's callbacks, so that the protocol's thread never does.

A `Worker` runs what it is given one after the other, on one thread that starts with the first
piece of work. Work that blocks for ever blocks its own worker only.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

_LOG: Final = logging.getLogger(__name__)


class Worker:
    """One thread, one row of work."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._row: deque[Callable[[], object]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def post(self, work: Callable[[], object]) -> None:
        """Have `work` run after what was posted before; dropped once the worker is closed."""
        with self._changed:
            if self._is_closed:
                return
            self._row.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self, timeout_s: float) -> bool:
        """Finish what was posted and end; False when it is still at it after `timeout_s`."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._row:
                    if self._is_closed:
                        return
                    self._changed.wait()
                work = self._row.popleft()
            try:
                work()
            except Exception:
                _LOG.exception("a callback of the application failed")
