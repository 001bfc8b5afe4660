"""`python -m bench.growth [CURVE…]`: what grows with what, and which costs stay flat.

Each curve turns one quantity up and leaves the rest alone. Measured like the peers, written beside
them; an interrupted run goes on.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import plots
from bench.brokers import Broker
from bench.generator import raise_descriptor_limit
from bench.machine import facts
from bench.measure import Kind, Load
from bench.results import Record, Spread, folder_of_today
from bench.session import Task, choose_brokers, measure_all

_DURATION: Final = ("--duration", "1.5", "-V", "4")
_PAIRS: Final = ("pairs", "-c", "10", *_DURATION)
# A curve is called flat when its last point costs at most this much more than its first.
_FLAT: Final = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One quantity turned up."""

    name: str
    title: str
    x: str
    points: tuple[int, ...]
    load: Callable[[int], Load]
    figure: str = "us_per_unit"
    y: str = "broker µs per delivery"
    brokers: tuple[str, ...] = ("quantumqtt", "mosquitto")
    runs_of: str = ""
    """The curve whose runs this one shows another figure of; without one it has its own."""


CURVES: Final = (
    Curve(
        name="connections",
        title="a message beside idle connections",
        x="idle connections",
        points=(0, 100, 1_000, 5_000, 10_000),
        load=lambda count: Load(arguments=_PAIRS, idle=count),
    ),
    Curve(
        name="memory",
        title="memory per idle connection (slope between N and 2N)",
        x="N",
        points=(500, 2_000, 8_000),
        load=lambda count: Load(
            kind=Kind.MEMORY,
            arguments=("idle", "--duration", "0.2", "-V", "4"),
            connections=count,
        ),
        figure="bytes_per_connection",
        y="bytes",
    ),
    Curve(
        name="subscriptions",
        title="a message beside subscriptions of others",
        x="subscriptions",
        points=(0, 1_000, 10_000, 100_000, 1_000_000),
        load=lambda count: Load(arguments=_PAIRS, subscriptions=count),
    ),
    Curve(
        name="topics",
        title="a message among so many topics, one filter with a wildcard per subscriber",
        x="topics in use",
        points=(10, 100, 1_000, 10_000, 100_000),
        load=lambda count: Load(arguments=(*_PAIRS, "--topics", str(count // 10))),
    ),
    Curve(
        name="fan-out",
        title="a delivery, by subscribers of the topic",
        x="subscribers",
        points=(1, 10, 50, 200, 1_000),
        load=lambda count: Load(arguments=("fan-out", "--subscribers", str(count), *_DURATION)),
    ),
)


def main() -> int:
    """Measure the curves of what everybody can do."""
    return measure_curves(CURVES, "growth", __doc__ or "")


def measure_curves(curves: Sequence[Curve], name: str, description: str, remark: str = "") -> int:
    """Read the arguments and measure the curves they choose; write table and plot."""
    asked = _arguments(description, [curve.name for curve in curves])
    curves = [curve for curve in curves if not asked.curves or curve.name in asked.curves]
    wanted = asked.broker or sorted({broker for curve in curves for broker in curve.brokers})
    present, absent = choose_brokers(wanted)
    folder = asked.into or folder_of_today() / name
    raise_descriptor_limit()
    record = Record(folder)
    known = facts(present, absent, ["python", "-m", f"bench.{name}", *sys.argv[1:]])
    record.write_machine(known)
    tasks = {
        _key(curve, x): Task(
            _key(curve, x), curve.load(x), [one for one in present if one.name in curve.brokers]
        )
        for curve in curves
        for x in curve.points
        if not asked.most or x <= asked.most
    }
    try:
        measure_all(record, list(tasks.values()), asked.repeats)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
    page = render(record, curves, present, {**known, "remark": remark})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text(page, "utf-8")
    _plot(folder / f"{name}.png", curves, record, present)
    print(page)
    print(f"written to {folder}", file=sys.stderr)
    return 0


def _arguments(description: str, names: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("curves", nargs="*", metavar="CURVE", help=", ".join(names))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--broker", action="append", default=[], help="only these; repeatable")
    parser.add_argument("--most", type=int, default=0, help="leave points beyond this out")
    parser.add_argument("--into", type=Path, help="folder; default: bench/results/DATE-COMMIT")
    asked = parser.parse_args()
    if unknown := [name for name in asked.curves if name not in names]:
        parser.error(f"no curve named {', '.join(unknown)}; there are {', '.join(names)}")
    return asked


def _key(curve: Curve, x: int) -> str:
    return f"{curve.runs_of or curve.name}={x}"


def points(record: Record, curve: Curve, broker: str) -> list[tuple[float, Spread]]:
    """Give the points of a curve that were measured."""
    found = []
    for x in curve.points:
        spread = Spread.of(record.figures(_key(curve, x), broker, curve.figure).values())
        if spread is not None:
            found.append((float(x), spread))
    return found


def is_flat(measured: Sequence[tuple[float, Spread]]) -> bool:
    """Tell whether the last point costs about as much as the first."""
    return len(measured) > 1 and measured[-1][1].middle <= _FLAT * measured[0][1].middle


def render(
    record: Record,
    curves: Sequence[Curve],
    brokers: Sequence[Broker],
    known: Mapping[str, object],
) -> str:
    """Render every curve as a small table."""
    lines = [f"# Growth, {known.get('at')}, commit {known.get('commit')}", ""]
    lines += [f"`{known.get('command')}` on {known.get('cpus')} × {known.get('cpu')}.", ""]
    if remark := known.get("remark"):
        lines += [str(remark), ""]
    for curve in curves:
        names = [broker.name for broker in brokers if broker.name in curve.brokers]
        lines += _section(record, curve, names)
    return "\n".join(lines)


def _section(record: Record, curve: Curve, brokers: Sequence[str]) -> Iterator[str]:
    measured = {broker: points(record, curve, broker) for broker in brokers}
    if not any(measured.values()):
        return
    yield f"## {curve.title[:1].upper()}{curve.title[1:]}"
    yield ""
    yield f"| {curve.x} | " + " | ".join(f"{name}, {curve.y}" for name in brokers) + " |"
    yield "| ---: |" + " ---: |" * len(brokers)
    for x in curve.points:
        cells = []
        for broker in brokers:
            found = next((spread for at, spread in measured[broker] if at == x), None)
            error = record.error(_key(curve, x), broker)
            text = (
                "–" if found is None else f"{found.middle:.3g} ({found.low:.3g}–{found.high:.3g})"
            )
            cells.append(text if error is None else f"failed: {error.splitlines()[0]}")
        yield f"| {x:,} | " + " | ".join(cells) + " |"
    yield ""
    for broker, line in measured.items():
        # Of what a second holds, more is better, and flat says nothing.
        if len(line) > 1 and curve.figure != "per_second":
            yield f"- {broker}: {'flat' if is_flat(line) else 'grows'}"
    yield ""


def _plot(file: Path, curves: Sequence[Curve], record: Record, brokers: Sequence[Broker]) -> None:
    if not plots.is_available():
        print("no plot: install the dependency group `bench`", file=sys.stderr)
        return
    panels = {
        curve.title: (
            curve.x,
            curve.y,
            {broker.name: points(record, curve, broker.name) for broker in brokers},
        )
        for curve in curves
        if any(points(record, curve, broker.name) for broker in brokers)
    }
    if panels:
        plots.curves(file, panels)


if __name__ == "__main__":
    sys.exit(main())
