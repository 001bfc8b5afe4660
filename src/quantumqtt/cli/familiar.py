"""`pub`, `sub` and `rr` inside the whole command line.

They read their own arguments, as Mosquitto's clients do: `-h` is a host there. So their commands
only pass words on, and show the help those programs make themselves.
"""

from typing import Final, Protocol

import typer
from typer.core import TyperCommand

from quantumqtt.cli import pub, rr, sub
from quantumqtt.cli.mosquitto.help import PURPOSE, help_text

_PROGRAMS: Final = {"pub": pub.run, "sub": sub.run, "rr": rr.run}


class _Words(Protocol):
    """What we need of typer's context."""

    args: list[str]


class FamiliarCommand(TyperCommand):
    """A command whose words are read by somebody else."""

    def parse_args(self, ctx: _Words, args: list[str]) -> list[str]:
        """Keep every word, `--help` included."""
        ctx.args = list(args)
        return []

    def invoke(self, ctx: _Words) -> None:
        """Run the program.

        Raises:
            typer.Exit: Always, with its exit code.
        """
        raise typer.Exit(_PROGRAMS[str(self.name)](ctx.args))

    def get_help(self, ctx: _Words) -> str:
        """The help that the program prints itself."""
        return help_text(str(self.name))


def add_familiar(app: typer.Typer) -> None:
    """Add the three commands."""
    for name, purpose in PURPOSE.items():
        app.command(name, cls=FamiliarCommand, help=purpose)(_never_called)


def _never_called() -> None:
    """`FamiliarCommand` does not come this way."""
