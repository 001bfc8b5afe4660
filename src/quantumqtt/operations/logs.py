"""Logging: one line per event, for a person or for a machine, on standard error.

The rooms use the standard `logging` module with fields in `extra`, so a program that embeds a
broker decides itself what happens to them. Only the command line calls `configure_logs`.

What must stay true whatever a client sends: a record is one line (control characters, line and
paragraph separators and direction marks are escaped), a value cannot pretend to be another field
(values with spaces or `=` are quoted), and nothing named like a secret is written.

A formatter of the standard library does all this; why there is no logging library here is written
in `docs/decisions/2026-11-19-quick-start.md`.
"""

import json
import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final, TextIO

from quantumqtt.config import LogFormat, LogLevel
from quantumqtt.operations.terminal import Painter

ROOT_LOGGER: Final = "quantumqtt"
# Libraries that run inside our threads; their complaints belong into the same stream and form.
LIBRARY_LOGGERS: Final = ("asyncio", "uvicorn")

_LEVELS: Final[Mapping[LogLevel, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_SECRET_WORDS: Final = ("password", "payload", "secret", "token", "credential")
# What every record has; the rest of its attributes came by `extra`.
_OWN_ATTRIBUTES: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def configure_logs(*, level: LogLevel, log_format: LogFormat, stream: TextIO | None = None) -> None:
    """Send the records of this package to `stream`, standard error by default.

    Warnings and errors of the libraries that run inside it go the same way. Calling this again
    replaces the former set-up.
    """
    stream = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        JsonFormatter() if log_format == "json" else TextFormatter(Painter.for_stream(stream))
    )
    for name in (ROOT_LOGGER, *LIBRARY_LOGGERS):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        # The root logger may belong to an embedding program; ours are complete without it.
        logger.propagate = False
        logger.setLevel(logging.WARNING)
    set_log_level(level)


def set_log_level(level: LogLevel) -> None:
    """Change the lowest level that is logged, while running."""
    logging.getLogger(ROOT_LOGGER).setLevel(_LEVELS[level])


class _FieldFormatter(logging.Formatter, ABC):
    """What both forms share: the time, the fields of a record, its stack trace."""

    @abstractmethod
    def render(self, record: logging.LogRecord, time: str, trace: str | None) -> str:
        """Write one record."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record as one line; only a stack trace may follow on further lines."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
        trace = self.formatException(record.exc_info) if record.exc_info else None
        return self.render(record, time.replace("+00:00", "Z"), trace)


class TextFormatter(_FieldFormatter):
    """Writes `time LEVEL logger message key=value …`, with colours when asked to."""

    _STYLES: Final = {"debug": "dim", "info": "green", "warning": "yellow"}

    def __init__(self, painter: Painter) -> None:
        super().__init__()
        self._paint = painter.paint

    def render(self, record: logging.LogRecord, time: str, trace: str | None) -> str:
        """Write one record for a person."""
        level = record.levelname
        line = " ".join(
            (
                self._paint("dim", time),
                self._paint(self._STYLES.get(level.lower(), "red"), f"{level:<7}"),
                self._paint("dim", record.name),
                escape_controls(record.getMessage()),
                *(
                    f"{self._paint('cyan', escape_controls(name))}={_word(value)}"
                    for name, value in _fields(record)
                ),
            )
        )
        if trace is None:
            return line
        return "\n".join([line, *(escape_controls(one) for one in trace.split("\n"))])


class JsonFormatter(_FieldFormatter):
    """Writes one JSON object per record."""

    def render(self, record: logging.LogRecord, time: str, trace: str | None) -> str:
        """Write one record for a program."""
        document = {
            **dict(_fields(record)),
            "event": record.getMessage(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "timestamp": time,
        }
        if trace is not None:
            document["exception"] = trace
        # What is no JSON value is written as text: a log line is never lost over its fields.
        return json.dumps(document, default=str)


def escape_controls(text: str) -> str:
    """Replace what would move the cursor, break the line or turn its direction."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """Give what came by `extra`; what is named like a secret is nobody's business."""
    for name, value in vars(record).items():
        if name not in _OWN_ATTRIBUTES:
            is_secret = any(word in name.lower() for word in _SECRET_WORDS)
            yield name, "[redacted]" if is_secret else value


def _word(value: object) -> str:
    """Write a value so that it cannot be mistaken for two, or for another field."""
    text = value if isinstance(value, str) else str(value)
    if text and text.isprintable() and not any(mark in text for mark in ' ="\\'):
        return text
    return json.dumps(text)
