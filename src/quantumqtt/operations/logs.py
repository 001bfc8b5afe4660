"""Logging: one line per event, for a person or for a machine, on standard error.

The rooms use the standard `logging` module with fields in `extra`, so a program that embeds a
broker decides itself what happens to them. Only the command line calls `configure_logs`.

What must stay true whatever a client sends: a record is one line (control characters, line and
paragraph separators and direction marks are escaped), a value cannot pretend to be another field
(values with spaces or `=` are quoted), and nothing named like a secret is written.
"""

import json
import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Final, TextIO

import structlog

from quantumqtt.config import LogFormat, LogLevel

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
_COLOURS: Final = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "31"}

EventDict = MutableMapping[str, object]


def configure_logs(*, level: LogLevel, log_format: LogFormat, stream: TextIO | None = None) -> None:
    """Send the records of this package to `stream`, standard error by default.

    Warnings and errors of the libraries that run inside it go the same way. Calling this again
    replaces the former set-up.
    """
    stream = sys.stderr if stream is None else stream
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        redact_secrets,
    ]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(log_format, coloured=stream.isatty()),
            ],
        )
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


def redact_secrets(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Blank every field whose name says that its value is nobody's business."""
    for key in event:
        if any(word in key.lower() for word in _SECRET_WORDS):
            event[key] = "[redacted]"
    return event


class TextRenderer:
    """Writes `time LEVEL logger message key=value …`, with colours when asked to."""

    def __init__(self, *, coloured: bool) -> None:
        self._coloured = coloured

    def __call__(self, _logger: object, _method: str, event: EventDict) -> str:
        """Render one record; only a stack trace may follow on further lines."""
        level = str(event.pop("level", "info"))
        parts = [
            self._paint("2", str(event.pop("timestamp", ""))),
            self._paint(_COLOURS.get(level, "0"), f"{level.upper():<7}"),
            self._paint("2", str(event.pop("logger", ROOT_LOGGER))),
            escape_controls(str(event.pop("event", ""))),
        ]
        trace = event.pop("exception", None)
        parts += [f"{self._paint('36', escape_controls(k))}={_word(v)}" for k, v in event.items()]
        line = " ".join(parts)
        if trace is None:
            return line
        return "\n".join([line, *(escape_controls(one) for one in str(trace).split("\n"))])

    def _paint(self, colour: str, text: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._coloured else text


def escape_controls(text: str) -> str:
    """Replace what would move the cursor, break the line or turn its direction."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def _word(value: object) -> str:
    """Write a value so that it cannot be mistaken for two, or for another field."""
    text = value if isinstance(value, str) else str(value)
    if text and text.isprintable() and not any(mark in text for mark in ' ="\\'):
        return text
    return json.dumps(text)


def _renderers(log_format: LogFormat, *, coloured: bool) -> list[structlog.typing.Processor]:
    if log_format == "json":
        # What is no JSON value is written as text: a log line is never lost over its fields.
        renderer: structlog.typing.Processor = structlog.processors.JSONRenderer(default=str)
    else:
        renderer = TextRenderer(coloured=coloured)
    return [structlog.processors.format_exc_info, renderer]
