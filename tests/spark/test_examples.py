"""The examples do what they say; they run here because their libraries are installed here."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.spark.conftest import Source

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("name", ["log_with_polars.py", "log_with_duckdb.py"])
def test_example_counts_topics(source: "Source", name: str) -> None:
    ran = subprocess.run(
        [sys.executable, EXAMPLES / name, source.endpoint],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stderr
    assert "plant/a/temperature" in ran.stdout
    assert ("334" if "duckdb" in name else "501") in ran.stdout
