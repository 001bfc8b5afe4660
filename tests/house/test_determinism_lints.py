"""Clippy refuses a clock, dice or I/O planted in the state machine and the crates below it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.setup import HOUSE, child_environment

# One tree and one target folder for all runs, so that only what changed is checked again.
WORK = HOUSE / "target" / "house" / "determinism"
# What is planted in each crate, and what clippy says of it.
PLANTED = {
    "machine": {
        "std::time::Instant::now()": "method `std::time::Instant::now`",
        "std::time::SystemTime::now()": "method `std::time::SystemTime::now`",
        "std::collections::HashMap::<u8, u8>::new()": "type `std::collections::HashMap`",
        "std::collections::HashSet::<u8>::new()": "type `std::collections::HashSet`",
        "std::hash::RandomState::new()": "RandomState`",
        "std::thread::current()": "method `std::thread::current`",
        "std::thread::spawn(|| ())": "method `std::thread::spawn`",
        'std::env::var_os("HOME")': "method `std::env::var_os`",
        'std::fs::read("seed")': "method `std::fs::read`",
        "std::process::id()": "method `std::process::id`",
        "1.5_f64 * f64::from(2_u8)": "floating-point arithmetic detected",
    },
    "topics": {
        "std::time::Instant::now()": "method `std::time::Instant::now`",
        "std::collections::HashMap::<u8, u8>::new()": "type `std::collections::HashMap`",
    },
    "wire": {
        "std::time::Instant::now()": "type `std::time::Instant`",
        "std::time::SystemTime::now()": "type `std::time::SystemTime`",
    },
}


@pytest.fixture(scope="module")
def workspace() -> Path:
    """Copy the state machine and the crates below it; file times are kept for cargo."""
    tree = WORK / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    for name in PLANTED:
        shutil.copytree(HOUSE / "crates" / name, tree / "crates" / name)
    for name in ("Cargo.toml", "Cargo.lock", "clippy.toml"):
        shutil.copy2(HOUSE / name, tree)
    return tree


def run_clippy(workspace: Path, *crates: str) -> subprocess.CompletedProcess[str]:
    environment = {**child_environment(HOUSE), "CARGO_TARGET_DIR": str(WORK / "build")}
    return subprocess.run(
        [
            *("cargo", "clippy", "--offline", "--quiet"),
            *(f"--package=quantumqtt-{name}" for name in crates),
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
def test_crates_below_the_log_are_clean_and_planted_clocks_and_dice_are_refused(
    workspace: Path,
) -> None:
    ended = run_clippy(workspace, *PLANTED)
    assert ended.returncode == 0, ended.stderr
    for name, expressions in PLANTED.items():
        library = workspace / "crates" / name / "src" / "lib.rs"
        clean = library.read_text(encoding="utf-8")
        times = library.stat()
        planted = (
            f"\nfn planted_{number}() {{\n    let _ = {expression};\n}}\n"
            for number, expression in enumerate(expressions)
        )
        library.write_text(clean + "".join(planted), encoding="utf-8")
        ended = run_clippy(workspace, name)
        assert ended.returncode != 0
        for expression, complaint in expressions.items():
            assert complaint in ended.stderr, f"{name}: clippy lets {expression} pass"
        library.write_text(clean, encoding="utf-8")
        os.utime(library, ns=(times.st_atime_ns, times.st_mtime_ns))
