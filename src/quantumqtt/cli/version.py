"""`quantumqtt version`: what is installed, for bug reports."""

import json
import platform
from typing import Annotated

import typer

from quantumqtt import __version__
from quantumqtt.node import build_facts


def version(
    json_wanted: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the versions of the package, its native module and Python."""
    facts = {
        "quantumqtt": __version__,
        "python": platform.python_version(),
        **{f"native_{key}": value for key, value in build_facts().items()},
    }
    if json_wanted:
        print(json.dumps(facts))
        return
    for name, value in facts.items():
        print(f"{name} {value}")
