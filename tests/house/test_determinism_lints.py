"""Clippy refuses a clock, dice or I/O planted in the deterministic state machine."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.setup import HOUSE, child_environment

# One tree and one target folder for all runs, so that only what changed is checked again.
WORK = HOUSE / "target" / "house" / "determinism"
CRATES = ("machine", "topics", "wire")
PLANTED = "planted_by_the_house_test"


@pytest.fixture(scope="module")
def workspace() -> Path:
    """Copy the state machine and the crates below it; file times are kept for cargo."""
    tree = WORK / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    for name in CRATES:
        shutil.copytree(HOUSE / "crates" / name, tree / "crates" / name)
    for name in ("Cargo.toml", "Cargo.lock", "clippy.toml"):
        shutil.copy2(HOUSE / name, tree)
    return tree


def run_clippy(workspace: Path) -> subprocess.CompletedProcess[str]:
    environment = {**child_environment(HOUSE), "CARGO_TARGET_DIR": str(WORK / "build")}
    return subprocess.run(
        [
            *("cargo", "clippy", "--offline", "--quiet", "-p", "quantumqtt-machine"),
            *("--", "-D", "warnings"),
        ],
        cwd=workspace,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.requirement("DET-03")
def test_state_machine_is_clean_and_planted_clock_and_dice_are_refused(workspace: Path) -> None:
    library = workspace / "crates" / "machine" / "src" / "lib.rs"
    clean = library.read_text(encoding="utf-8")
    times = library.stat()
    ended = run_clippy(workspace)
    assert ended.returncode == 0, ended.stderr

    for expression in (
        "std::time::Instant::now()",
        "std::time::SystemTime::now()",
        "std::collections::HashMap::<u8, u8>::new()",
        "1.5_f64 * f64::from(2_u8)",
    ):
        planted = f"\nfn {PLANTED}() {{\n    let _ = {expression};\n}}\n"
        library.write_text(clean + planted, encoding="utf-8")
        ended = run_clippy(workspace)
        assert ended.returncode != 0, f"clippy lets {expression} pass"
        assert expression.split("::<")[0].split("(")[0] in ended.stderr
        assert "disallowed" in ended.stderr or "float" in ended.stderr

    library.write_text(clean, encoding="utf-8")
    os.utime(library, ns=(times.st_atime_ns, times.st_mtime_ns))
