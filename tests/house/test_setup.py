"""The set-up does what is missing, once, and can be interrupted anywhere."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tools import setup
from tools.setup import Setup
from tools.steps import StepFailed

FILES = ("Cargo.toml", "pyproject.toml", "uv.lock")


class Interrupted(Exception):
    """Stands for Ctrl-C, a full disk, a lost network: the command did not finish."""


class RecordingRunner:
    """Pretends to run commands; fails the one numbered `broken`."""

    def __init__(self, broken: int | None = None) -> None:
        self.commands: list[str] = []
        self._broken = broken

    def say(self, name: str, outcome: str) -> None:
        pass

    def run(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        hint: str | None = None,
    ) -> str:
        if len(self.commands) == self._broken:
            raise Interrupted
        words = [str(word) for word in command]
        self.commands.append(words[-1] if "develop" in words else name)
        if "venv" in words:
            # As `python -m venv --clear` does: whatever was there is gone.
            shutil.rmtree(words[-1], ignore_errors=True)
            (Path(words[-1]) / "bin").mkdir(parents=True)
        return ""


ALL = ["Python environment", "uv", "locked packages", "--uv"]
ONLY_CARGO_ASKED = ["--skip-install"]


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Copy the files that decide a set-up."""
    for name in FILES:
        shutil.copy(setup.HOUSE / name, tmp_path)
    return tmp_path


def set_up(house: Path, broken: int | None = None) -> list[str]:
    runner = RecordingRunner(broken)
    Setup(house, runner).run()
    return runner.commands


def test_second_run_only_asks_cargo(house: Path) -> None:
    assert set_up(house) == ALL
    assert set_up(house) == ONLY_CARGO_ASKED


@pytest.mark.parametrize("broken", range(len(ALL)))
def test_interrupted_run_is_made_good_by_the_next(house: Path, broken: int) -> None:
    with pytest.raises(Interrupted):
        set_up(house, broken)
    after = set_up(house)
    # The unfinished layer is done again from its start, and so is everything above it.
    layer = {0: 0, 1: 0, 2: 2, 3: 3}[broken]
    assert after == ALL[layer:]
    assert set_up(house) == ONLY_CARGO_ASKED


@pytest.mark.parametrize("broken", [0, 1])
def test_interrupted_change_of_packages_is_made_good_by_the_next(house: Path, broken: int) -> None:
    set_up(house)
    lock = house / "uv.lock"
    lock.write_text(lock.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    with pytest.raises(Interrupted):
        set_up(house, broken)
    assert set_up(house) == ALL[2:][broken:]
    assert set_up(house) == ONLY_CARGO_ASKED


def test_half_made_environment_without_stamp_is_made_again(house: Path) -> None:
    (house / ".venv" / "bin").mkdir(parents=True)
    (house / ".venv" / "bin" / "python").touch()
    assert set_up(house) == ALL


def test_moved_tree_gets_a_new_environment(house: Path, tmp_path: Path) -> None:
    set_up(house)
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in (*FILES, ".venv"):
        shutil.move(house / name, moved / name)
    assert set_up(moved) == ALL


def test_uv_is_pinned_by_version_and_hash() -> None:
    requirement = setup.uv_requirement(setup.HOUSE / "uv.lock")
    assert requirement.startswith("uv==")
    assert requirement.count("--hash=sha256:") > 5


def test_lock_without_uv_is_named(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").write_text('[[package]]\nname = "ruff"\n', encoding="utf-8")
    with pytest.raises(StepFailed, match=r"uv\.lock names no uv"):
        setup.uv_requirement(tmp_path / "uv.lock")


@pytest.mark.parametrize(
    ("programs", "named", "remedy"),
    [
        ({}, "cargo is not on PATH", "rustup"),
        ({"cargo": "", "rustc": "echo rustc 1.60.0"}, "rustc 1.60.0 is older", "rustup update"),
        ({"cargo": "", "rustc": "echo rustc 1.99.0"}, "no C linker", "apt install gcc"),
    ],
)
def test_missing_tool_is_named_with_its_remedy(
    tmp_path: Path, programs: dict[str, str], named: str, remedy: str
) -> None:
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(StepFailed, match=named) as failed:
        setup.check_toolchain(setup.HOUSE, {"PATH": str(tmp_path)})
    assert failed.value.hint is not None
    assert remedy in failed.value.hint


def test_stamp_names_python_and_place(house: Path) -> None:
    set_up(house)
    stamp = json.loads((house / ".venv" / "quantumqtt-made").read_text(encoding="utf-8"))
    assert stamp["house"] == str(house)
