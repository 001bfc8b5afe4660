"""The log about clients: useful by default, bounded always."""

import logging

import pytest

from quantumqtt.node.narrator import LINES_PER_SECOND_MAX, Narrator
from tests.harness.fake_node import FakeEvent

LOGGER = "quantumqtt.node.narrator"


class HandClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def refused(count: int = 1) -> FakeEvent:
    return FakeEvent(
        "connection_refused",
        client_id="c1",
        peer="127.0.0.1:9",
        reason="not_authorized",
        count=count,
    )


def test_a_refusal_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger=LOGGER):
        Narrator().on_events([refused()])
    (record,) = caplog.records
    assert record.getMessage() == "connection refused"
    assert record.__dict__["reason"] == "not_authorized"
    assert record.__dict__["client_id"] == "c1"


def test_coming_and_going_is_for_debugging(caplog: pytest.LogCaptureFixture) -> None:
    events = [FakeEvent("session_opened"), FakeEvent("session_closed"), FakeEvent("new_kind")]
    with caplog.at_level(logging.INFO, logger=LOGGER):
        Narrator().on_events(events)
    assert not caplog.records
    with caplog.at_level(logging.DEBUG, logger=LOGGER):
        Narrator().on_events(events)
    assert [record.getMessage() for record in caplog.records] == ["client connected", "client left"]


def test_a_flood_is_cut_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    narrator = Narrator(clock=clock)
    with caplog.at_level(logging.INFO, logger=LOGGER):
        narrator.on_events([refused(count=2) for _ in range(LINES_PER_SECOND_MAX + 7)])
        assert len(caplog.records) == LINES_PER_SECOND_MAX
        clock.now += 1.0
        narrator.on_events([refused(), refused()])
    assert len(caplog.records) == LINES_PER_SECOND_MAX + 2
    assert caplog.records[-2].__dict__["left_out_before"] == 14
    assert "left_out_before" not in caplog.records[-1].__dict__


def test_a_failed_shard_is_told_even_in_a_flood(caplog: pytest.LogCaptureFixture) -> None:
    narrator = Narrator(clock=HandClock())
    with caplog.at_level(logging.INFO, logger=LOGGER):
        narrator.on_events([refused() for _ in range(LINES_PER_SECOND_MAX + 1)])
        narrator.on_events([FakeEvent("shard_failed", reason="panic")])
    assert caplog.records[-1].levelno == logging.ERROR
