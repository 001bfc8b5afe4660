"""Damages the state machine on purpose, one fault at a time, and asks who notices.

Each mutant of `tests/model/mutants.toml` replaces one piece of `crates/machine/src` in a scratch
copy of the sources. First the crate's own tests are asked, then, if they saw nothing, the reference
model. A mutant nobody catches names a test that is missing; one whose text is no longer found names
a file that has changed under it. Takes long: everything is compiled again for each.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOUSE: Final = Path(__file__).resolve().parent.parent
MUTANTS: Final = HOUSE / "tests/model/mutants.toml"
SCRATCH: Final = HOUSE / "target/mutants"
COPIED: Final = ("Cargo.toml", "Cargo.lock", "clippy.toml", "crates", "tests", "tools", "src")
COPIED_FILES: Final = ("pyproject.toml", "README.md", "LICENSE")
COMPILER: Final = "the compiler"
"""It proves no test: such a mutant has to be written differently."""
WALK_STEPS: Final = "30000"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault."""

    name: str
    file: str
    find: str
    put: str


def read_mutants() -> list[Mutant]:
    """Read the list."""
    table = tomllib.loads(MUTANTS.read_text(encoding="utf-8"))
    return [Mutant(**row) for row in table["mutant"]]


def stale_mutants(mutants: list[Mutant]) -> list[str]:
    """Name mutants whose text does not stand exactly once in its file."""
    return [
        mutant.name
        for mutant in mutants
        if (HOUSE / "crates/machine/src" / mutant.file).read_text("utf-8").count(mutant.find) != 1
    ]


def copy_sources() -> None:
    """Make the scratch copy anew."""
    for name in (*COPIED, *COPIED_FILES):
        source, copy = HOUSE / name, SCRATCH / name
        if source.is_dir():
            shutil.rmtree(copy, ignore_errors=True)
            ignored = shutil.ignore_patterns("__pycache__", "*.so")
            shutil.copytree(source, copy, ignore=ignored)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run something in the scratch copy, with its own package first."""
    environment = os.environ | {
        "PYTHONPATH": f"{SCRATCH / 'src'}:{SCRATCH}",
        # What does not change is compiled once, with everything else.
        "CARGO_TARGET_DIR": str(HOUSE / "target"),
    }
    return subprocess.run(
        command, cwd=SCRATCH, env=environment, capture_output=True, text=True, check=False
    )


def caught_by_crate() -> str | None:
    """Ask the tests of the crate, the searching ones last."""
    # Cheapest first: what most mutants break, the tests beside the code, the long random logs.
    chosen = (
        ("--test", "behaviour", "--", "--skip", "determinism"),
        ("--lib",),
        ("--test", "behaviour", "determinism"),
    )
    for arguments in chosen:
        tested = run("cargo", "test", "-p", "quantumqtt-machine", "--quiet", *arguments)
        if "could not compile" in tested.stderr:
            return COMPILER
        if tested.returncode:
            return f"the crate's tests ({' '.join(arguments)})"
    return None


def caught_by_model() -> str | None:
    """Build the native module beside the copied package and walk it beside the model."""
    built = run("cargo", "build", "-p", "quantumqtt-bridge", "--quiet")
    if built.returncode:
        return COMPILER
    shutil.copy2(HOUSE / "target/debug/lib_core.so", SCRATCH / "src/quantumqtt/_core.abi3.so")
    walked = run(sys.executable, "-m", "tools.model", WALK_STEPS, "--seed", "mutant")
    return "the model" if walked.returncode else None


def caught_by(*, only: str | None) -> str | None:
    """Ask the tests, cheapest first; the one that noticed, or None."""
    noticed = None if only == "model" else caught_by_crate()
    return noticed if noticed or only == "crate" else caught_by_model()


def main() -> int:
    """Try every mutant; the exit status tells whether all were caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these mutants")
    parser.add_argument("--only", choices=["crate", "model"], help="ask only these tests")
    arguments = parser.parse_args()
    mutants = read_mutants()
    if stale := stale_mutants(mutants):
        print(f"no longer found in the sources: {', '.join(stale)}")
        return 1
    copy_sources()
    if noticed := caught_by(only=arguments.only):
        print(f"{noticed} find something without any fault: no verdict on mutants is possible")
        return 1
    survivors = []
    for mutant in mutants:
        if arguments.names and mutant.name not in arguments.names:
            continue
        file = SCRATCH / "crates/machine/src" / mutant.file
        whole = file.read_text(encoding="utf-8")
        file.write_text(whole.replace(mutant.find, mutant.put), encoding="utf-8")
        noticed = caught_by(only=arguments.only)
        file.write_text(whole, encoding="utf-8")
        print(f"{mutant.name}: {f'caught by {noticed}' if noticed else 'SURVIVES'}", flush=True)
        if noticed in (None, COMPILER):
            survivors.append(mutant.name)
    print(f"not caught by a test: {', '.join(survivors) or 'none'}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
