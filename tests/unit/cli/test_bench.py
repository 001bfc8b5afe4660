"""`quantumqtt bench` without a broker: words, defaults, refusals, verdicts."""

import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from quantumqtt.cli.bench import RateMeter, exit_code
from quantumqtt.cli.bench_plan import (
    DURATION_S_DEFAULT,
    LATENCY_RATE_DEFAULT,
    WINDOW_DEFAULT,
    WINDOW_QOS0_DEFAULT,
    RunPlan,
    Scenario,
    Wish,
    in_words_of_options,
    plan_run,
)
from quantumqtt.cli.bench_report import Outcome, durations_text, time_text
from quantumqtt.cli.failures import ExitCode
from quantumqtt.cli.main import app
from quantumqtt.errors import ConfigError
from tests.harness.ports import free_port

if TYPE_CHECKING:
    from quantumqtt._core import LoadReport


def plan(scenario: Scenario, **said: object) -> RunPlan:
    return plan_run(Wish(scenario=scenario, **said))  # type: ignore[arg-type]


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        app(["bench", *arguments], prog_name="quantumqtt")
    code = ended.value.code
    assert isinstance(code, int)
    return code


@pytest.mark.parametrize(
    ("scenario", "clients"),
    [
        (Scenario.CONN, (7, 0)),
        (Scenario.IDLE, (7, 0)),
        (Scenario.PUB, (7, 0)),
        (Scenario.SUB, (0, 7)),
        (Scenario.PAIRS, (7, 7)),
        (Scenario.LATENCY, (7, 7)),
        (Scenario.FAN_IN, (7, 1)),
        (Scenario.FAN_OUT, (7, 50)),
    ],
)
def test_count_means_the_clients_a_scenario_has(
    scenario: Scenario, clients: tuple[int, int]
) -> None:
    made = plan(scenario, count=7)
    assert (made.publishers, made.subscribers) == clients
    made.native()


def test_every_run_is_bounded() -> None:
    assert plan(Scenario.PAIRS).duration_s == DURATION_S_DEFAULT
    assert plan(Scenario.IDLE, limit=5).duration_s == DURATION_S_DEFAULT
    assert plan(Scenario.CONN).duration_s == 0, "every client connects once"
    limited = plan(Scenario.PAIRS, limit=95, count=10)
    assert (limited.duration_s, limited.messages_each) == (0, 10), "rounded up, and no time limit"


def test_the_window_follows_the_qos() -> None:
    assert plan(Scenario.PAIRS).window == WINDOW_QOS0_DEFAULT
    assert plan(Scenario.PAIRS, qos=1).window == WINDOW_DEFAULT
    assert plan(Scenario.PAIRS, window=0).window == 0
    assert plan(Scenario.CONN).window == 0


def test_the_interval_of_each_publisher_becomes_the_rate_of_all() -> None:
    assert plan(Scenario.PUB, count=100, message_interval_ms=10.0).rate == 10_000
    assert plan(Scenario.LATENCY).rate == LATENCY_RATE_DEFAULT
    assert plan(Scenario.PAIRS).rate is None


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"rate": 5.0, "message_interval_ms": 10.0}, "--rate"),
        ({"subscribers": 3}, "--subscribers"),
        ({"version": "6"}, "-V/--version"),
        ({"clean": "maybe"}, "-C/--clean"),
        ({"retain": "perhaps"}, "-r/--retain"),
    ],
)
def test_a_contradiction_is_named_with_its_remedy(said: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as refused:
        plan(Scenario.PAIRS, **said)
    assert refused.value.hint


@pytest.mark.parametrize("scenario", [Scenario.CONN, Scenario.IDLE, Scenario.SUB])
def test_who_does_not_publish_has_no_rate(scenario: Scenario) -> None:
    with pytest.raises(ConfigError, match="rate"):
        plan(scenario, rate=5.0)


def test_what_the_generator_cannot_take_is_a_plain_error() -> None:
    with pytest.raises(ConfigError, match="source_addresses"):
        plan(Scenario.PAIRS, source_addresses="not-an-address").native()


def test_a_field_of_the_generator_is_called_by_its_option() -> None:
    told = in_words_of_options(
        ConfigError("payload_bytes: checked payloads have at least 24 bytes")
    )
    assert str(told).startswith("-s/--size: ")
    assert told.hint
    other = ConfigError("cannot read the figures of process 1")
    assert in_words_of_options(other) is other


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pairs", "-s", "10"), "-s/--size"),
        (("pairs", "-t", "same/for/all"), "-t/--topic"),
        (("idle", "-c", "2000000"), "-c/--count"),
        (("pairs", "--threads", "100000"), "--threads"),
        (("pairs", "-q", "3"), "--qos"),
        (("pears",), "pairs"),
    ],
)
def test_what_cannot_work_ends_with_2_and_names_the_option(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err


def test_a_broker_that_is_not_there_is_named_with_a_remedy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    port = str(free_port())
    assert run("pairs", "-p", port, "--duration", "1") == ExitCode.USAGE
    said = capsys.readouterr().err
    assert f"127.0.0.1:{port}" in said
    assert "is a broker listening there" in said


def test_a_broker_that_never_answers_does_not_hold_us(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = str(silent.getsockname()[1])
        assert run("pairs", "-p", port, "-c", "1", "--patience", "0.2") == ExitCode.USAGE
    assert "connect_timeout" in capsys.readouterr().err


@dataclass(frozen=True, slots=True)
class FakeDurations:
    """A hundred durations of 1 to 100 µs."""

    count: int = 100
    min_ns: int = 1_000
    mean_ns: int = 50_500
    max_ns: int = 100_000

    def percentile_ns(self, share: float) -> int:
        return round(share * self.max_ns)


@dataclass(frozen=True, slots=True)
class FakeReport:
    """What a run of the generator looks like when all is well."""

    units: int = 100
    seconds: float = 2.0
    connect_seconds: float = 0.5
    connected: int = 20
    lost: int = 0
    duplicated: int = 0
    was_cut_short: bool = False
    violations: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    first_fault: str | None = None


def outcome(
    report: FakeReport, *, scenario: Scenario = Scenario.PAIRS, interrupted: bool = False
) -> Outcome:
    return Outcome(plan(scenario), cast("LoadReport", report), interrupted=interrupted)


def test_a_kept_promise_ends_with_0() -> None:
    kept = outcome(FakeReport())
    assert exit_code(kept) is ExitCode.OK
    assert kept.verdict() == "kept: nothing lost, nothing twice, everything in order"
    assert kept.units_per_second == 50


def test_a_broken_promise_ends_with_3_and_is_named() -> None:
    for report in (
        FakeReport(violations={"lost": 3}),
        FakeReport(faults={"altered_payload": 3}, first_fault="altered_payload: 64 bytes"),
    ):
        broken = outcome(report)
        assert exit_code(broken) is ExitCode.VIOLATED
        assert broken.verdict().startswith("BROKEN: ")
        assert "3" in broken.verdict()


def test_what_qos_allows_is_told_and_is_no_violation() -> None:
    allowed = outcome(FakeReport(lost=1_234))
    assert exit_code(allowed) is ExitCode.OK
    assert "1,234 lost, which QoS 0 allows" in allowed.verdict()


def test_a_run_that_was_cut_short_judges_nobody() -> None:
    short = FakeReport(was_cut_short=True, violations={"lost": 3})
    assert exit_code(outcome(short)) is ExitCode.FAILED
    assert exit_code(outcome(short, interrupted=True)) is ExitCode.INTERRUPTED
    assert outcome(short).verdict().startswith("not judged")


def test_what_is_not_checked_is_not_claimed() -> None:
    assert outcome(FakeReport(), scenario=Scenario.SUB).verdict().startswith("not checked")
    assert "read every message" in outcome(FakeReport(), scenario=Scenario.PUB).verdict()


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [(999, "999 ns"), (1_500, "1.5 µs"), (2_000_000, "2 ms"), (3_210_000_000, "3.21 s")],
)
def test_times_are_short(nanoseconds: int, text: str) -> None:
    assert time_text(nanoseconds) == text


def test_percentiles_are_named() -> None:
    assert durations_text(FakeDurations()).startswith("p50 50 µs  p90 90 µs  p99 99 µs")


def test_the_rate_is_that_of_the_last_moments() -> None:
    meter = RateMeter()
    assert meter.update(1.0, 1_000) == 1_000
    assert meter.update(1.2, 9_000) == 1_000, "too soon to say"
    assert meter.update(2.0, 3_000) == 2_000
    assert meter.update(0.1, 10) == 0, "a new stage begins"
