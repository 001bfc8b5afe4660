"""Runs a group of tests and keeps the outcomes where the ledger finds them."""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from tools import results
from tools.steps import stop_on_termination

HOUSE = Path(__file__).resolve().parent.parent
FAST = ("unit", "property", "house")
# Not part of the gate: they need what ./check does not install, and have recipes of their own.
BY_HAND = ("spark", "browser")
# The end-to-end suites mostly wait for brokers, disks and clocks. Two at a time keep two cores
# busy without starving a broker; a file's tests stay together, as they share what they started.
SIDE_BY_SIDE = ("--numprocesses=2", "--dist=loadfile")


def test_folders(group: str, tests: Path) -> list[Path]:
    """List the folders of a group that exist and hold tests."""
    folders = sorted(
        path for path in tests.iterdir() if path.is_dir() and any(path.rglob("test_*.py"))
    )
    if group == "fast":
        return [folder for folder in folders if folder.name in FAST]
    return [folder for folder in folders if folder.name not in (*FAST, *BY_HAND)]


def run_python(group: str) -> int:
    """Run pytest over a group of folders."""
    folders = test_folders(group, HOUSE / "tests")
    if not folders:
        print(f"no tests in group {group} yet")
        return 0
    record = HOUSE / results.FOLDER / f"python-{group}.json"
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-m", "not night"),
        *(SIDE_BY_SIDE if group == "whole" else ()),
        f"--record-outcomes={record}",
        *map(str, folders),
    ]
    return subprocess.run(command, cwd=HOUSE, check=False).returncode


def run_crates() -> int:
    """Run the tests beside the Rust code, showing and keeping what cargo says."""
    # The bridge is a Python extension: as a test program it would have to link libpython, which
    # many machines do not have as a library. Its tests are the Python ones.
    # The kept inputs of the fuzz targets run with them: a workspace of its own, the same target
    # folder, so that nothing is compiled twice.
    workspace = ("--workspace", "--exclude", "quantumqtt-bridge")
    corpus = ("--manifest-path", "fuzz/Cargo.toml", "--target-dir", "target")
    record = HOUSE / results.FOLDER / results.CRATES
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.open("w", encoding="utf-8") as kept:
        codes = [run_cargo_test(chosen, kept) for chosen in (workspace, corpus)]
    return next(filter(None, codes), 0)


def run_cargo_test(chosen: Sequence[str], kept: TextIO) -> int:
    """Run one workspace's tests, showing and keeping what cargo says."""
    command = ["cargo", "test", *chosen, "--locked", "--no-fail-fast"]
    with subprocess.Popen(
        command, cwd=HOUSE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as cargo:
        assert cargo.stdout is not None
        for line in cargo.stdout:
            kept.write(line)
            print(line, end="", flush=True)
    return cargo.returncode


def main() -> None:
    """Run one group; the exit status is that of its runner."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("group", choices=["crates", "fast", "whole"])
    group: str = parser.parse_args().group
    stop_on_termination()
    sys.exit(run_crates() if group == "crates" else run_python(group))


if __name__ == "__main__":
    main()
