"""Seeds from the command line: `python -m quantumqtt.simulation --seed 17 [--bug NAME]`.

Runs one seed, or many with a progress bar, and says in one line how to run a failing one again.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
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
from quantumqtt.simulation.faults import KINDS, FaultKind
from quantumqtt.simulation.seeds import Run, run_seed, shrink
from quantumqtt.simulation.world import STEPS, Outcome

BATCH_SEEDS: Final = 10


def main(words: Sequence[str] | None = None) -> int:
    """Run what was asked for; the exit status tells whether everything held."""
    arguments = _arguments(words)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if arguments.bugs:
        for known in Bug:
            console.print(f"{known.value.name:<26}{known.value.sentence}")
        return 0
    bug = None if arguments.bug is None else Bug.named(arguments.bug)
    if arguments.seed is None:
        return _many(console, arguments.first, arguments.count, arguments.jobs, bug)
    run = Run(seed=arguments.seed, bug=bug, steps=arguments.steps, without=tuple(arguments.without))
    outcome = run.outcome(_tell if arguments.story else None)
    console.print(_sentence(outcome))
    return _verdict(console, run, outcome)


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m quantumqtt.simulation", description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--seed", type=int, help="run this one seed")
    parser.add_argument("--story", action="store_true", help="print all that happens in it")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of its safety phase")
    parser.add_argument(
        "--without", type=_kinds, default=(), metavar="KIND,…", help="leave out kinds of faults"
    )
    parser.add_argument("--first", type=int, default=1, help="the first of many seeds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--bug", choices=[bug.value.name for bug in Bug], help="switch on a bug")
    parser.add_argument("--bugs", action="store_true", help="list the bugs and end")
    return parser.parse_args(words)


def _kinds(text: str) -> tuple[FaultKind, ...]:
    wanted = text.split(",")
    unknown = [word for word in wanted if word not in KINDS]
    if unknown:
        known = ", ".join(KINDS)
        raise argparse.ArgumentTypeError(f"{unknown[0]} is no kind of fault; there are {known}")
    return tuple(kind for kind in KINDS if kind in wanted)


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _sentence(outcome: Outcome) -> str:
    faults = ", ".join(f"{kind} {count}" for kind, count in outcome.faults.items()) or "none"
    return (
        f"seed {outcome.seed}: trace {outcome.trace}, {outcome.entries} entries, "
        f"{outcome.restarts} restarts, {outcome.checkpoints} checkpoints, "
        f"{outcome.acknowledged} acknowledged, {outcome.delivered} delivered; faults: {faults}"
    )


def _verdict(console: Console, run: Run, outcome: Outcome) -> int:
    if outcome.broken is None:
        return 0
    console.print(f"[red]broken[/] after {outcome.steps} steps: {outcome.broken}")
    console.print(f"again:  {run.line()}")
    smaller = shrink(run, outcome)
    if smaller != run:
        console.print(f"less:   {smaller.line()}")
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
    outcomes: list[Outcome] = []
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
        for future in [pool.submit(_run_batch, batch, name) for batch in _batches(first, count)]:
            for outcome in future.result():
                progress.advance(task)
                outcomes.append(outcome)
                _verdict(console, Run(seed=outcome.seed, bug=bug), outcome)
    failed = [outcome for outcome in outcomes if outcome.broken is not None]
    console.print(
        f"{count} seeds from {first}: {sum(one.entries for one in outcomes)} entries, "
        f"{sum(one.restarts for one in outcomes)} restarts, "
        f"{sum(one.checkpoints for one in outcomes)} checkpoints, "
        f"{sum(one.acknowledged for one in outcomes)} acknowledged, "
        f"{sum(one.refused for one in outcomes)} refused after bit rot, {len(failed)} broken"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
