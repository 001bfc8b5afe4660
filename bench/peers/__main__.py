"""`python -m bench.peers [SCENARIO…]`: measure, then write table and plot.

May be interrupted anywhere: the next start on the same day and commit goes on.
"""

import argparse
import sys
from pathlib import Path

from bench import plots
from bench.brokers import Broker
from bench.generator import raise_descriptor_limit
from bench.machine import facts
from bench.measure import Kind
from bench.peers import table
from bench.peers.scenarios import QUICK, SCENARIOS, Measure, Scenario, chosen, shortened
from bench.results import Record, folder_of_today
from bench.session import Task, choose_brokers, measure_all


def main() -> int:
    """Read the arguments and do it."""
    asked = _arguments()
    try:
        scenarios = chosen(list(QUICK) if asked.quick else asked.scenarios)
        present, absent = choose_brokers(asked.broker)
    except (KeyError, StopIteration):
        print("known scenarios:", *(f"  {one.name:22} {one.title}" for one in SCENARIOS), sep="\n")
        return 2
    for broker in absent:
        print(f"not run: {broker.name} is not installed", file=sys.stderr)
    if asked.quick:
        scenarios = [shortened(scenario) for scenario in scenarios]
    folder = asked.into or folder_of_today() / ("quick" if asked.quick else "peers")
    raise_descriptor_limit()
    record = Record(folder)
    command = ["python", "-m", "bench.peers", *sys.argv[1:]]
    known = facts(present, absent, command)
    record.write_machine(known)
    tasks = [
        Task(scenario.name, scenario.load, [one for one in present if _can(one, scenario)])
        for scenario in scenarios
    ]
    try:
        measure_all(record, tasks, asked.repeats)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
    page = table.render(record, SCENARIOS, [broker.name for broker in present], known)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text(page, "utf-8")
    _plot(folder, record)
    print(page)
    print(f"written to {folder}", file=sys.stderr)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare brokers on this machine.")
    parser.add_argument("scenarios", nargs="*", help="names, `all`; default: the default set")
    parser.add_argument("--quick", action="store_true", help="few scenarios, short, for a look")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--broker", action="append", default=[], help="only these; repeatable")
    parser.add_argument("--into", type=Path, help="folder; default: bench/results/DATE-COMMIT")
    return parser.parse_args()


def _can(broker: Broker, scenario: Scenario) -> bool:
    if scenario.only_ours and broker.name != table.OURS:
        return False
    return scenario.qos <= broker.qos_max and (broker.supports_v5 or not scenario.v5)


def _plot(folder: Path, record: Record) -> None:
    if not plots.is_available():
        print("no plot: install the dependency group `bench`", file=sys.stderr)
        return
    rows = {
        scenario.title: spread
        for scenario in SCENARIOS
        if scenario.load.kind in (Kind.THROUGHPUT, Kind.MEMORY)
        and (spread := table.cost_ratio(record, scenario)) is not None
    }
    marks = {
        scenario.title: scenario.target.must
        for scenario in SCENARIOS
        if scenario.target is not None and scenario.target.measure is Measure.CPU
    }
    if rows:
        title = "CPU per message (memory per connection), Mosquitto's over ours; red: must"
        plots.bars(folder / "ratios.png", title, rows, marks)


if __name__ == "__main__":
    sys.exit(main())
