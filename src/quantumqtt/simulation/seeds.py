"""Running seeds, and finding the first that shows a bug."""

from collections.abc import Callable, Iterable, Iterator

from quantumqtt.simulation.bugs import Bug
from quantumqtt.simulation.world import STEPS, Outcome, World


def run_seed(seed: int, *, bug: Bug | None = None, steps: int = STEPS) -> Outcome:
    """Run one seed from its beginning to its end, or to the first thing that does not hold."""
    return World(seed, bug=bug, steps=steps).run()


def run_seeds(seeds: Iterable[int], *, bug: Bug | None = None) -> Iterator[Outcome]:
    """Run seeds one after another."""
    for seed in seeds:
        yield run_seed(seed, bug=bug)


def first_noticed(
    bug: Bug, seeds: Iterable[int], run: Callable[[int, Bug], Outcome] | None = None
) -> Outcome | None:
    """The first seed in which an invariant notices the bug; None if none does."""
    for seed in seeds:
        outcome = run_seed(seed, bug=bug) if run is None else run(seed, bug)
        if outcome.broken is not None:
            return outcome
    return None


def replay_line(outcome: Outcome, bug: Bug | None = None) -> str:
    """The command that runs this seed again."""
    switched = "" if bug is None else f" --bug {bug.value.name}"
    return f"python -m quantumqtt.simulation --seed {outcome.seed}{switched}"
