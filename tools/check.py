"""The gate: stages in order of patience, each a list of `just` recipes, then one verdict.

Every step is a recipe, so whatever is red here can be repeated alone. Within a stage all steps run,
because a person wants all the news at once; a stage with a red step is the last one, because what
follows would mostly repeat it more slowly. Nothing here writes outside target/.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import results
from tools.steps import Progress, StepFailed, elapsed, stop_on_termination

HOUSE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Stage:
    """Recipes that ask for the same amount of patience."""

    name: str
    recipes: tuple[str, ...]


STAGES = (
    Stage(
        "tidy",
        (
            *("format-check", "lint", "types", "face", "import-rules", "house-rules"),
            *("licences", "clippy"),
        ),
    ),
    Stage("fast", ("crates", "stubs", "unit")),
    Stage("wheel", ("wheel",)),
    Stage("whole", ("whole",)),
    Stage("verdict", ("ledger",)),
)


def run_stage(stage: Stage, progress: Progress) -> list[StepFailed]:
    """Run every recipe of a stage and return those that failed."""
    failures = []
    print(f"\n{stage.name}", flush=True)
    for recipe in stage.recipes:
        try:
            progress.run(
                recipe,
                ["just", "--justfile", HOUSE / "justfile", recipe],
                folder=HOUSE,
                hint=f"repeat it alone with `just {recipe}`",
            )
        except StepFailed as failure:
            failures.append(failure)
    return failures


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen stages; exit 1 when a step failed."""
    names = [stage.name for stage in STAGES]
    parser = argparse.ArgumentParser(description="Run the gate, or some of its stages.")
    parser.add_argument("stage", nargs="*", metavar="|".join(names))
    wanted: list[str] = parser.parse_args(arguments).stage or names
    if unknown := [name for name in wanted if name not in names]:
        parser.error(f"no stage named {', '.join(unknown)}; there are {', '.join(names)}")
    stop_on_termination()
    if wanted == names:
        # A full run judges what it has seen itself, never the results of an earlier one.
        shutil.rmtree(HOUSE / results.FOLDER, ignore_errors=True)
    began = time.monotonic()
    progress = Progress(HOUSE / "target" / "logs")
    failures: list[StepFailed] = []
    for stage in STAGES:
        if stage.name in wanted:
            failures = run_stage(stage, progress)
        if failures:
            break
    print(f"\n{results.summary(HOUSE)}")
    for failure in failures:
        print(f"red: {failure.name} — {failure.hint}")
    if failures:
        print(f"check: not yet, after {elapsed(began)}")
        sys.exit(1)
    print(f"check: green in {elapsed(began)}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
