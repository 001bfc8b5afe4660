"""The program `quantumqtt`, by its quickest way.

`pub`, `sub` and `rr` are called in loops and by impatient people, and everybody waits for `serve`,
so these load nothing but themselves; everything else goes through the whole command line.
"""

import importlib
import sys
from typing import Final

_QUICK: Final = {"pub": "pub", "sub": "sub", "rr": "rr", "serve": "serving"}


def main() -> None:
    """Run the command line; ends the process with an exit code."""
    if len(sys.argv) > 1 and sys.argv[1] in _QUICK:
        program = importlib.import_module(f"quantumqtt.cli.{_QUICK[sys.argv[1]]}")
        sys.exit(program.run(sys.argv[2:]))
    from quantumqtt.cli.main import main as whole

    whole()


if __name__ == "__main__":
    main()
