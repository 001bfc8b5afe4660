"""Metrics: names, units, labels, and values taken from one snapshot."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from quantumqtt.api.metrics import metrics_registry, render_metrics
from quantumqtt.node import NodeState
from quantumqtt.operations import JobReport
from tests.harness.fake_node import FakeStatistics
from tests.unit.api.broker_stand_in import FACTS, BrokerStandIn

SAMPLE = re.compile(r"^(quantumqtt_\w+)(\{[^}]*\})? (\S+)$", re.MULTILINE)


def scraped(broker: BrokerStandIn | None = None) -> dict[str, float]:
    """Scrape and read back; keys are names with their labels."""
    body, _ = render_metrics(metrics_registry(broker or BrokerStandIn(), FACTS), "")
    return {name + labels: float(value) for name, labels, value in SAMPLE.findall(body.decode())}


@pytest.mark.parametrize(
    ("sample", "value"),
    [
        ("quantumqtt_uptime_seconds", 61.5),
        ("quantumqtt_connections", 3),
        ("quantumqtt_connections_opened_total", 10),
        ("quantumqtt_connections_refused_full_total", 8),
        ("quantumqtt_sessions_stored", 2),
        ("quantumqtt_subscriptions", 5),
        ('quantumqtt_publishes_received_total{qos="0"}', 100),
        ('quantumqtt_publishes_received_total{qos="2"}', 3),
        ('quantumqtt_publishes_sent_total{qos="1"}', 40),
        ("quantumqtt_network_received_bytes_total", 1_000),
        ("quantumqtt_network_sent_bytes_total", 2_000),
        ("quantumqtt_entries_applied_total", 7),
        ("quantumqtt_commands_applied_total", 70),
        ("quantumqtt_events_merged_total", 9),
        ("quantumqtt_shards", 2),
        ('quantumqtt_drops_total{reason="slow_subscriber"}', 4),
        ('quantumqtt_drops_total{reason="packet_too_large"}', 1),
        ('quantumqtt_closes_total{reason="keep_alive_timeout"}', 1),
        ('quantumqtt_refusals_total{reason="not_authorized"}', 2),
        ('quantumqtt_durability{durability="memory"}', 1),
        ("quantumqtt_ready", 1),
    ],
)
def test_a_sample_has_the_value_of_the_snapshot(sample: str, value: float) -> None:
    assert scraped()[sample] == value


def test_the_build_is_told() -> None:
    (build,) = [name for name in scraped() if name.startswith("quantumqtt_build_info")]
    assert 'version="0.1.0"' in build
    assert 'native_profile="release"' in build


def test_every_family_is_well_formed_and_documented() -> None:
    body, _ = render_metrics(metrics_registry(BrokerStandIn(), FACTS), "")
    families = [
        family
        for family in text_string_to_metric_families(body.decode())
        if family.name.startswith("quantumqtt_")
    ]
    assert len(families) >= 15
    assert all(family.documentation.endswith(".") for family in families)
    for family in families:
        assert family.type in {"counter", "gauge"}
        if family.type == "counter":
            assert {sample.name for sample in family.samples} <= {f"{family.name}_total"}


def test_drops_closes_and_refusals_always_carry_a_reason() -> None:
    for name in scraped():
        if name.startswith(("quantumqtt_drops", "quantumqtt_closes", "quantumqtt_refusals")):
            assert "{reason=" in name


def test_a_label_with_odd_characters_does_not_break_the_page() -> None:
    broker = BrokerStandIn(snapshot=FakeStatistics(drops_total={'a"b\\c\nd': 1}))
    body, _ = render_metrics(metrics_registry(broker, FACTS), "")
    drops = [
        sample
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
        if sample.name == "quantumqtt_drops_total"
    ]
    assert [sample.labels["reason"] for sample in drops] == ['a"b\\c\nd']


def test_a_broker_that_is_gone_still_says_that_it_is_not_ready() -> None:
    samples = scraped(BrokerStandIn(state=NodeState.STOPPED, snapshot=None))
    assert samples["quantumqtt_ready"] == 0
    assert "quantumqtt_connections" not in samples


def test_jobs_tell_how_far_behind_they_are() -> None:
    jobs = [
        JobReport(name="land", state="working", lag=7, rows_per_s=12.5, batch_s=0.5, rows_total=90),
        JobReport(name="audit", restarts_total=3),
    ]
    body, _ = render_metrics(metrics_registry(BrokerStandIn(), FACTS, lambda: jobs), "")
    told = {name + labels: float(value) for name, labels, value in SAMPLE.findall(body.decode())}
    assert told['quantumqtt_pipeline_lag_rows{job="land"}'] == 7
    assert 'quantumqtt_pipeline_lag_rows{job="audit"}' not in told, "it has not said anything"
    assert told['quantumqtt_pipeline_rows_per_second{job="land"}'] == 12.5
    assert told['quantumqtt_pipeline_batch_seconds{job="land"}'] == 0.5
    assert told['quantumqtt_pipeline_rows_total{job="land"}'] == 90
    assert told['quantumqtt_pipeline_restarts_total{job="audit"}'] == 3
    assert told['quantumqtt_pipeline_state{job="land",state="working"}'] == 1
    assert told['quantumqtt_pipeline_state{job="audit",state="starting"}'] == 1
    assert not any(name.startswith("quantumqtt_pipeline") for name in scraped())


def test_each_scrape_takes_a_new_snapshot() -> None:
    broker = BrokerStandIn()
    registry = metrics_registry(broker, FACTS)
    first, _ = render_metrics(registry, "")
    broker.snapshot = FakeStatistics(connections=77)
    second, _ = render_metrics(registry, "")
    assert b"quantumqtt_connections 3.0" in first
    assert b"quantumqtt_connections 77.0" in second
