"""The bench harness without a broker: what is kept, what is resumed, what a table says."""

import json
from collections.abc import Mapping
from math import nan
from pathlib import Path

import pytest

from bench import brokers, counts, growth, rules, scale
from bench.measure import Kind, Load, figures_of
from bench.peers import table
from bench.peers.scenarios import QUICK, SCENARIOS, Measure, Scenario, Target, chosen, shortened
from bench.results import Record, Sample, Spread, ratios
from bench.subscriptions import length

SCENARIO = Scenario(
    name="s",
    title="a row",
    load=Load(arguments=("pairs",)),
    target=Target(Measure.CPU, 18, 40),
)


def sample(broker: str, repeat: int, **figures: float) -> Sample:
    return Sample("s", broker, repeat, {"broken": 0, "lost": 0, **figures})


def test_a_measurement_survives_an_interruption(tmp_path: Path) -> None:
    Record(tmp_path).add(sample("quantumqtt", 0, us_per_unit=0.5))
    again = Record(tmp_path)
    assert again.has(("s", "quantumqtt", 0))
    assert not again.has(("s", "quantumqtt", 1))
    assert again.figures("s", "quantumqtt", "us_per_unit") == {0: 0.5}


def test_a_failed_measurement_is_tried_again(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.add(Sample("s", "mosquitto", 0, error="it fell over"))
    assert not record.has(("s", "mosquitto", 0))
    assert record.error("s", "mosquitto") == "it fell over"
    record.add(sample("mosquitto", 0, us_per_unit=1.0))
    assert record.has(("s", "mosquitto", 0))
    assert record.error("s", "mosquitto") is None


def test_a_retried_measurement_counts_once_after_a_restart(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.add(Sample("s", "mosquitto", 0, error="it fell over"))
    record.add(sample("mosquitto", 0, us_per_unit=1.0))
    again = Record(tmp_path)
    assert again.error("s", "mosquitto") is None
    assert again.figures("s", "mosquitto", "us_per_unit") == {0: 1.0}


def test_what_is_no_number_is_not_kept(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.add(sample("quantumqtt", 0, us_per_unit=nan))
    assert record.figures("s", "quantumqtt", "us_per_unit") == {}
    json.loads((tmp_path / "runs.jsonl").read_text("utf-8"), parse_constant=pytest.fail)


def test_ratios_compare_neighbours_in_time() -> None:
    spread = ratios({0: 10.0, 1: 30.0, 2: 8.0}, {0: 1.0, 1: 2.0, 3: 4.0})
    assert spread == Spread(12.5, 10.0, 15.0)
    assert ratios({0: 1.0}, {}) is None


def test_the_table_says_what_was_reached(tmp_path: Path) -> None:
    record = Record(tmp_path)
    for repeat, (ours, peer) in enumerate([(0.5, 10.0), (0.5, 12.5), (0.5, 15.0)]):
        record.add(sample("quantumqtt", repeat, us_per_unit=ours, per_second=2e6))
        record.add(sample("mosquitto", repeat, us_per_unit=peer, per_second=1e5))
    facts = {"command": "python -m bench.peers", "not_run": ["flashmq"]}
    page = table.render(record, [SCENARIO], ["quantumqtt", "mosquitto"], facts)
    row = next(line for line in page.splitlines() if "a row" in line)
    assert "2 M/s · 0.5 µs" in row
    assert "100 k/s · 12.5 µs" in row
    assert "25 (20–30)" in row
    assert row.endswith("must: 25 |")
    assert "not run, because not installed: flashmq" in page


@pytest.mark.parametrize(
    ("target", "figures", "word"),
    [
        (Target(Measure.BYTES, 1536, 700), {"bytes_per_connection": 650.0}, "goal"),
        (Target(Measure.BYTES, 1536, 700), {"bytes_per_connection": 1000.0}, "must"),
        (Target(Measure.SECONDS, 1, 0.3), {"ready_seconds": 1.5}, "**no**"),
    ],
)
def test_where_less_is_better_less_is_better(
    tmp_path: Path, target: Target, figures: Mapping[str, float], word: str
) -> None:
    record = Record(tmp_path)
    record.add(sample("quantumqtt", 0, **figures))
    scenario = Scenario(name="s", title="a row", load=Load(kind=Kind.MEMORY), target=target)
    assert table.verdict(record, scenario).startswith(word)


def test_a_broken_promise_shows_in_its_cell(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.add(
        Sample("s", "mosquitto", 0, {"us_per_unit": 1, "per_second": 2, "broken": 7, "lost": 0})
    )
    assert "broken: 7" in table.cell(record, SCENARIO, "mosquitto")


def test_figures_are_those_of_the_report() -> None:
    report = {
        "units": 1000,
        "units_per_second": 500.0,
        "broker_us_per_unit": 2.5,
        "lost": 0,
        "violations": {"lost": 2},
        "faults": {"misrouted": 1},
        "generator": {"user_seconds": 0.001, "system_seconds": 0.001},
        "latency": {"p50_ns": 1_000, "p99_ns": 2_000, "p99_9_ns": 3_000},
    }
    throughput = figures_of(report, Kind.THROUGHPUT)
    assert throughput["per_second"] == 500
    assert throughput["us_per_unit"] == 2.5
    assert throughput["broken"] == 3
    assert throughput["generator_us_per_unit"] == pytest.approx(2.0)
    assert figures_of(report, Kind.LATENCY)["p99_us"] == 2


def test_scenarios_have_names_of_their_own() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    assert len(set(names)) == len(names)
    assert {scenario.name for scenario in chosen(list(QUICK))} == set(QUICK)
    assert len(chosen([])) < len(chosen(["all"])) == len(SCENARIOS)
    with pytest.raises(KeyError):
        chosen(["no-such-row"])


def test_a_quick_look_is_the_same_load_for_less_time() -> None:
    whole = chosen(["pairs-q0"])[0]
    short = shortened(whole)
    assert short.load.arguments != whole.load.arguments
    assert "0.5" in short.load.arguments
    assert short.target == whole.target


def test_mosquitto_is_given_a_fair_configuration(tmp_path: Path) -> None:
    command = brokers.by_name("mosquitto").command(1883, tmp_path, 1)
    told = Path(command[-1]).read_text("utf-8").splitlines()
    assert "set_tcp_nodelay true" in told
    assert "persistence false" in told
    assert {"max_inflight_messages 0", "max_queued_messages 0", "max_queued_bytes 0"} <= set(told)
    assert "listener 1883 127.0.0.1" in told


def test_ours_names_its_durability(tmp_path: Path) -> None:
    command = list(brokers.by_name("quantumqtt").command(1883, tmp_path, 2))
    assert command[command.index("--durability") + 1] == "memory"
    assert command[command.index("--shards") + 1] == "2"


def test_a_curve_is_flat_when_its_end_costs_what_its_beginning_does() -> None:
    start, same, dear = (1.0, Spread(1, 1, 1)), (9.0, Spread(1.4, 1, 2)), (9.0, Spread(2, 2, 2))
    assert growth.is_flat([start, same])
    assert not growth.is_flat([start, dear])
    assert not growth.is_flat([start])


def test_every_curve_loads_what_its_point_says() -> None:
    loads = {curve.name: curve.load(curve.points[-1]) for curve in growth.CURVES}
    assert loads["connections"].idle == 10_000
    assert loads["subscriptions"].subscriptions == 1_000_000
    assert loads["topics"].arguments[-2:] == ("--topics", "10000")
    assert loads["fan-out"].arguments[:3] == ("fan-out", "--subscribers", "1000")


def test_counters_are_read_from_what_tools_say() -> None:
    assert counts.read_callgrind("==1== Collected : 1234567\n") == 1_234_567
    assert counts.read_memcheck("==1==   total heap usage: 1,234 allocs, 1 frees") == 1234
    table_of_strace = "  1.00    0.1    2     77     sendto\n100.00    0.2    1   4321   3 total\n"
    assert counts.read_strace(table_of_strace) == 4321
    with pytest.raises(ValueError, match="nothing like"):
        counts.read_callgrind("segmentation fault")


@pytest.mark.parametrize(("value", "encoded"), [(0, "00"), (127, "7f"), (128, "8001")])
def test_remaining_lengths(value: int, encoded: str) -> None:
    assert length(value).hex() == encoded


def test_rules_are_compared_with_their_absence() -> None:
    page = rules.render({"pairs": {"without": 1_000.0, "with": 1_040.0}})
    assert "| pairs | 1,000 | 1,040 | 1.040 |" in page


def test_moments_of_many_are_rendered_with_their_spread_and_failures(tmp_path: Path) -> None:
    record = Record(tmp_path)
    for repeat, seconds in enumerate((1.0, 2.0, 4.0)):
        record.add(Sample("reconnect", "quantumqtt", repeat, {"warm_s": seconds}))
    record.add(Sample("sessions", "quantumqtt", 0, error="no memory"))
    page = scale.render(record, ["reconnect", "sessions"], {"commit": "c"}, 1.0)
    assert "| warm_s | 2.0 | 1.0 | 4.0 |" in page
    assert "## sessions, 100,000" in page
    assert "failed: no memory" in page
