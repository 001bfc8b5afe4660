"""`quantumqtt check-config FILE`: judge a configuration file without starting anything."""

import json
from pathlib import Path
from typing import Annotated

import typer

from quantumqtt.cli.failures import ExitCode, report
from quantumqtt.config import load_settings, split_error
from quantumqtt.errors import ConfigError


def check_config(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML file to check.")],
    json_wanted: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check a configuration file; report every problem with line, key, value and remedy.

    Only the file is judged: flags and environment of a later start may still change the result.
    """
    try:
        load_settings(file=file, read_environment=False)
    except ConfigError as error:
        if json_wanted:
            print(_document(file, error))
        else:
            report(error)
        raise typer.Exit(ExitCode.USAGE) from error
    print(_document(file, None) if json_wanted else f"{file}: ok")


def _document(file: Path, error: ConfigError | None) -> str:
    pairs = [] if error is None else split_error(error)
    problems = [{"problem": line, "remedy": remedy} for line, remedy in pairs]
    return json.dumps({"file": str(file), "ok": error is None, "problems": problems})
