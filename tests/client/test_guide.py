"""The guides' snippets and the examples run as they stand there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.node_process import clean_environment

HOUSE = Path(__file__).parents[2]
GUIDES = HOUSE / "docs" / "guides"


def snippets_of(guide: str) -> list[str]:
    text = (GUIDES / f"{guide}.md").read_text("utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


PROGRAMS = [
    pytest.param(snippet, id=f"{guide}-{number}")
    for guide in ("client", "coming-from")
    for number, snippet in enumerate(snippets_of(guide))
]
TESTS = snippets_of("testing")
# Those named log_… read the log with libraries that only the Spark environment has; see there.
EXAMPLES = sorted(
    path for path in (HOUSE / "examples").glob("*.py") if not path.name.startswith("log_")
)
DEADLINE_S = 100.0  # it ends a hang: some snippets are whole test runs


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


@pytest.mark.parametrize("snippet", PROGRAMS)
def test_snippets_of_the_guides_run(snippet: str, our_port: int) -> None:
    names = f"URL = 'mqtt://127.0.0.1:{our_port}'\nHOST, PORT = '127.0.0.1', {our_port}\n"
    run("-c", names + snippet)


def test_tests_of_the_guide_pass(tmp_path: Path) -> None:
    for number, snippet in enumerate(TESTS):
        (tmp_path / f"test_snippet_{number}.py").write_text(snippet, encoding="utf-8")
    said = run(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers"),
        *("--rootdir", str(tmp_path), str(tmp_path)),
    )
    assert f"{len(re.findall('^def test_', ''.join(TESTS), re.MULTILINE))} passed" in said


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(example: Path, our_port: int) -> None:
    assert run(str(example), f"mqtt://127.0.0.1:{our_port}")


def test_there_is_something_to_run() -> None:
    assert len(PROGRAMS) >= 10
    assert len(TESTS) >= 5
    assert EXAMPLES
