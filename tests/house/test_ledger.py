"""The ledger believes tests that passed, and nothing else."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import claims, ledger, results
from tools.claims import Claim, UnclearClaim
from tools.results import RustTest
from tools.system_packages import OPT_OUT

ROWS = """
[SES]
title = "sessions"
[SES.rows]
SES-01 = { text = "A clean connect discards", done = true }
SES-02 = { text = "Resume" }
"""
TEST = 'import pytest\n@pytest.mark.requirement("SES-01")\ndef test_clean() -> None: ...\n'
RUST = "    // req: SES-02\n    #[test]\n    fn resumes() {}\n"
CARGO = """\
     Running unittests src/lib.rs (target/debug/deps/quantumqtt_machine-0123456789abcdef)

running 2 tests
test session::tests::resumes ... ok
test other::resumes ... FAILED
"""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Build a small tree in which everything is in order."""
    for name, text in {
        "docs/reference/requirements.toml": ROWS,
        "tests/unit/test_session.py": TEST,
        "crates/machine/src/session.rs": RUST,
        "target/results/crates.txt": CARGO,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    record(tmp_path, "passed")
    ledger.write(tmp_path)
    return tmp_path


def record(house: Path, outcome: str) -> None:
    """Write what a run of the one Python test would leave."""
    outcomes = {"tests/unit/test_session.py::test_clean": outcome}
    file = house / results.FOLDER / "python-fast.json"
    file.write_text(json.dumps(outcomes), encoding="utf-8")


def run_check(house: Path) -> tuple[int, str]:
    """Run the check as the gate does."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.ledger", "--check", "--house", str(house)],
        cwd=ledger.HOUSE,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_honest_ledger_is_accepted(house: Path) -> None:
    status, words = run_check(house)
    assert status == 0, words
    # The sample of cargo's output holds one test that failed, and no row rests on it.
    assert "tests: 2 passed (1 in Python, 1 in Rust), 1 failed" in words


def plant_claim_without_test(house: Path) -> None:
    rows = ROWS.replace('"Resume"', '"Resume", done = true')
    (house / "docs/reference/requirements.toml").write_text(rows, encoding="utf-8")
    (house / "crates/machine/src/session.rs").write_text("", encoding="utf-8")
    ledger.write(house)


def plant_failing_test(house: Path) -> None:
    record(house, "failed")


def plant_test_that_never_ran(house: Path) -> None:
    (house / results.FOLDER / "python-fast.json").unlink()


def plant_unknown_row(house: Path) -> None:
    source = TEST.replace("SES-01", "SES-77")
    (house / "tests/unit/test_more.py").write_text(source, encoding="utf-8")
    ledger.write(house)


def plant_stale_page(house: Path) -> None:
    (house / "docs/reference/coverage.md").write_text("old\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("plant", "named"),
    [
        (plant_claim_without_test, "SES-02 is listed as done, and no test claims it"),
        (plant_failing_test, "SES-01 is listed as done, and tests/unit/test_session.py"),
        (plant_test_that_never_ran, "SES-01 is listed as done, and none of its tests ran"),
        (plant_unknown_row, "test_more.py::test_clean claims SES-77"),
        (plant_stale_page, "coverage.md is stale"),
    ],
)
def test_planted_false_claim_is_rejected(
    house: Path, plant: Callable[[Path], None], named: str
) -> None:
    plant(house)
    status, words = run_check(house)
    assert status != 0
    assert named in words


def test_row_left_out_on_purpose_is_named_and_no_failure(
    house: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(house, "left out")
    monkeypatch.delenv(OPT_OUT, raising=False)
    assert run_check(house)[0] != 0
    monkeypatch.setenv(OPT_OUT, "1")
    status, words = run_check(house)
    assert status == 0
    assert "not shown in this run, on purpose: SES-01" in words


def test_page_says_how_far_each_row_has_come(house: Path) -> None:
    page = (house / "docs/reference/coverage.md").read_text(encoding="utf-8")
    assert "2 rows: 1 done, 1 partly, 0 planned." in page
    assert "| SES-02 | Resume | partly | `crates/machine/src/session.rs::resumes` |" in page


def test_rust_outcome_is_that_of_the_same_module() -> None:
    claim = Claim("SES-02", "crates/machine/src/session.rs", "resumes")
    passed, failed = results.read_rust(CARGO)
    assert passed == RustTest("quantumqtt_machine", "session::tests::resumes", "passed")
    assert ledger.is_same_test(claim, passed)
    assert not ledger.is_same_test(claim, failed)


@pytest.mark.parametrize(
    ("file", "program", "path"),
    [
        ("crates/topics/src/lib.rs", "quantumqtt_topics", "tests::works"),
        ("crates/topics/src/trie/tests.rs", "quantumqtt_topics", "trie::tests::works"),
        ("crates/topics/src/trie/mod.rs", "quantumqtt_topics", "trie::works"),
        ("crates/node/tests/walk.rs", "walk", "works"),
        ("crates/node/tests/walk/main.rs", "walk", "inner::works"),
        ("fuzz/tests/corpus.rs", "corpus", "works"),
        ("fuzz/src/entry.rs", "quantumqtt_fuzz", "entry::works"),
    ],
)
def test_rust_file_is_matched_with_its_program(file: str, program: str, path: str) -> None:
    assert ledger.is_same_test(Claim("X", file, "works"), RustTest(program, path, "passed"))


def test_python_claims_are_found_wherever_a_mark_may_stand() -> None:
    source = """
import pytest
pytestmark = [pytest.mark.requirement("GEN-01"), pytest.mark.slow]
@pytest.mark.requirement("WIRE-01", "WIRE-02")
class TestPair:
    @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.requirement("WIRE-03"))])
    async def test_one(self, x: int) -> None: ...
def test_two() -> None: ...
def helper() -> None: ...
"""
    found = {(c.requirement, c.function) for c in claims.python_claims(source, "tests/t.py")}
    assert found == {
        *((row, "TestPair::test_one") for row in ("GEN-01", "WIRE-01", "WIRE-02", "WIRE-03")),
        ("GEN-01", "test_two"),
    }


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.mark.requirement(ROW)\ndef test_x(): ...\n",
        '@pytest.mark.requirement("ses-1")\ndef test_x(): ...\n',
        '@pytest.mark.requirement("SES-01")\ndef build(): ...\n',
    ],
)
def test_python_claim_that_cannot_be_read_is_refused(source: str) -> None:
    with pytest.raises(UnclearClaim):
        list(claims.python_claims(source, "tests/t.py"))


def test_rust_claims_stand_above_attributes_and_inside_macros() -> None:
    source = """
        // req: WIRE-06, WIRE-07
        // Splits anywhere.
        #[test]
        fn chunks(bytes in any_bytes()) {
        // an ordinary remark
        #[test]
        fn other() {}
"""
    found = [(c.requirement, c.function) for c in claims.rust_claims(source, "crates/x/src/a.rs")]
    assert found == [("WIRE-06", "chunks"), ("WIRE-07", "chunks")]


@pytest.mark.parametrize("source", ["// req: WIRE-06\nlet x = 1;\n", "// req: WIRE-06\n"])
def test_rust_claim_above_no_test_is_refused(source: str) -> None:
    with pytest.raises(UnclearClaim):
        list(claims.rust_claims(source, "crates/x/src/a.rs"))


def test_every_row_of_the_catalogue_is_here_once() -> None:
    areas = ledger.read_areas((ledger.HOUSE / ledger.ROWS).read_text(encoding="utf-8"))
    rows = [row.id for area in areas for row in area.rows]
    assert len(rows) == len(set(rows)) == 495


def test_row_in_the_wrong_area_is_refused() -> None:
    with pytest.raises(ValueError, match="QOS-01"):
        ledger.read_areas('[SES]\ntitle = "s"\n[SES.rows]\nQOS-01 = { text = "wrong" }\n')
