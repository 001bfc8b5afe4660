"""Seeds hold: one node's durable path under crashes, failing disks, full disks and rot."""

import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Final, get_args

import pytest

from quantumqtt.simulation.faults import CRASHES, FaultKind
from quantumqtt.simulation.seeds import Run, shrink
from quantumqtt.simulation.world import Outcome

SEEDS: Final = range(1, 31)
"""The gate's; `just simulate 1000` runs more."""
NIGHT_SEEDS: Final = range(1_000, 3_000)
FAILED_ONCE: Final = tomllib.loads((Path(__file__).parent / "seeds.toml").read_text())["seeds"]


@cache
def outcome_of(seed: int) -> Outcome:
    return Run(seed=seed).outcome()


def require(seed: int) -> None:
    """Fail with the lines that show it again."""
    run = Run(seed=seed)
    outcome = outcome_of(seed)
    if outcome.broken is not None:
        smaller = shrink(run, outcome)
        pytest.fail(f"{outcome.broken}\nagain: {run.line()}\nless:  {smaller.line()}")


@pytest.mark.requirement("LOG-01", "LOG-16", "LOG-20", "LOG-30", "LOG-39", "DP-34")
@pytest.mark.requirement("QOS-02", "QOS-12", "SES-18", "DET-01", "DET-02", "GEN-04")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_holds(seed: int) -> None:
    require(seed)


def test_seeds_that_failed_once_hold() -> None:
    for line in FAILED_ONCE:
        parts = line.split()
        require(int(parts[0]))


def test_the_seeds_of_the_gate_meet_everything_there_is_to_meet() -> None:
    outcomes = [outcome_of(seed) for seed in SEEDS]
    faults: Counter[str] = Counter()
    crashes: Counter[str] = Counter()
    for outcome in outcomes:
        faults.update(outcome.faults)
        crashes.update(outcome.crashes)
    assert set(faults) == set(get_args(FaultKind))
    assert set(crashes) == set(CRASHES)
    assert any(outcome.refused for outcome in outcomes)
    assert not all(outcome.refused for outcome in outcomes)
    assert sum(outcome.checkpoints for outcome in outcomes) > len(SEEDS)
    assert sum(outcome.restarts for outcome in outcomes) > len(SEEDS)
    assert sum(outcome.acknowledged for outcome in outcomes) > 20 * len(SEEDS)
    assert sum(outcome.delivered for outcome in outcomes) > 20 * len(SEEDS)


@pytest.mark.night
@pytest.mark.parametrize("first", range(NIGHT_SEEDS.start, NIGHT_SEEDS.stop, 100))
def test_a_hundred_seeds_hold(first: int) -> None:
    for seed in range(first, first + 100):
        require(seed)
