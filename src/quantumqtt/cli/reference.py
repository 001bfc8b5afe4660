"""Writes `docs/reference/cli.md` from the commands themselves.

Run `python -m quantumqtt.cli.reference > docs/reference/cli.md`; a test compares.
"""

import sys
from collections.abc import Iterator
from typing import Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from quantumqtt.cli.failures import EXIT_CODE_MEANINGS
from quantumqtt.cli.main import app

_WIDTH: Final = 100

_INTRODUCTION: Final = """\
# Command line

Generated from `quantumqtt.cli`; do not edit by hand. `qmq` is a short name for the same program.

`serve` prints one line on standard output when clients may come, and everything else on standard
error:

    ready tcp://127.0.0.1:1883 admin http://127.0.0.1:8080

With `--json` the line is an object with the keys `ready`, `listeners`, `admin` (null when off),
`durability`, `pid` and `version`.

SIGTERM and SIGINT drain and end with 0; a second one ends at once. SIGHUP reads the configuration
again and takes over what can change without dropping clients: users, rules and the log level.

Every option of `serve` except `--config`, `--mosquitto-conf`, `--check-config` and `--json` is also
a configuration key; see
[configuration](configuration.md).
"""


def render() -> str:
    """Render the whole page."""
    parts = [_INTRODUCTION, "## Exit codes\n", "| Code | Meaning |", "| --- | --- |"]
    parts += [f"| {int(code)} | {meaning} |" for code, meaning in EXIT_CODE_MEANINGS.items()]
    group = get_command(app)
    if isinstance(group, TyperGroup):
        parts += _commands(group, "quantumqtt")
    return "\n".join(parts) + "\n"


def _commands(group: TyperGroup, before: str) -> Iterator[str]:
    for name, command in group.commands.items():
        context = typer.Context(
            command,
            info_name=f"{before} {name}",
            terminal_width=_WIDTH,
            max_content_width=_WIDTH,
        )
        if isinstance(command, TyperGroup):
            yield from _commands(command, f"{before} {name}")
        else:
            yield f"\n## `{before} {name}`\n\n```text\n{command.get_help(context)}\n```"


if __name__ == "__main__":
    sys.stdout.write(render())
