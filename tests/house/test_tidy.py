"""The rules about files hold for this tree, and each sees the fault it is there to see."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools import tidy

Rule = Callable[[Path], Iterator[str]]


@pytest.mark.parametrize("rule", tidy.RULES, ids=lambda rule: rule.__name__)
def test_rule_holds_in_this_tree(rule: Rule) -> None:
    assert list(rule(tidy.HOUSE)) == []


def plant(house: Path, name: str, text: str) -> None:
    file = house / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("x = 1\n" * 1_300, "1301 lines"),
        ("x = '" + "a" * 100 + "'\n", ":1: 106 columns"),
        ("if x:\n\ty = 1\n", ":2: a tab"),
        ("x = 1 \n", ":1: space at the end"),
        ("x = 1", "no newline"),
    ],
)
def test_untidy_shape_is_seen(tmp_path: Path, text: str, named: str) -> None:
    plant(tmp_path, "src/room.py", text)
    (fault,) = tidy.find_shape_faults(tmp_path)
    assert fault.startswith("src/room.py")
    assert named in fault


@pytest.mark.parametrize(
    "line",
    [
        "# TO" + "DO: later",
        "// FIX" + "ME",
        "    db" + "g!(x);",
        "    to" + "do!()",
        "    break" + "point()",
        'DATA = "/ro' + 'ot/data"',
        'DATA = "/ho' + 'me/somebody/data"',
    ],
)
def test_leftover_is_seen(tmp_path: Path, line: str) -> None:
    plant(tmp_path, "crates/wire/src/lib.rs", f"fine\n{line}\n")
    (fault,) = tidy.find_leftovers(tmp_path)
    assert fault.startswith("crates/wire/src/lib.rs:2:")


@pytest.mark.parametrize(
    "line", ["# TO" + "DO(#12): later", "a/root/b is a topic", "https://host/root/x"]
)
def test_what_only_looks_like_a_leftover_passes(tmp_path: Path, line: str) -> None:
    plant(tmp_path, "tests/test_x.py", f"{line}\n")
    assert list(tidy.find_leftovers(tmp_path)) == []


def test_broken_link_and_broken_anchor_are_seen(tmp_path: Path) -> None:
    plant(tmp_path, "docs/there.md", "# The *one* heading, here\n")
    plant(
        tmp_path,
        "README.md",
        "[a](docs/there.md#the-one-heading-here) [b](docs/gone.md) [c](docs/there.md#other)\n"
        "[d](https://example.org/gone)\n```\n[e](gone.md)\n```\n",
    )
    assert [
        fault.split("link to ")[1].split(",")[0] for fault in tidy.find_broken_links(tmp_path)
    ] == ["docs/gone.md", "docs/there.md#other"]


def test_room_missing_on_the_map_is_seen(tmp_path: Path) -> None:
    plant(tmp_path, "ARCHITECTURE.md", "The `wire` crate and the `node` package.\n")
    plant(tmp_path, "crates/wire/Cargo.toml", "")
    plant(tmp_path, "src/quantumqtt/node/__init__.py", "")
    plant(tmp_path, "src/quantumqtt/attic/__init__.py", "")
    (fault,) = tidy.find_unmapped_rooms(tmp_path)
    assert "src/quantumqtt/attic" in fault


def test_tree_without_a_map_is_seen(tmp_path: Path) -> None:
    (fault,) = tidy.find_unmapped_rooms(tmp_path)
    assert "ARCHITECTURE.md" in fault


def test_module_that_nothing_imports_is_seen(tmp_path: Path) -> None:
    plant(tmp_path, "src/quantumqtt/room/__init__.py", "from quantumqtt.room import used\n")
    plant(tmp_path, "src/quantumqtt/room/used.py", "")
    plant(tmp_path, "src/quantumqtt/room/forgotten.py", "")
    plant(tmp_path, "src/quantumqtt/main.py", "")
    plant(tmp_path, "pyproject.toml", 'script = "quantumqtt.main:main"\n')
    (fault,) = tidy.find_dead_python(tmp_path)
    assert fault.startswith("src/quantumqtt/room/forgotten.py")


def test_rust_file_outside_the_module_tree_is_seen(tmp_path: Path) -> None:
    plant(tmp_path, "crates/wire/src/lib.rs", "mod used;\npub(crate) mod trie;\n")
    plant(tmp_path, "crates/wire/src/used.rs", "")
    plant(tmp_path, "crates/wire/src/trie.rs", "#[cfg(test)]\nmod tests;\n")
    plant(tmp_path, "crates/wire/src/trie/tests.rs", "")
    plant(tmp_path, "crates/wire/src/trie/forgotten.rs", "")
    plant(tmp_path, "crates/wire/tests/program.rs", "")
    (fault,) = tidy.find_dead_rust(tmp_path)
    assert fault.startswith("crates/wire/src/trie/forgotten.rs")


def test_native_part_outgrowing_python_is_seen(tmp_path: Path) -> None:
    plant(tmp_path, "src/a.py", "\n" * 10)
    plant(tmp_path, "crates/a/src/lib.rs", "\n" * 30)
    assert list(tidy.find_language_fault(tmp_path)) == []
    plant(tmp_path, "crates/a/src/more.rs", "\n")
    assert len(list(tidy.find_language_fault(tmp_path))) == 1


def test_misnamed_fragment_is_seen(tmp_path: Path) -> None:
    plant(tmp_path, "changes/good-one.fix.md", "Better.\n")
    plant(tmp_path, "changes/README.md", "about\n")
    plant(tmp_path, "changes/no-kind.md", "What?\n")
    plant(tmp_path, "changes/nothing.fix.md", "\n")
    faults = list(tidy.find_fragment_faults(tmp_path))
    assert [fault.split(":")[0] for fault in faults] == [
        "changes/no-kind.md",
        "changes/nothing.fix.md",
    ]
