"""A seed is a run: nothing but the seed decides what happens."""

import os
import subprocess
import sys

import pytest

from quantumqtt.simulation.__main__ import main
from quantumqtt.simulation.seeds import Run


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_the_same_seed_twice_leaves_the_same_trace(seed: int) -> None:
    first, second = Run(seed=seed).outcome(), Run(seed=seed).outcome()
    assert first == second
    assert first.trace != Run(seed=seed + 1).outcome().trace


@pytest.mark.requirement("DET-02")
def test_another_process_with_other_hashes_leaves_the_same_trace() -> None:
    trace = Run(seed=7).outcome().trace
    told = subprocess.run(
        [sys.executable, "-m", "quantumqtt.simulation", "--seed", "7"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "1", "NO_COLOR": "1"},
        check=True,
    )
    assert f"seed 7: trace {trace}," in told.stderr


def test_the_command_line_tells_how_to_fail_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "1", "--bug", "salt-reused"]) == 1
    told = capsys.readouterr().err
    assert "broken after" in told
    assert "again:  python -m quantumqtt.simulation --seed 1 --bug salt-reused" in told
    again = next(line for line in told.splitlines() if line.startswith("less:"))
    assert main(again.split()[4:]) == 1


def test_the_command_line_runs_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["4", "--jobs", "2"]) == 0
    told = capsys.readouterr().err
    assert "4 seeds from 1:" in told
    assert " 0 broken" in told


def test_the_command_line_tells_a_story(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "1", "--story", "--steps", "60", "--without", "full,slow"]) == 0
    assert "OpenSession" in capsys.readouterr().out


def test_the_command_line_knows_its_faults_and_bugs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--seed", "1", "--without", "gravity"])
    assert "gravity is no kind of fault" in capsys.readouterr().err
    assert main(["--bugs"]) == 0
    assert "ack-before-sync" in capsys.readouterr().err
