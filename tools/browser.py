"""`just browser`: MQTT.js in the distribution's Chromium, when both can be had.

Not part of the gate: it wants a browser of some hundred megabytes and, once, the npm registry. What
is missing is named and the recipe ends with the reason; nothing is installed system-wide.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tools.system_packages import find_program

HOUSE = Path(__file__).resolve().parent.parent
FOLDER = HOUSE / "tests" / "browser"


def missing() -> str | None:
    """Name what is not here, with the remedy."""
    if find_program(os.environ.get("CHROMIUM", "chromium")) is None:
        return "chromium is not installed: apt-get install chromium, or name it in CHROMIUM"
    if not (FOLDER / "node_modules" / "mqtt").exists() and find_program("npm") is None:
        return "npm is not installed: apt-get install npm, to fetch MQTT.js once"
    return None


def fetch() -> None:
    """Fetch MQTT.js as the lock file pins it, without running any of its scripts."""
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(command, cwd=FOLDER, check=True)


def main() -> None:
    """Fetch what is missing and run the tests."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    if (reason := missing()) is not None:
        sys.exit(f"not run: {reason}")
    if not (FOLDER / "node_modules" / "mqtt").exists():
        fetch()
    command = [sys.executable, "-m", "pytest", "-q", "tests/browser"]
    sys.exit(subprocess.run(command, cwd=HOUSE, check=False).returncode)


if __name__ == "__main__":
    main()
