"""The guide's snippets and the examples run as they stand there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.node_process import clean_environment

HOUSE = Path(__file__).parents[2]
GUIDE = HOUSE / "docs" / "guides" / "client.md"
SNIPPETS = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), flags=re.DOTALL | re.MULTILINE)
EXAMPLES = sorted((HOUSE / "examples").glob("*.py"))
DEADLINE_S = 30.0


def run(*arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippets_of_the_guide_run(number: int, our_port: int) -> None:
    run("-c", f"URL = 'mqtt://127.0.0.1:{our_port}'\n{SNIPPETS[number]}")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(example: Path, our_port: int) -> None:
    assert run(str(example), f"mqtt://127.0.0.1:{our_port}")


def test_there_is_something_to_run() -> None:
    assert len(SNIPPETS) >= 5
    assert EXAMPLES
