"""Patterns that may backtrack never meet what clients send.

Python's `re` can take exponential time on a text somebody chose. Topics, ids and payloads are
matched natively and in linear time; each module of the broker's side that reads other texts with
`re` is named here, with whose texts they are.
"""

import ast
from pathlib import Path
from typing import Final

import pytest

from tools.setup import HOUSE

SOURCE: Final = HOUSE / "src" / "quantumqtt"
ROOMS: Final = (
    *("api", "config", "connectors", "control", "flight", "mqtt", "node", "operations"),
    *("policy", "sqs"),
)
PATTERNS: Final = {"re", "fnmatch", "regex", "glob"}
WHOSE_TEXTS: Final = {
    "api/page.py": "our own page, once at start",
    "config/listen.py": "the operator's addresses",
    "config/listeners.py": "the operator's listener tables",
    "config/sources.py": "the operator's files",
    "policy/rule_file.py": "the operator's rules",
}


def imported_modules(source: str) -> set[str]:
    """List the first words of everything a module imports."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.hardening("linear-patterns")
def test_no_pattern_meets_what_clients_send() -> None:
    files = [file for room in ROOMS for file in sorted((SOURCE / room).rglob("*.py"))]
    assert len(files) > 20
    users = {
        file.relative_to(SOURCE).as_posix()
        for file in files
        if imported_modules(file.read_text(encoding="utf-8")) & PATTERNS
    }
    assert users <= WHOSE_TEXTS.keys(), "whose texts are these? name them, or match without `re`"


@pytest.mark.parametrize("planted", ["import re", "from fnmatch import fnmatch", "import re as x"])
def test_a_planted_pattern_would_be_seen(planted: str) -> None:
    assert imported_modules(f"import os\n{planted}\n") & PATTERNS
    assert not imported_modules(Path(__file__).read_text(encoding="utf-8")) & PATTERNS
