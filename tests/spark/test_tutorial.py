"""The ten-minute tutorial does what it says, block by block, with the default ports."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.tutorial import blocks

HOUSE = Path(__file__).resolve().parents[2]
PAGE = HOUSE / "docs" / "guides" / "ten-minutes.md"


@pytest.mark.night
@pytest.mark.timeout(1_800)
def test_every_block_of_the_tutorial_works(tmp_path: Path) -> None:
    ran = subprocess.run(
        # A network of its own: 1883, 8080 and 8815 are free there, and nothing is fetched.
        ["unshare", "-rn", sys.executable, "-m", "tests.harness.tutorial", PAGE, tmp_path],
        cwd=HOUSE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr + ran.stdout
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    for block in told:
        assert block["code"] == 0, f"{block['text']}\n{block['said']}\n{block['complaints']}"
    assert len(told) == len(list(blocks(PAGE.read_text("utf-8")))) == 8
    said = {block["text"].splitlines()[0]: block["said"] for block in told}
    by_word = {word: text for word in WANTED for first, text in said.items() if word in first}
    assert by_word["climate"].count("celsius") == 3
    assert by_word["status"].count('"online": true') == 5
    assert "I was here" in by_word["offsets"]
    assert "quantumqtt_pipeline_lag_rows" in by_word["$SYS"]
    assert "north" in by_word["DeltaTable"], "the query has an answer"
    assert "climate" in by_word["Counter"]


WANTED = ("climate", "status", "offsets", "$SYS", "DeltaTable", "Counter")
