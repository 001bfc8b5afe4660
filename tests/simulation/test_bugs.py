"""The simulator notices every seeded bug within a few seeds, and shows it again from one line."""

from typing import Final

import pytest

from quantumqtt.simulation.bugs import Bug
from quantumqtt.simulation.invariants import ALL
from quantumqtt.simulation.seeds import Run, first_noticed, shrink

SEEDS: Final = range(1, 16)
"""How many seeds a bug may hide in."""


@pytest.mark.parametrize("bug", Bug, ids=lambda bug: bug.value.name)
def test_a_bug_is_noticed_by_who_is_bound_to(bug: Bug) -> None:
    outcome = first_noticed(bug, SEEDS)
    assert outcome is not None, f"{bug.value.name} went unnoticed in {len(SEEDS)} seeds"
    assert outcome.broken is not None
    assert outcome.broken.invariant in bug.value.noticed_by


def test_every_invariant_has_a_bug_that_it_notices() -> None:
    needed = {invariant.name for invariant in ALL}
    assert needed <= {name for bug in Bug for name in bug.value.noticed_by}


def test_a_failing_seed_fails_again_and_smaller() -> None:
    run = Run(seed=1, bug=Bug.SALT_REUSED)
    outcome, again = run.outcome(), run.outcome()
    assert outcome.broken is not None
    assert again.broken is not None
    assert (again.trace, again.broken.sentence) == (outcome.trace, outcome.broken.sentence)
    smaller = shrink(run, outcome)
    least = smaller.outcome()
    assert smaller.steps < run.steps
    assert smaller.without
    assert least.broken is not None
    assert least.broken.invariant == outcome.broken.invariant
    assert smaller.line().startswith(
        f"python -m quantumqtt.simulation --seed 1 --bug salt-reused --steps {smaller.steps} "
    )


def test_nothing_is_left_out_of_a_seed_that_holds() -> None:
    run = Run(seed=1, steps=40)
    assert shrink(run, run.outcome()) == run
