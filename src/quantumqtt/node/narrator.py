"""Tells the log what clients do, without letting clients flood it.

A refused connection is the question newcomers ask most ("why can it not connect?"), so it is
logged by default. But anybody can be refused ten thousand times a second: at most a few lines per
second are written, and the next one says how many were left out.
"""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from quantumqtt.node.native import NativeEvent

_log = logging.getLogger(__name__)

LINES_PER_SECOND_MAX: Final = 10

_LEVELS: Final = {
    "session_opened": logging.DEBUG,
    "session_closed": logging.DEBUG,
    "connection_refused": logging.INFO,
    "access_denied": logging.INFO,
    "overrun": logging.WARNING,
    "shard_failed": logging.ERROR,
    "log_damaged": logging.ERROR,
    "disk_level_changed": logging.WARNING,
}
_WORDS: Final = {
    "session_opened": "client connected",
    "session_closed": "client left",
    "connection_refused": "connection refused",
    "access_denied": "access denied",
    "overrun": "events were lost: Python does not keep up",
    "shard_failed": "a shard thread failed; the broker has to be restarted",
    "log_damaged": "a file of the log was damaged at rest; a checkpoint is made to do without it",
    "disk_level_changed": "the disk of the log",
}


class Narrator:
    """Turns events into log lines, a bounded number per second."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with a full allowance; `clock` gives seconds."""
        self._clock = clock
        self._window_start = clock()
        self._lines_left = LINES_PER_SECOND_MAX
        self._left_out = 0

    @property
    def wants_sessions(self) -> bool:
        """Whether who comes and goes is logged."""
        return _log.isEnabledFor(_LEVELS["session_opened"])

    def on_events(self, events: Iterable[NativeEvent]) -> None:
        """Log the events that the log level asks for."""
        for event in events:
            level = _LEVELS.get(event.kind)
            if level is None or not _log.isEnabledFor(level):
                continue
            if level >= logging.ERROR or self._take_line():
                self._write(level, event)
            else:
                self._left_out += event.count

    def _take_line(self) -> bool:
        now = self._clock()
        if now - self._window_start >= 1.0:
            self._window_start = now
            self._lines_left = LINES_PER_SECOND_MAX
        if self._lines_left == 0:
            return False
        self._lines_left -= 1
        return True

    def _write(self, level: int, event: NativeEvent) -> None:
        fields: dict[str, object] = {
            "client_id": event.client_id,
            "peer": event.peer,
            "listener": event.listener,
            "protocol": event.protocol,
            "reason": event.reason,
            "user": event.user_name,
            "topic": event.topic,
        }
        shown = {key: value for key, value in fields.items() if value is not None}
        if event.count > 1:
            shown["count"] = event.count
        if self._left_out:
            shown["left_out_before"] = self._left_out
            self._left_out = 0
        _log.log(level, _WORDS[event.kind], extra=shown)
