"""Running seeds, making failing ones small, and finding the first that shows a bug."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from quantumqtt.simulation.bugs import Bug
from quantumqtt.simulation.faults import KINDS, FaultKind
from quantumqtt.simulation.world import STEPS, Outcome, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything a run follows from."""

    seed: int
    bug: Bug | None = None
    steps: int = STEPS
    without: tuple[FaultKind, ...] = ()

    def line(self) -> str:
        """The command that runs it again."""
        said = [f"python -m quantumqtt.simulation --seed {self.seed}"]
        if self.bug is not None:
            said.append(f"--bug {self.bug.value.name}")
        if self.steps != STEPS:
            said.append(f"--steps {self.steps}")
        if self.without:
            said.append(f"--without {','.join(self.without)}")
        return " ".join(said)

    def outcome(self, story: Callable[[str], None] | None = None) -> Outcome:
        """Run it from its beginning to its end, or to the first thing that does not hold."""
        world = World(self.seed, bug=self.bug, steps=self.steps, without=self.without, story=story)
        return world.run()


def run_seed(seed: int, *, bug: Bug | None = None) -> Outcome:
    """Run one seed as it is."""
    return Run(seed=seed, bug=bug).outcome()


def first_noticed(bug: Bug, seeds: Iterable[int]) -> Outcome | None:
    """The first seed in which an invariant notices the bug; None if none does."""
    outcomes = (run_seed(seed, bug=bug) for seed in seeds)
    return next((outcome for outcome in outcomes if outcome.broken is not None), None)


def shrink(run: Run, outcome: Outcome) -> Run:
    """Leave out steps and kinds of faults as long as the same invariant breaks.

    Returns `run` itself if nothing can be left out, or if nothing was broken.
    """
    broken = outcome.broken
    if broken is None:
        return run

    def still_breaks(steps: int, without: Collection[FaultKind]) -> bool:
        tried = Run(seed=run.seed, bug=run.bug, steps=steps, without=tuple(without)).outcome()
        return tried.broken is not None and tried.broken.invariant == broken.invariant

    without = list(run.without)
    steps = outcome.steps
    if not still_breaks(steps, without):
        return run
    for kind in KINDS:
        if kind not in without and still_breaks(steps, [*without, kind]):
            without.append(kind)
    # Fewer steps may end in another way, so this is no search for the least, but for less.
    while steps > 8 and still_breaks(steps * 3 // 4, without):
        steps = steps * 3 // 4
    return Run(seed=run.seed, bug=run.bug, steps=steps, without=tuple(without))
