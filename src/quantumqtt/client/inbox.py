"""The bounded row of messages between the protocol and one subscriber.

QoS 1 and 2 are bounded by the Receive Maximum we announce, because the broker waits for our
acknowledgements; so only QoS 0 can overflow a row, and only QoS 0 is ever dropped.

Overflow policies: `drop_oldest` and `drop_newest` drop and count; `wait` stops reading from the
socket until the row is half empty, which lets the broker decide what to do with a slow reader, but
also stops acknowledgements of our own publishes; `fail` ends the subscription with an error.
"""

import logging
from collections import deque
from typing import Final, Literal

from quantumqtt._core import Message
from quantumqtt.errors import QuotaExceeded

Overflow = Literal["drop_oldest", "drop_newest", "wait", "fail"]
OVERFLOWS: Final[tuple[Overflow, ...]] = ("drop_oldest", "drop_newest", "wait", "fail")
QUEUE_COUNT_MAX: Final = 65_536
_LOG: Final = logging.getLogger(__name__)


class Inbox:
    """Messages that wait for one subscriber. Not thread-safe: its owner sees to that."""

    __slots__ = ("_count_max", "_name", "_overflow", "dropped_total", "error", "row")

    def __init__(self, name: str, *, count_max: int, overflow: Overflow) -> None:
        if overflow not in OVERFLOWS:
            raise ValueError(f"overflow {overflow!r}: one of {', '.join(OVERFLOWS)}")
        if count_max < 1:
            raise ValueError("queue_count_max is at least 1")
        self.row: deque[Message] = deque()
        self.dropped_total: int = 0
        self.error: QuotaExceeded | None = None
        self._name = name
        self._count_max = count_max
        self._overflow: Overflow = overflow

    def put(self, messages: list[Message]) -> bool:
        """Add messages; False when reading should stop until `is_low`."""
        row = self.row
        row.extend(messages)
        if len(row) <= self._count_max:
            return True
        return self._on_overflow()

    @property
    def is_low(self) -> bool:
        """Whether there is room enough to go on reading."""
        return len(self.row) * 2 <= self._count_max

    def _on_overflow(self) -> bool:
        if self._overflow == "wait":
            return False
        if self._overflow == "fail":
            self.error = QuotaExceeded(
                f"more than {self._count_max} messages wait for {self._name!r}",
                "handle them faster, raise queue_count_max, or choose another overflow policy",
            )
        dropped_before = self.dropped_total
        self._drop(len(self.row) - self._count_max)
        if dropped_before == 0 and self.dropped_total:
            _LOG.warning("slow subscriber %r loses QoS 0 messages (counted)", self._name)
        return True

    def _drop(self, excess: int) -> None:
        row, kept = self.row, deque[Message]()
        from_left = self._overflow == "drop_oldest"
        while row and excess:
            message = row.popleft() if from_left else row.pop()
            if message.qos:
                kept.append(message)
            else:
                excess -= 1
                self.dropped_total += 1
        if from_left:
            row.extendleft(reversed(kept))
        else:
            row.extend(reversed(kept))
