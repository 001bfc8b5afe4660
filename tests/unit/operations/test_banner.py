"""The words at the start: where, what is promised, what to try."""

import io
from dataclasses import replace

import pytest

from quantumqtt.operations.banner import Banner, Door

LOOPBACK = Door("tcp://127.0.0.1:40001", "127.0.0.1", 40_001, allow_anonymous=True)
BANNER = Banner("0.1.0", [LOOPBACK], "memory", "http://127.0.0.1:8080")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(banner: Banner, stream: io.StringIO | None = None) -> str:
    stream = stream or io.StringIO()
    banner.show(stream)
    return stream.getvalue()


def test_it_says_where_it_listens_and_what_is_not_on_disk() -> None:
    text = shown(BANNER)
    assert "tcp://127.0.0.1:40001" in text
    assert "http://127.0.0.1:8080" in text
    assert "acknowledgements are not on disk" in text


def test_three_things_to_try_use_the_real_port_and_are_never_wrapped() -> None:
    lines = shown(BANNER).splitlines()
    assert any("mosquitto_sub -h 127.0.0.1 -p 40001 -t 'demo/#' -v" in line for line in lines)
    assert any("mosquitto_pub -h 127.0.0.1 -p 40001 -t demo/hello" in line for line in lines)
    assert any("http://127.0.0.1:8080/" in line for line in lines)


def test_a_wildcard_address_is_tried_on_loopback() -> None:
    everywhere = Door("tcp://0.0.0.0:1883", "0.0.0.0", 1883, allow_anonymous=True)
    assert "-h 127.0.0.1 -p 1883" in shown(replace(BANNER, doors=[everywhere]))


def test_a_closed_door_is_named_and_its_remedy_is_offered() -> None:
    closed = replace(LOOPBACK, allow_anonymous=False)
    text = shown(replace(BANNER, doors=[closed]))
    assert "(credentials required)" in text
    assert "--allow-anonymous" in text
    assert "mosquitto_pub" not in text


def test_a_missing_admin_endpoint_is_offered() -> None:
    text = shown(replace(BANNER, admin_url=None))
    assert "quantumqtt[server]" in text


def test_colours_only_on_a_terminal_that_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in shown(BANNER)
    assert "\x1b" in shown(BANNER, Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown(BANNER, Terminal())
