"""The comparison as Markdown: one row per scenario, medians, ratios with their spread."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from bench.measure import Kind
from bench.peers.scenarios import Measure, Scenario, Target
from bench.results import Record, Spread, ratios

OURS: Final = "quantumqtt"
PEER: Final = "mosquitto"
_OLDER: Final = "pairs-q0"


def render(
    record: Record,
    scenarios: Sequence[Scenario],
    brokers: Sequence[str],
    facts: Mapping[str, object],
) -> str:
    """Render the whole page."""
    return "\n".join([*_head(record, facts), *_rows(record, scenarios, brokers), ""])


def _head(record: Record, facts: Mapping[str, object]) -> Iterator[str]:
    repeats = max((sample.repeat for sample in record.samples), default=-1) + 1
    absent = facts.get("not_run")
    yield f"# Peers, {facts.get('at')}, commit {facts.get('commit')}"
    yield ""
    yield f"`{facts.get('command')}` on {facts.get('cpus')} × {facts.get('cpu')}, kernel"
    yield f"{facts.get('kernel')}; load when it began: {facts.get('load_at_start')}."
    yield "Broker on CPU 0, generator on CPU 1, brokers alternating,"
    yield f"{repeats} repeats: medians, spread in brackets."
    yield "Every broker keeps its state in memory (ours: `--durability memory`), except"
    yield "`quantumqtt-strict`: the same, synced before every acknowledgement. Ratios are of the"
    yield "former, taken between neighbours in time, and are above 1 where ours is better."
    yield ""
    versions = facts.get("brokers")
    if isinstance(versions, Mapping):
        yield from (f"- {name}: `{version}`" for name, version in versions.items())
    if isinstance(absent, list) and absent:
        yield f"- not run, because not installed: {', '.join(map(str, absent))}"
    yield ""


def _rows(record: Record, scenarios: Sequence[Scenario], brokers: Sequence[str]) -> Iterator[str]:
    heads = (
        "Scenario",
        *brokers,
        "CPU or bytes, x",
        "throughput or p50, x",
        "must",
        "goal",
        "reached",
    )
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    for scenario in scenarios:
        cells = [cell(record, scenario, broker) for broker in brokers]
        if all(one == "–" for one in cells):
            continue
        target = scenario.target
        yield (
            "| "
            + " | ".join(
                (
                    scenario.title,
                    *cells,
                    spread_text(cost_ratio(record, scenario)),
                    spread_text(speed_ratio(record, scenario)),
                    f"{target.must:.3g} {target.measure}" if target else "–",
                    f"{target.goal:.3g}" if target else "–",
                    verdict(record, scenario),
                )
            )
            + " |"
        )


def cell(record: Record, scenario: Scenario, broker: str) -> str:
    """Say how one broker did."""
    error = record.error(scenario.name, broker)
    if error is not None:
        return f"failed: {error.splitlines()[0]}"

    def middle(name: str) -> float | None:
        spread = Spread.of(record.figures(scenario.name, broker, name).values())
        return None if spread is None else spread.middle

    text = "–"
    match scenario.load.kind:
        case Kind.MEMORY:
            held = middle("bytes_per_connection")
            return "–" if held is None else f"{held:,.0f} B"
        case Kind.READY | Kind.RESTART:
            ready = middle("ready_seconds")
            return "–" if ready is None else f"{ready:.3f} s"
        case Kind.LATENCY:
            p50, p99 = middle("p50_us"), middle("p99_us")
            if p50 is not None and p99 is not None:
                text = f"{p50:.0f} µs · p99 {p99:.0f} µs"
        case Kind.THROUGHPUT:
            rate, cost = middle("per_second"), middle("us_per_unit")
            if rate is not None and cost is not None:
                text = f"{_rate(rate)} · {cost:.3g} µs"
    broken = sum(record.figures(scenario.name, broker, "broken").values())
    lost = sum(record.figures(scenario.name, broker, "lost").values())
    marks = f" **broken: {broken:.0f}**" if broken else ""
    return text + marks + (f" (lost {lost:.0f})" if lost and not broken else "")


def cost_ratio(record: Record, scenario: Scenario) -> Spread | None:
    """Compare what it costs: the peer's figure over ours."""
    name = "bytes_per_connection" if scenario.load.kind is Kind.MEMORY else "us_per_unit"
    return ratios(
        record.figures(scenario.name, PEER, name), record.figures(scenario.name, OURS, name)
    )


def speed_ratio(record: Record, scenario: Scenario) -> Spread | None:
    """Compare how fast it is: our rate over the peer's, or its time over ours."""
    ours, peer = (
        {name: record.figures(scenario.name, broker, name) for name in _SPEEDS}
        for broker in (OURS, PEER)
    )
    if scenario.load.kind is Kind.THROUGHPUT:
        return ratios(ours["per_second"], peer["per_second"])
    name = "p50_us" if scenario.load.kind is Kind.LATENCY else "ready_seconds"
    return ratios(peer[name], ours[name])


_SPEEDS: Final = ("per_second", "p50_us", "ready_seconds")


def reached(record: Record, scenario: Scenario, target: Target) -> Spread | None:
    """Give the figure that a target is about."""
    match target.measure:
        case Measure.CPU:
            return cost_ratio(record, scenario)
        case Measure.LATENCY:
            return speed_ratio(record, scenario)
        case Measure.BYTES:
            return Spread.of(record.figures(scenario.name, OURS, "bytes_per_connection").values())
        case Measure.SECONDS:
            return Spread.of(record.figures(scenario.name, OURS, "ready_seconds").values())
        case Measure.OLDER_VERSION:
            older = record.figures(_OLDER, OURS, "us_per_unit")
            return ratios(older, record.figures(scenario.name, OURS, "us_per_unit"))


def verdict(record: Record, scenario: Scenario) -> str:
    """Say whether the row reaches its target."""
    target = scenario.target
    spread = None if target is None else reached(record, scenario, target)
    if target is None or spread is None:
        return "–"
    sign = -1 if target.smaller_is_better else 1
    if sign * spread.middle >= sign * target.goal:
        word = "goal"
    elif sign * spread.middle >= sign * target.must:
        word = "must"
    else:
        word = "**no**"
    return f"{word}: {spread.middle:.3g}"


def spread_text(spread: Spread | None) -> str:
    """Give the middle and how far the figures reach."""
    if spread is None:
        return "–"
    return f"{spread.middle:.3g} ({spread.low:.3g}–{spread.high:.3g})"


def _rate(per_second: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if per_second >= size:
            return f"{per_second / size:.3g} {unit}/s"
    return f"{per_second:.0f}/s"
