"""What a run of the load generator has shown, for people and for programs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from quantumqtt import __version__
from quantumqtt._core import LoadReport, ProcessUsage
from quantumqtt.cli.bench_plan import RunPlan, Scenario

_SHARES: Final = {"p50_ns": 0.5, "p90_ns": 0.9, "p99_ns": 0.99, "p99_9_ns": 0.999}
_UNITS: Final = {
    Scenario.CONN: ("connects", "connect"),
    Scenario.IDLE: ("connections", "connect"),
    Scenario.PUB: ("messages", "message published"),
}
_UNIT_DEFAULT: Final = ("messages", "message delivered")


class Durations(Protocol):
    """Durations of one kind."""

    @property
    def count(self) -> int: ...  # noqa: D102
    @property
    def min_ns(self) -> int: ...  # noqa: D102
    @property
    def mean_ns(self) -> int: ...  # noqa: D102
    @property
    def max_ns(self) -> int: ...  # noqa: D102
    def percentile_ns(self, share: float) -> int: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Outcome:
    """A plan and what came of it."""

    plan: RunPlan
    report: LoadReport
    interrupted: bool

    @property
    def judged(self) -> bool:
        """A run that was cut short leaves messages under way, so it proves nothing."""
        return not self.report.was_cut_short

    @property
    def broken(self) -> Mapping[str, int]:
        """Every promise that was not kept, by name."""
        return {**self.report.violations, **self.report.faults} if self.judged else {}

    @property
    def units_per_second(self) -> float:
        """Deliveries, publishes or connects per second."""
        report = self.report
        idle = self.plan.wish.scenario is Scenario.IDLE
        seconds = report.connect_seconds if idle else report.seconds
        return report.units / seconds if seconds > 0 else 0.0

    def document(self) -> dict[str, object]:
        """Give everything, as one JSON object."""
        plan, wish, report = self.plan, self.plan.wish, self.report
        return {
            "quantumqtt": __version__,
            "scenario": wish.scenario.value,
            "host": wish.host,
            "port": wish.port,
            "version": plan.version,
            "qos": wish.qos,
            "publishers": plan.publishers,
            "subscribers": plan.subscribers,
            "topics": wish.topics,
            "payload_bytes": wish.payload_bytes,
            "window": plan.window,
            "rate": plan.rate,
            "clean": plan.clean,
            "single_writes": wish.single_writes,
            "threads": wish.threads,
            "connected": report.connected,
            "connect_seconds": report.connect_seconds,
            "seconds": report.seconds,
            "units": report.units,
            "units_per_second": self.units_per_second,
            "sent": report.sent,
            "acknowledged": report.acknowledged,
            "expected": report.expected,
            "received": report.received,
            "lost": report.lost,
            "duplicated": report.duplicated,
            "out_of_order": report.out_of_order,
            "foreign": report.foreign,
            "written_off": report.written_off,
            "cut_short": report.was_cut_short,
            "interrupted": self.interrupted,
            "judged": self.judged,
            "violations": dict(report.violations) if self.judged else {},
            "faults": dict(report.faults),
            "first_fault": report.first_fault,
            "latency": durations_document(report.latency),
            "acknowledge_latency": durations_document(report.acknowledge_latency),
            "connect_latency": durations_document(report.connect_latency),
            "generator": _usage(report.generator),
            "broker_before": _usage(report.broker_before),
            "broker_connecting": _usage(report.broker_connecting),
            "broker_measuring": _usage(report.broker_measuring),
            "broker_us_per_unit": report.broker_us_per_unit,
            "broker_bytes_per_connection": report.broker_bytes_per_connection,
        }

    def lines(self) -> Iterator[tuple[str, str]]:
        """Give label and text of every line a person may want to read."""
        report, scenario = self.report, self.plan.wish.scenario
        many, one = _UNITS.get(scenario, _UNIT_DEFAULT)
        when = report.connect_seconds if scenario is Scenario.IDLE else report.seconds
        yield (
            "throughput",
            f"{self.units_per_second:,.0f} {many}/s ({report.units:,} in {when:.2f} s)",
        )
        if scenario is not Scenario.CONN:
            yield "connections", f"{report.connected:,} in {report.connect_seconds:.2f} s"
        for label, durations in (
            ("latency", report.latency),
            ("acknowledged", report.acknowledge_latency),
            ("connect", report.connect_latency),
        ):
            if durations.count:
                yield label, durations_text(durations)
        yield "verdict", self.verdict()
        if report.broker_us_per_unit is not None:
            yield "broker CPU", f"{report.broker_us_per_unit:.3f} µs per {one}"
        if report.broker_bytes_per_connection is not None:
            yield "broker memory", f"{report.broker_bytes_per_connection:,.0f} bytes per connection"
        used = report.generator.user_seconds + report.generator.system_seconds
        if report.units and report.seconds > 0 and scenario is not Scenario.IDLE:
            yield "generator CPU", f"{used * 1e6 / report.units:.3f} µs per {one}"

    def verdict(self) -> str:
        """Say in one line whether the broker kept its promises."""
        report, scenario = self.report, self.plan.wish.scenario
        if not self.judged:
            return "not judged: the run was cut short, with messages still under way"
        if self.broken:
            named = ", ".join(f"{name} {count:,}" for name, count in self.broken.items())
            first = f" (first: {report.first_fault})" if report.first_fault else ""
            return f"BROKEN: {named}{first}"
        if scenario in (Scenario.CONN, Scenario.IDLE):
            return "kept: every client connected and stayed"
        if scenario is Scenario.SUB:
            return "not checked: the publishers are not ours"
        if scenario is Scenario.PUB:
            every = "acknowledged" if self.plan.wish.qos else "read"
            return f"kept: the broker has {every} every message"
        losses = f"{report.lost:,} lost, which QoS 0 allows" if report.lost else "nothing lost"
        repeats = (
            f"{report.duplicated:,} twice, which QoS 1 allows"
            if report.duplicated
            else "nothing twice"
        )
        return f"kept: {losses}, {repeats}, everything in order"


def durations_document(durations: Durations) -> dict[str, int] | None:
    """Give the figures of one kind of duration; None when none was counted."""
    if not durations.count:
        return None
    shares = {name: durations.percentile_ns(share) for name, share in _SHARES.items()}
    return {
        "count": durations.count,
        "min_ns": durations.min_ns,
        "mean_ns": durations.mean_ns,
        **shares,
        "max_ns": durations.max_ns,
    }


def durations_text(durations: Durations) -> str:
    """Give the percentiles people look for."""
    shown = {
        "p50": durations.percentile_ns(0.5),
        "p90": durations.percentile_ns(0.9),
        "p99": durations.percentile_ns(0.99),
        "p99.9": durations.percentile_ns(0.999),
        "max": durations.max_ns,
    }
    return "  ".join(f"{name} {time_text(value)}" for name, value in shown.items())


def time_text(nanoseconds: int) -> str:
    """Give a duration in the unit that needs the fewest digits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds} ns"


def _usage(usage: ProcessUsage | None) -> dict[str, float] | None:
    if usage is None:
        return None
    return {
        "user_seconds": usage.user_seconds,
        "system_seconds": usage.system_seconds,
        "voluntary_switches": usage.voluntary_switches,
        "involuntary_switches": usage.involuntary_switches,
        "resident_bytes": usage.resident_bytes,
        "anonymous_bytes": usage.anonymous_bytes,
    }
