"""Stock programs are asked for by name, and a package may not start a service on us."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import system_packages
from tools.system_packages import OPT_OUT, POLICY_MARK, services_held_back

TEST = """
import pytest
@pytest.mark.needs_program("no_such_broker")
def test_with_stock_program() -> None: ...
"""


def run_test_that_needs_a_program(folder: Path, **environment: str) -> str:
    """Run a test in this tree's own configuration, as the suites do."""
    house = Path(__file__).parents[2]
    file = folder / "test_planted.py"
    file.write_text(TEST, encoding="utf-8")
    plain = {name: value for name, value in os.environ.items() if name != OPT_OUT}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.conftest", "-o", f"cache_dir={folder}"),
            *("-c", house / "pyproject.toml", f"--rootdir={folder}", file),
        ],
        cwd=house,
        env={**plain, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_test_without_its_program_fails_with_the_remedy(tmp_path: Path) -> None:
    words = run_test_that_needs_a_program(tmp_path)
    assert "1 error" in words
    assert "no_such_broker not found; as root: apt-get install" in words


def test_test_without_its_program_is_named_when_left_out_on_purpose(tmp_path: Path) -> None:
    words = run_test_that_needs_a_program(tmp_path, **{OPT_OUT: "1"})
    assert "1 skipped" in words
    assert "not run" in words
    assert "without system packages, on purpose: no_such_broker" in words


def test_services_are_held_back_only_while_apt_runs(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    with services_held_back(policy):
        assert subprocess.run([policy], check=False).returncode == 101
    assert not policy.exists()


def test_policy_left_by_an_interrupted_run_is_recognised_and_removed(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text(f"#!/bin/sh\n{POLICY_MARK}\nexit 101\n", encoding="utf-8")
    with services_held_back(policy):
        pass
    assert not policy.exists()


def test_policy_of_the_machine_itself_is_left_alone(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    with services_held_back(policy):
        pass
    assert policy.read_text(encoding="utf-8") == "#!/bin/sh\nexit 0\n"


@pytest.mark.parametrize(("value", "chosen"), [("1", True), ("0", False), ("", False)])
def test_leaving_out_is_said_by_a_variable(
    monkeypatch: pytest.MonkeyPatch, value: str, *, chosen: bool
) -> None:
    monkeypatch.setenv(OPT_OUT, value)
    assert system_packages.left_out_on_purpose() is chosen
