"""The row between our client's threads and the thread that runs paho's callbacks.

paho runs every callback on the thread of its loop. Here the network runs on a thread of its own, so
whatever happens is put into this row and taken out by `loop_start`'s thread, `loop_forever` or
`loop`. When too many messages wait, reading from the socket stops until half of them are gone.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from quantumqtt.client import Message
from quantumqtt.client.driver import Driver
from quantumqtt.errors import QuantuMQTTError

MESSAGES_MAX: Final = 65_536

Event = Callable[[], object]


class Events:
    """Callbacks that are due, in order."""

    def __init__(self) -> None:
        self._row: deque[Event | Message] = deque()
        self._changed = threading.Condition()
        self._is_paused = False
        self._driver: Driver | None = None
        self._held: list[Message] = []
        self._is_announced = False
        self.on_message: Callable[[Message], object] = lambda _message: None

    def follow(self, driver: Driver) -> None:
        """Take messages from this driver; hold them back until its connection was announced."""
        with self._changed:
            self._driver = driver
            self._is_announced = False
            self._is_paused = False
            self._held.clear()

    def post(self, event: Event) -> None:
        """Have something called on the loop's thread."""
        with self._changed:
            self._row.append(event)
            self._changed.notify_all()

    def announce(self, event: Event) -> None:
        """Have a connection told; messages of it come after that."""
        with self._changed:
            self._row.append(event)
            self._row.extend(self._held)
            self._held.clear()
            self._is_announced = True
            self._changed.notify_all()

    def wake(self) -> None:
        """Let whoever waits look around."""
        with self._changed:
            self._changed.notify_all()

    def run_one(self, timeout_s: float | None) -> bool:
        """Wait for one event and run it; False when none came in time."""
        with self._changed:
            if not self._row:
                self._changed.wait(timeout_s)
            if not self._row:
                return False
            event = self._row.popleft()
            resumes = self._is_paused and len(self._row) * 2 <= MESSAGES_MAX
            self._is_paused = self._is_paused and not resumes
            driver = self._driver
        if resumes and driver is not None:
            driver.resume_reading(self)
        if isinstance(event, Message):
            self.on_message(event)
        else:
            event()
        return True

    def run_ready(self) -> None:
        """Run what is due now."""
        while self.run_one(0):
            pass

    # --- for the driver, on its thread ----------------------------------------------------------

    def offer(self, messages: list[Message]) -> None:
        """Take messages from the driver."""
        with self._changed:
            (self._row if self._is_announced else self._held).extend(messages)
            pauses = len(self._row) > MESSAGES_MAX and not self._is_paused
            self._is_paused = self._is_paused or pauses
            driver = self._driver
            self._changed.notify_all()
        if pauses and driver is not None:
            driver.pause_reading(self)

    def end(self, error: QuantuMQTTError | None) -> None:
        """The client has ended; what came is still handed out."""
        self.wake()
