"""Seeds from the command line: `python -m quantumqtt.simulation --seed 17 [--bug NAME]`.

Runs one seed, or many with a progress bar, and says in one line how to run a failing one again.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from typing import Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from quantumqtt.simulation.bugs import Bug
from quantumqtt.simulation.seeds import replay_line, run_seed
from quantumqtt.simulation.world import STEPS, Outcome

BATCH_SEEDS: Final = 10


def main() -> int:
    """Run what was asked for; the exit status tells whether everything held."""
    arguments = _arguments()
    console = Console(stderr=True)
    if arguments.bugs:
        for bug in Bug:
            console.print(f"{bug.value.name:<26}{bug.value.sentence}", highlight=False)
        return 0
    bug = None if arguments.bug is None else Bug.named(arguments.bug)
    if arguments.seed is not None:
        outcome = run_seed(arguments.seed, bug=bug, steps=arguments.steps)
        console.print(_sentence(outcome), highlight=False)
        return _verdict(console, outcome, bug)
    return _many(console, arguments.first, arguments.count, arguments.jobs, bug)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m quantumqtt.simulation", description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--seed", type=int, help="run this one seed")
    parser.add_argument("--first", type=int, default=1, help="the first of many seeds")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of the safety phase")
    parser.add_argument("--bug", choices=[bug.value.name for bug in Bug], help="switch on a bug")
    parser.add_argument("--bugs", action="store_true", help="list the bugs and end")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    return parser.parse_args()


def _sentence(outcome: Outcome) -> str:
    faults = ", ".join(f"{kind} {count}" for kind, count in outcome.faults.items()) or "none"
    return (
        f"seed {outcome.seed}: trace {outcome.trace}, {outcome.entries} entries, "
        f"{outcome.restarts} restarts, {outcome.checkpoints} checkpoints, "
        f"{outcome.acknowledged} acknowledged, {outcome.delivered} delivered; faults: {faults}"
    )


def _verdict(console: Console, outcome: Outcome, bug: Bug | None) -> int:
    if outcome.broken is None:
        return 0
    console.print(f"[red]broken[/] {outcome.broken}", highlight=False)
    console.print(f"again: {replay_line(outcome, bug)}", highlight=False, soft_wrap=True)
    return 1


def _run_batch(seeds: list[int], bug_name: str | None) -> list[Outcome]:
    bug = None if bug_name is None else Bug.named(bug_name)
    return [run_seed(seed, bug=bug) for seed in seeds]


def _batches(first: int, count: int) -> Iterator[list[int]]:
    seeds = iter(range(first, first + count))
    while batch := list(islice(seeds, BATCH_SEEDS)):
        yield batch


def _many(console: Console, first: int, count: int, jobs: int, bug: Bug | None) -> int:
    name = None if bug is None else bug.value.name
    failed: list[Outcome] = []
    entries = restarts = 0
    columns = (
        TextColumn("seeds"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with (
        Progress(*columns, console=console) as progress,
        ProcessPoolExecutor(max_workers=jobs) as pool,
    ):
        task = progress.add_task("seeds", total=count)
        waiting = [pool.submit(_run_batch, batch, name) for batch in _batches(first, count)]
        for future in waiting:
            for outcome in future.result():
                progress.advance(task)
                entries += outcome.entries
                restarts += outcome.restarts
                if outcome.broken is not None:
                    failed.append(outcome)
                    _verdict(console, outcome, bug)
    console.print(
        f"{count} seeds from {first}: {entries} entries, {restarts} restarts, {len(failed)} broken",
        highlight=False,
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
