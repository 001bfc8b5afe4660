"""Logs: one line per record, whatever a client sends, and no secrets."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantumqtt.config import LogFormat
from quantumqtt.operations.logs import (
    LIBRARY_LOGGERS,
    ROOT_LOGGER,
    configure_logs,
    escape_controls,
    set_log_level,
)

LOGGER = logging.getLogger("quantumqtt.test")


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in (ROOT_LOGGER, *LIBRARY_LOGGERS)]
    before = [(logger, logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, handlers, propagate, level in before:
        logger.handlers = handlers
        logger.propagate = propagate
        logger.setLevel(level)


def logged(log_format: LogFormat, message: str, **fields: object) -> str:
    stream = io.StringIO()
    configure_logs(level="info", log_format=log_format, stream=stream)
    LOGGER.info(message, extra=fields)
    return stream.getvalue()


def test_text_has_time_level_message_and_fields() -> None:
    line = logged("text", "connection refused", client_id="c1", count=3)
    assert "connection refused" in line
    assert "INFO" in line
    assert "client_id=c1" in line
    assert "count=3" in line
    assert "\x1b" not in line, "a stream that is no terminal gets no colours"


def test_json_is_one_object_with_the_same_fields() -> None:
    record = json.loads(logged("json", "connection refused", client_id="c1", count=3))
    assert record["event"] == "connection refused"
    assert record["level"] == "info"
    assert record["logger"] == "quantumqtt.test"
    assert record["client_id"] == "c1"
    assert record["count"] == 3
    assert record["timestamp"].endswith("Z")


@pytest.mark.hardening("log-lines")
@pytest.mark.parametrize("log_format", ["text", "json"])
@given(hostile=st.text(), name=st.sampled_from(["client_id", "topic", "reason"]))
def test_no_text_breaks_a_line_or_moves_a_cursor(
    log_format: LogFormat, hostile: str, name: str
) -> None:
    line = logged(log_format, "connection refused", **{name: hostile})
    assert line.endswith("\n")
    assert line[:-1].isprintable()


@pytest.mark.hardening("log-lines")
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_usual_attacks_on_a_log_stay_visible_and_harmless(log_format: LogFormat) -> None:
    line = logged(log_format, "refused", client_id="a\r\n2026 [error] forged\x1b[2J\u2028\u202e")
    assert len(line.splitlines()) == 1
    assert "forged" in line
    assert "\\r\\n" in line


def test_a_value_cannot_pretend_to_be_another_field() -> None:
    line = logged("text", "refused", client_id="x user=admin", user="guest")
    assert 'client_id="x user=admin"' in line


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("name", ["password", "payload", "api_token", "client_secret"])
def test_a_field_named_like_a_secret_is_blanked(log_format: LogFormat, name: str) -> None:
    line = logged(log_format, "refused", **{name: "canary-7f3a"})
    assert "canary-7f3a" not in line
    assert "[redacted]" in line


def test_colours_only_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    configure_logs(level="info", log_format="text", stream=terminal)
    LOGGER.info("hello", extra={"client_id": "a\x1b[31m"})
    assert "\x1b[32m" in terminal.getvalue()
    assert "\x1b[31m" not in terminal.getvalue()


def test_a_trace_follows_its_line_and_is_harmless_too() -> None:
    stream = io.StringIO()
    configure_logs(level="info", log_format="text", stream=stream)
    try:
        raise RuntimeError("broken\x1b[2J")
    except RuntimeError:
        LOGGER.exception("a callback failed")
    lines = stream.getvalue().splitlines()
    assert "a callback failed" in lines[0]
    assert lines[-1] == "RuntimeError: broken\\x1b[2J"


def test_an_exception_is_logged_with_its_trace() -> None:
    stream = io.StringIO()
    configure_logs(level="info", log_format="json", stream=stream)
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        LOGGER.exception("a callback failed")
    record = json.loads(stream.getvalue())
    assert "RuntimeError: broken" in record["exception"]
    assert record["level"] == "error"


def test_the_level_can_change_while_running() -> None:
    stream = io.StringIO()
    configure_logs(level="warning", log_format="json", stream=stream)
    LOGGER.info("before")
    set_log_level("info")
    LOGGER.info("after")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["after"]


@pytest.mark.parametrize("name", LIBRARY_LOGGERS)
def test_complaints_of_libraries_have_our_form_and_their_chatter_is_left_out(name: str) -> None:
    stream = io.StringIO()
    configure_logs(level="debug", log_format="json", stream=stream)
    logging.getLogger(f"{name}.error").info("started")
    logging.getLogger(f"{name}.error").warning("invalid request")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == [
        "invalid request"
    ]


def test_configuring_twice_does_not_write_twice() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure_logs(level="info", log_format="json", stream=first)
    configure_logs(level="info", log_format="json", stream=second)
    LOGGER.info("once")
    assert first.getvalue() == ""
    assert len(second.getvalue().splitlines()) == 1


@given(st.text())
def test_escaping_is_printable_and_leaves_printable_text_alone(text: str) -> None:
    escaped = escape_controls(text)
    assert escaped.isprintable()
    if text.isprintable():
        assert escaped == text
