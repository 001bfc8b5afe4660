"""Fragments become a release in the changelog, sorted by kind, newest release on top."""

import datetime

import pytest

from tools import changelog

DAY = datetime.date(2030, 5, 4)
EMPTY = f"# Changelog\n\n{changelog.MARK}\n"


def test_fragments_are_joined_by_kind_in_the_order_readers_need() -> None:
    fragments = {"b.fix.md": "Mended.\n", "a.removal.md": "Gone.\nUse the other.\n"}
    page = changelog.join(EMPTY, fragments, "0.2.0", DAY)
    assert page == (
        f"{EMPTY}\n## 0.2.0 — 2030-05-04\n"
        "\n### Removed or incompatible\n\n- Gone.\n  Use the other.\n"
        "\n### Fixed\n\n- Mended.\n"
    )


def test_later_release_stands_above_the_earlier_one() -> None:
    page = changelog.join(EMPTY, {"a.fix.md": "One."}, "0.2.0", DAY)
    page = changelog.join(page, {"b.fix.md": "Two."}, "0.3.0", DAY)
    assert page.index("0.3.0") < page.index("Two.") < page.index("0.2.0") < page.index("One.")


def test_changelog_without_its_mark_is_refused() -> None:
    with pytest.raises(ValueError, match="lost its line"):
        changelog.join("# Changelog\n", {"a.fix.md": "One."}, "0.2.0", DAY)
