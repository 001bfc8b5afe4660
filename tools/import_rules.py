"""Checks who may import whom, by import-linter, over a mirror of the package.

The linter reads Python source, so two things would escape it: the compiled `_core`, and rules about
rooms that have no folder yet. The mirror supplies both: `_core.pyi` stands in as `_core.py`, and
each room that a contract names gets an empty package if it has none.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HOUSE = Path(__file__).resolve().parent.parent


def named_rooms(pyproject: str) -> set[str]:
    """List the modules directly under `quantumqtt` that the contracts name."""
    rooms: set[str] = set()
    for contract in tomllib.loads(pyproject)["tool"]["importlinter"]["contracts"]:
        for layer in contract.get("layers", []):
            rooms.update(re.findall(r"\w+", layer))
        for key in ("source_modules", "forbidden_modules"):
            for module in contract.get(key, []):
                package, _, room = module.partition(".")
                if package == "quantumqtt":
                    rooms.add(room)
    return rooms


def build_mirror(house: Path, mirror: Path) -> None:
    """Copy the package's source and supply what the linter could not see."""
    package = mirror / "quantumqtt"
    shutil.copytree(
        house / "src" / "quantumqtt",
        package,
        ignore=shutil.ignore_patterns("__pycache__", "*.so"),
    )
    shutil.copy(package / "_core.pyi", package / "_core.py")
    pyproject = (house / "pyproject.toml").read_text(encoding="utf-8")
    (mirror / "pyproject.toml").write_text(pyproject, encoding="utf-8")
    for room in named_rooms(pyproject):
        # `__main__` is no package and `_core` stands in already.
        if room.startswith("_") or (package / f"{room}.py").exists():
            continue
        (package / room).mkdir(exist_ok=True)
        (package / room / "__init__.py").touch()


def check_imports(house: Path) -> tuple[bool, str]:
    """Run every contract over the tree; return whether all are kept, and the linter's words."""
    with tempfile.TemporaryDirectory(prefix="quantumqtt-imports-") as folder:
        mirror = Path(folder)
        build_mirror(house, mirror)
        linter = Path(sys.executable).with_name("lint-imports")
        run = subprocess.run(
            [linter, "--config", "pyproject.toml", "--no-cache"],
            cwd=mirror,
            env={**os.environ, "PYTHONPATH": str(mirror), "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    return run.returncode == 0, run.stdout + run.stderr


def main() -> None:
    """Check the tree; exit 1 when a contract is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("house", nargs="?", type=Path, default=HOUSE, help="another tree")
    kept, words = check_imports(parser.parse_args().house)
    print(words)
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
