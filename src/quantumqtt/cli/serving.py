"""`quantumqtt serve` without the rest of the command line: a broker starts in half the time.

The program is the whole one's in every word; it only has one command.
"""

from typing import Final

import typer

from quantumqtt.cli.serve import serve

_NAME: Final = "quantumqtt"


def run(arguments: list[str]) -> int:
    """Run the program; ends the process with an exit code of `ExitCode`."""
    app = typer.Typer(
        name=_NAME,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    # With a callback the only command keeps its name.
    app.callback()(_nothing)
    app.command()(serve)
    app(["serve", *arguments], prog_name=_NAME)
    return 0


def _nothing() -> None:
    pass
