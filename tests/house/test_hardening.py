"""Every old wound of `docs/reference/hardening.toml` has a test, and the page says which."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import hardening, results

ROWS = """
[parsing]
title = "Parsing"
[parsing.rows.deep]
seen = "CVE-1"
cause = "recursion"
holds = "none"
[parsing.rows.later]
seen = "CVE-2"
cause = "frames"
holds = "lies close"
waits = "frames"
"""
TEST = 'import pytest\n@pytest.mark.hardening("deep")\ndef test_deep() -> None: ...\n'
RUST = "    // hardening: deep\n    #[test]\n    fn deepest() {}\n"
CARGO = """\
     Running tests/corpus.rs (target/debug/deps/corpus-0123456789abcdef)
test deepest ... ok
"""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Build a small tree in which everything is in order."""
    for name, text in {
        hardening.ROWS: ROWS,
        Path("tests/hardening/test_deep.py"): TEST,
        Path("fuzz/tests/corpus.rs"): RUST,
        results.FOLDER / results.CRATES: CARGO,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    record(tmp_path, "passed")
    hardening.write(tmp_path)
    return tmp_path


def record(house: Path, outcome: str) -> None:
    """Write what a run of the one Python test would leave."""
    file = house / results.FOLDER / "python-whole.json"
    outcomes = {"tests/hardening/test_deep.py::test_deep": outcome}
    file.write_text(json.dumps(outcomes), encoding="utf-8")


def test_this_tree_has_a_test_for_every_old_wound() -> None:
    assert hardening.check_sources(hardening.HOUSE) == []


def test_a_tree_in_order_has_no_fault(house: Path) -> None:
    assert hardening.check(house) == []
    page = (house / hardening.PAGE).read_text(encoding="utf-8")
    assert "`fuzz/tests/corpus.rs::deepest`<br>`tests/hardening/test_deep.py::test_deep`" in page
    assert "*waits for frames*" in page


def replace(name: Path | str, old: str, new: str) -> Callable[[Path], None]:
    """Plan to damage one file."""

    def damage(house: Path) -> None:
        text = (house / name).read_text(encoding="utf-8")
        assert old in text
        (house / name).write_text(text.replace(old, new), encoding="utf-8")

    return damage


def both(one: Callable[[Path], None], other: Callable[[Path], None]) -> Callable[[Path], None]:
    """Plan to damage two."""

    def damage(house: Path) -> None:
        one(house)
        other(house)

    return damage


PYTHON = "tests/hardening/test_deep.py"


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        pytest.param(
            both(
                replace(PYTHON, "@pytest", "# pytest"),
                replace("fuzz/tests/corpus.rs", "// hardening: deep", ""),
            ),
            "deep has no test",
            id="no-test",
        ),
        pytest.param(replace(PYTHON, '"deep"', '"shallow"'), "claims shallow", id="no-row"),
        pytest.param(replace(PYTHON, '"deep"', '"deep", "later"'), "still says", id="waits"),
        pytest.param(replace(hardening.PAGE, "CVE-1", "CVE-9"), "is stale", id="stale"),
        pytest.param(replace(hardening.ROWS, '"CVE-1"', '""'), "empty part", id="empty"),
        pytest.param(lambda house: record(house, "failed"), "test_deep fails", id="failed"),
        pytest.param(
            replace(results.FOLDER / results.CRATES, "test deepest", "test other"),
            "deepest did not run",
            id="not-run",
        ),
        pytest.param(
            both(
                lambda house: record(house, "left out"),
                replace(results.FOLDER / results.CRATES, "... ok", "... ignored"),
            ),
            "none of its tests passed",
            id="all-left-out",
        ),
    ],
)
def test_a_row_that_is_not_shown_is_red(
    house: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Path], None],
    fault: str,
) -> None:
    monkeypatch.delenv("QUANTUMQTT_WITHOUT_SYSTEM_PACKAGES", raising=False)
    damage(house)
    assert any(fault in line for line in hardening.check(house)), hardening.check(house)
