"""The ready line is a contract with programs that wait for it."""

import json

import pytest

from quantumqtt.cli.ready import ReadyLine
from quantumqtt.node import Listener

LISTENERS = [
    Listener("tcp-1", "127.0.0.1", 1883, allow_anonymous=True),
    Listener("tcp-2", "::1", 1884, allow_anonymous=True),
]


@pytest.mark.parametrize(
    ("admin", "line"),
    [
        (
            "http://127.0.0.1:8080",
            "ready tcp://127.0.0.1:1883 tcp://[::1]:1884 admin http://127.0.0.1:8080",
        ),
        (None, "ready tcp://127.0.0.1:1883 tcp://[::1]:1884 admin off"),
    ],
)
def test_text(admin: str | None, line: str) -> None:
    assert ReadyLine(LISTENERS, admin, None, "memory", 7, "0.1.0").text() == line


def test_text_names_the_log_where_it_is_served() -> None:
    line = ReadyLine(LISTENERS[:1], None, "grpc://127.0.0.1:8815", "strict", 7, "0.1.0").text()
    assert line == "ready tcp://127.0.0.1:1883 admin off log grpc://127.0.0.1:8815"


def test_json() -> None:
    line = ReadyLine(LISTENERS, None, None, "memory", 7, "0.1.0").json()
    assert "\n" not in line
    assert json.loads(line) == {
        "ready": True,
        "listeners": ["tcp://127.0.0.1:1883", "tcp://[::1]:1884"],
        "admin": None,
        "log": None,
        "durability": "memory",
        "pid": 7,
        "version": "0.1.0",
    }
