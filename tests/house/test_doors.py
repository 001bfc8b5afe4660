"""`./start` and `./check`: they parse, they name what is missing, they are quick when fresh."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tools import doors
from tools.setup import HOUSE, Setup, base_python, setup_lock
from tools.steps import Progress

SCRIPTS = ("start", "check", ".ci/run", "tools/door")


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_parses_and_is_short(script: str) -> None:
    subprocess.run(["bash", "-n", HOUSE / script], check=True)
    assert os.access(HOUSE / script, os.X_OK)
    assert len((HOUSE / script).read_text(encoding="utf-8").splitlines()) <= 30


def run_door(
    door: str, *words: str, folder: Path = HOUSE, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HOUSE / door, *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def bare_environment(folder: Path, python3: Path | str | None) -> dict[str, str]:
    """Make an environment with what every machine has, and a Python: a real one or a script."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for name in ("bash", "env", "dirname", "cat"):
        found = shutil.which(name)
        assert found is not None
        (bin_folder / name).symlink_to(found)
    python = bin_folder / "python3"
    if isinstance(python3, Path):
        python.symlink_to(python3)
    elif python3 is not None:
        python.write_text(f"#!{bin_folder}/bash\n{python3}\n", encoding="utf-8")
        python.chmod(0o755)
    return {"PATH": str(bin_folder), "HOME": str(folder)}


@pytest.mark.parametrize("door", ["start", "check"])
def test_missing_cargo_is_named_with_its_remedy(tmp_path: Path, door: str) -> None:
    ended = run_door(door, environment=bare_environment(tmp_path, base_python()))
    assert ended.returncode == 1
    assert "cargo is not on PATH" in ended.stderr
    assert "hint:" in ended.stderr
    assert "rustup.rs" in ended.stderr


@pytest.mark.parametrize("door", ["start", "check"])
def test_python_that_is_too_old_is_named_with_its_remedy(tmp_path: Path, door: str) -> None:
    old = 'if [ "$1" = --version ]; then echo Python 3.9.2; else exit 1; fi'
    ended = run_door(door, environment=bare_environment(tmp_path, old))
    assert ended.returncode == 1
    assert "Python 3.11 or newer is needed; python3 here is: Python 3.9.2" in ended.stderr
    assert "hint:" in ended.stderr


def test_python_that_is_absent_is_named(tmp_path: Path) -> None:
    ended = run_door("start", environment=bare_environment(tmp_path, None))
    assert ended.returncode == 1
    assert "Python 3.11 or newer is needed" in ended.stderr


def test_set_up_of_this_tree_is_fresh_and_a_second_run_builds_nothing(tmp_path: Path) -> None:
    setup = Setup(HOUSE, Progress(tmp_path))
    # Without this the run below would change the environment this very test runs in.
    assert setup.is_fresh(), "run ./start --setup-only first; the sources of .venv have changed"
    ended = run_door("start", "--setup-only", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert ["Python", "environment", "fresh"] in lines
    assert ["locked", "packages", "fresh"] in lines
    again = run_door("start", "--setup-only", folder=tmp_path)
    assert "none, fresh" in again.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("door", ["start", "check"])
def test_a_signal_in_the_middle_of_set_up_leaves_nothing_to_trip_over(
    tmp_path: Path, door: str, number: signal.Signals
) -> None:
    house = tmp_path / "house"
    shutil.copytree(HOUSE / "tools", house / "tools")
    for name in (door, "Cargo.toml", "pyproject.toml", "uv.lock"):
        shutil.copy(HOUSE / name, house)
    process = subprocess.Popen(
        [house / door, *(["--setup-only"] if door == "start" else [])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = next(line for line in process.stdout if "Python environment" in line)
    assert "…" in line, "it has begun and is not done"
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert ("the next run goes on from here" in said) is (number == signal.SIGINT)
    assert not Setup(house, Progress(tmp_path)).is_fresh()
    assert not list(house.glob(".venv/quantumqtt-*")), "what is half made has no stamp"
    with setup_lock(house):
        pass  # nobody holds it any more


def test_unknown_argument_of_check_is_refused_before_anything_runs() -> None:
    ended = run_door("check", "--fast")
    assert ended.returncode == 2
    assert "--fast" in ended.stderr
    assert "set-up" not in ended.stdout


def opened(monkeypatch: pytest.MonkeyPatch, tree: Path, *words: str, java: bool) -> list[str]:
    """Open `./start` without a set-up; gives what would run, `spark` first where it is made."""
    said: list[str] = []
    monkeypatch.setattr(doors, "HOUSE", tree)
    monkeypatch.setattr(doors, "set_up", lambda: None)
    monkeypatch.setattr(doors, "has_java", lambda: java)
    monkeypatch.setattr(doors, "set_up_spark", lambda: said.append("spark"))
    monkeypatch.setattr(doors, "become", lambda command, _environment: said.extend(command[1:]))
    doors.start(words)
    return said


def test_start_opens_the_whole_house(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def start(*words: str, java: bool = True) -> list[str]:
        return opened(monkeypatch, tmp_path, *words, java=java)

    assert start("--listen", "tcp://127.0.0.1:0") == ["up", "--listen", "tcp://127.0.0.1:0"]
    assert start("--demo") == ["spark", "up", "--demo"]
    assert start("--demo", java=False) == ["up", "--demo"], "the broker says what is missing"
    assert start("--demo", "--no-pipeline") == ["up", "--no-pipeline", "--demo"]
    assert start("--pipeline", java=False) == ["spark", "up", "--pipeline"]
    assert start("--setup-only", "--pipeline") == ["spark"]
    made = tmp_path / ".venv-spark"
    made.mkdir()
    assert start() == ["up"], "an environment that was not finished is none"
    (made / "quantumqtt-synced").write_text("")
    assert start() == ["up", "--spark-python", str(made / "bin" / "python")]
