"""Runs `quantumqtt pub|sub|rr` and the stock programs in the same way."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.harness.node_process import clean_environment
from tests.harness.ports import LOOPBACK

DEADLINE_S = 30.0
OURS = (sys.executable, "-m", "quantumqtt")


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program ended, and what it said."""

    code: int
    output: bytes
    complaint: str


class Programs:
    """The three programs, twice, against one broker."""

    def __init__(self, port: int, home: Path) -> None:
        self.port = port
        self.home = home

    def run(self, program: tuple[str, ...], *arguments: str, stdin: bytes = b"") -> Ran:
        """Run one program to its end; no configuration file of this user is read."""
        ran = subprocess.run(
            [*program, *arguments],
            input=stdin,
            env={**clean_environment(), "XDG_CONFIG_HOME": str(self.home), "TZ": "UTC"},
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr.decode())

    def ours(self, command: str, *arguments: str, stdin: bytes = b"") -> Ran:
        """Run our program against the broker."""
        return self.run((*OURS, command, *self._place()), *arguments, stdin=stdin)

    def stock(self, command: str, *arguments: str, stdin: bytes = b"") -> Ran:
        """Run Mosquitto's program against the broker."""
        return self.run((f"mosquitto_{command}", *self._place()), *arguments, stdin=stdin)

    def both(self, command: str, *arguments: str, stdin: bytes = b"") -> tuple[Ran, Ran]:
        """Run the stock program, then ours."""
        stock = self.stock(command, *arguments, stdin=stdin)
        return stock, self.ours(command, *arguments, stdin=stdin)

    def _place(self) -> tuple[str, ...]:
        return ("-h", LOOPBACK, "-p", str(self.port))
