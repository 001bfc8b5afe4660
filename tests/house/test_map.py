"""The map names files that exist, and answers what a newcomer asks first."""

import re
from pathlib import Path
from typing import Final

import pytest

from tools.setup import HOUSE

MAP: Final = (HOUSE / "ARCHITECTURE.md").read_text(encoding="utf-8")
# Where a short name such as `node/registry.rs` may begin; the last is for names without a folder.
ROOTS: Final = (
    *(HOUSE, HOUSE / "crates", HOUSE / "src" / "quantumqtt", HOUSE / "tests"),
    *sorted(HOUSE.glob("crates/*/src")),
    *sorted(path for path in (HOUSE / "src" / "quantumqtt").iterdir() if path.is_dir()),
)
NAMED: Final = sorted(set(re.findall(r"`([\w/]+\.(?:rs|py|pyi|md|toml))`", MAP)))


def found(name: str) -> Path | None:
    """Find the file a name on the map stands for: `wire/connect.rs` is `crates/wire/src/…`."""
    crate, _, rest = name.partition("/")
    short = [root / name for root in ROOTS] + [HOUSE / "crates" / crate / "src" / rest]
    return next((path for path in short if path.is_file()), None)


def test_every_file_on_the_map_exists() -> None:
    assert len(NAMED) > 25
    assert [name for name in NAMED if found(name) is None] == []


@pytest.mark.parametrize(
    ("question", "file", "word"),
    [
        ("second client connects with the same id", "node/registry.rs", "claim"),
        ("Adding a property to PUBLISH", "crates/wire/src/property.rs", "enum PropertyId"),
        ("Adding a property to PUBLISH", "crates/wire/src/properties.rs", "FORWARDED"),
    ],
)
def test_a_newcomers_question_is_answered_by_a_file_that_does_it(
    question: str, file: str, word: str
) -> None:
    paragraph = next(part for part in MAP.split("\n\n") if question in " ".join(part.split()))
    assert f"`{file}`" in paragraph
    path = found(file)
    assert path is not None
    assert re.search(rf"\b{word}", path.read_text(encoding="utf-8"))
