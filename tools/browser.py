"""`just browser`: MQTT.js in the distribution's Chromium and under Node, when they can be had.

Not part of the gate: it wants a browser of some hundred megabytes and, once, the npm registry. What
is missing is named and the recipe ends with the reason; nothing is installed system-wide. `--node`
leaves the browser out.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tools.system_packages import find_program

HOUSE = Path(__file__).resolve().parent.parent
FOLDER = HOUSE / "tests" / "browser"


def missing(*, browser: bool) -> str | None:
    """Name what is not here, with the remedy."""
    if find_program("node") is None:
        return "node is not installed: apt-get install nodejs"
    if browser and find_program(os.environ.get("CHROMIUM", "chromium")) is None:
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node", action="store_true", help="only MQTT.js under Node")
    asked = parser.parse_args()
    if (reason := missing(browser=not asked.node)) is not None:
        sys.exit(f"not run: {reason}")
    if not (FOLDER / "node_modules" / "mqtt").exists():
        fetch()
    tests = "tests/browser/test_mqtt_js_in_node.py" if asked.node else "tests/browser"
    command = [sys.executable, "-m", "pytest", "-q", tests]
    sys.exit(subprocess.run(command, cwd=HOUSE, check=False).returncode)


if __name__ == "__main__":
    main()
