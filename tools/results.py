"""Outcomes of test runs, as left under target/ by the suites and read by the ledger.

pytest writes `python-*.json` (tests/conftest.py does it): test id → outcome. `cargo test` speaks to
people, so its output is kept as `crates.txt` and parsed here; every line we rely on has been stable
for years, and tests/house/test_ledger.py holds samples.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

FOLDER = Path("target") / "results"
CRATES = "crates.txt"

Outcome = Literal["passed", "failed", "left out"]

# `Running unittests src/lib.rs (target/debug/deps/quantumqtt_wire-0123456789abcdef)`
_RUNNING = re.compile(r"^\s*Running (?:unittests )?(\S+) \(.*?([\w-]+)-[0-9a-f]{16}\)")
# `test connect::tests::empty_id_is_refused ... ok`
_TEST = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)")


@dataclass(frozen=True, slots=True)
class RustTest:
    """One test function as cargo names it."""

    program: str
    """The test program: `quantumqtt_wire` for unit tests, the file's stem for `tests/*.rs`."""
    path: str
    outcome: Outcome


def read_rust(text: str) -> list[RustTest]:
    """Read the outcomes out of what `cargo test` printed, `Running …` lines included."""
    outcomes: dict[str, Outcome] = {"ok": "passed", "FAILED": "failed", "ignored": "left out"}
    tests = []
    program = ""
    for line in text.splitlines():
        if running := _RUNNING.match(line):
            program = running.group(2)
        elif test := _TEST.match(line):
            tests.append(RustTest(program, test.group(1), outcomes[test.group(2)]))
    return tests


def read_python(text: str) -> dict[str, list[Outcome]]:
    """Read one results file: test function → outcomes of its parameters."""
    functions: dict[str, list[Outcome]] = {}
    for test_id, outcome in json.loads(text).items():
        functions.setdefault(test_id.partition("[")[0], []).append(outcome)
    return functions


@dataclass(frozen=True, slots=True)
class Results:
    """All outcomes found in one tree."""

    python: dict[str, list[Outcome]]
    rust: list[RustTest]

    def all(self) -> Iterator[Outcome]:
        """Walk every outcome."""
        for outcomes in self.python.values():
            yield from outcomes
        for test in self.rust:
            yield test.outcome


def read_results(house: Path) -> Results:
    """Read whatever runs have left in the tree; absent files mean that nothing ran."""
    python: dict[str, list[Outcome]] = {}
    for file in sorted((house / FOLDER).glob("python-*.json")):
        for function, outcomes in read_python(file.read_text(encoding="utf-8")).items():
            python.setdefault(function, []).extend(outcomes)
    crates = house / FOLDER / CRATES
    rust = read_rust(crates.read_text(encoding="utf-8")) if crates.exists() else []
    return Results(python=python, rust=rust)


def summary(house: Path) -> str:
    """Say in one line what ran."""
    found = read_results(house)
    counts = Counter(found.all())
    rust = [test.outcome for test in found.rust].count("passed")
    python = counts["passed"] - rust
    line = f"tests: {counts['passed']} passed ({python} in Python, {rust} in Rust)"
    if counts["failed"]:
        line += f", {counts['failed']} failed"
    if counts["left out"]:
        line += f", {counts['left out']} not run"
    return line
