"""`quantumqtt check-config FILE`: judge a configuration file without starting anything."""

import json
from pathlib import Path
from typing import Annotated

import typer

from quantumqtt.cli.failures import ExitCode, report
from quantumqtt.config import load_settings, read_mosquitto_conf, split_error
from quantumqtt.errors import ConfigError
from quantumqtt.node import load_contexts
from quantumqtt.policy import Access


def check_config(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="TOML file to check, or a mosquitto.conf if it ends so."
        ),
    ],
    json_wanted: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check a configuration file; report every problem with line, key, value and remedy.

    The users, rules and certificates it names are read, too. Only files are judged:
    flags and environment of a later start may still change the result.
    """
    notes: tuple[str, ...] = ()
    try:
        if file.suffix == ".conf":
            notes = read_mosquitto_conf(file).ignored
            settings = load_settings(mosquitto_conf=file, read_environment=False)
        else:
            settings = load_settings(file=file, read_environment=False)
        Access.load(settings)
        load_contexts(settings)
    except ConfigError as error:
        if json_wanted:
            print(_document(file, error, notes))
        else:
            report(error)
        raise typer.Exit(ExitCode.USAGE) from error
    if json_wanted:
        print(_document(file, None, notes))
        return
    for note in notes:
        print(f"note: {note}")
    print(f"{file}: ok")


def _document(file: Path, error: ConfigError | None, notes: tuple[str, ...]) -> str:
    pairs = [] if error is None else split_error(error)
    problems = [{"problem": line, "remedy": remedy} for line, remedy in pairs]
    return json.dumps(
        {"file": str(file), "ok": error is None, "problems": problems, "notes": notes}
    )
