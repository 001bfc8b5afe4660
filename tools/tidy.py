"""House rules about files, as plain functions: each returns what it found, one line per fault.

tests/house/test_tidy.py shows that every rule sees what it is there to see; `just house-rules` runs
them all over the tree.
"""

import argparse
import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tools import changelog

HOUSE = Path(__file__).resolve().parent.parent

LINES_MAX = 1_200
COLUMNS_MAX = 100
# Python, tests included, is meant to be the larger part. The native rooms are built first, so the
# bound is generous; the figure is printed at every run.
RUST_TO_PYTHON_MAX = 3.0

_FOLDERS_SKIPPED = {
    ".git",
    ".venv",
    ".venv-spark",
    ".venv-spark42",
    ".hypothesis",
    "target",
    "dist",
    "build",
    "__pycache__",
    "data",
    "node_modules",
}
_CODE = {".py", ".pyi", ".rs"}
_PROSE = {".md", ".toml", ".html", ".js", ".css", ".sh", ".txt", ".yml", ".yaml", ".json"}
# Spelled with a class of one letter, so that this file does not find itself.
_LEFTOVERS = (
    (re.compile(r"\bTOD[O]\b(?!.*(?:#\d+|/issues/\d+))"), "a to-do carries a link to its issue"),
    (re.compile(r"\bFIXM[E]\b|\bXX[X]\b"), "a marker left behind"),
    (re.compile(r"\b(?:db[g]|tod[o]|unimplemente[d])!\("), "a macro of unfinished code"),
    (re.compile(r"\bbreakpoin[t]\(\)|\bpd[b]\.set_trace"), "a debugger call"),
)
_MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:wor[k]|roo[t]|hom[e]/\w+)/")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def all_files(house: Path) -> Iterator[Path]:
    """Walk every file that belongs to the tree."""
    for entry in sorted(house.iterdir()):
        if entry.is_dir():
            if entry.name not in _FOLDERS_SKIPPED and not entry.name.endswith("_cache"):
                yield from all_files(entry)
        elif entry.is_file():
            yield entry


def texts(house: Path, suffixes: set[str]) -> Iterator[tuple[str, str]]:
    """Walk the text files of some kinds: name relative to the tree, and content."""
    for file in all_files(house):
        if file.suffix in suffixes or (not file.suffix and file.name in ("justfile", "start")):
            yield file.relative_to(house).as_posix(), file.read_text(encoding="utf-8")


def find_shape_faults(house: Path) -> Iterator[str]:
    """Find code that is too long, too wide, or untidy at its edges."""
    for name, text in texts(house, _CODE):
        lines = text.split("\n")
        if len(lines) > LINES_MAX:
            yield f"{name}: {len(lines)} lines; find the second noun and give it its own file"
        for number, line in enumerate(lines, start=1):
            if len(line) > COLUMNS_MAX:
                yield f"{name}:{number}: {len(line)} columns, {COLUMNS_MAX} is the most"
            if "\t" in line:
                yield f"{name}:{number}: a tab"
            if line != line.rstrip():
                yield f"{name}:{number}: space at the end of the line"
        if text and not text.endswith("\n"):
            yield f"{name}: no newline at the end"


def find_leftovers(house: Path) -> Iterator[str]:
    """Find markers, unfinished code, and paths of one person's machine."""
    for name, text in texts(house, _CODE | _PROSE):
        for number, line in enumerate(text.splitlines(), start=1):
            for pattern, meaning in _LEFTOVERS:
                if pattern.search(line):
                    yield f"{name}:{number}: {meaning}: {line.strip()}"
            if _MACHINE_PATH.search(line):
                yield f"{name}:{number}: a path of one machine: {line.strip()}"


def find_broken_links(house: Path) -> Iterator[str]:
    """Find links between documents that lead nowhere."""
    for name, text in texts(house, {".md"}):
        for target in _LINK.findall(_FENCE.sub("", text)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (house / name).parent / path if path else house / name
            if not file.exists():
                yield f"{name}: link to {target}, which does not exist"
            elif anchor and file.suffix == ".md" and anchor not in anchors(file):
                yield f"{name}: link to {target}, and there is no such heading"


def anchors(file: Path) -> set[str]:
    """List the anchors that a forge makes of a document's headings."""
    text = _FENCE.sub("", file.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def find_unmapped_rooms(house: Path) -> Iterator[str]:
    """Find crates and packages that the map does not name."""
    chart = house / "ARCHITECTURE.md"
    if not chart.exists():
        yield "ARCHITECTURE.md does not exist; it is the map of the house"
        return
    words = chart.read_text(encoding="utf-8")
    rooms = [*house.glob("crates/*/Cargo.toml"), *house.glob("src/quantumqtt/*/__init__.py")]
    for room in sorted(file.parent for file in rooms):
        name = room.relative_to(house).as_posix()
        if not re.search(rf"\b{re.escape(room.name)}\b", words):
            yield f"ARCHITECTURE.md does not name {name}"


def find_dead_python(house: Path) -> Iterator[str]:
    """Find modules that nothing imports, runs or names."""
    alive: set[str] = set()
    sources = {name: text for name, text in texts(house, {".py"}) if "/" in name}
    for text in sources.values():
        alive |= imported_names(text)
    # Entry points, recipes and lazy loaders name modules in text.
    for text in (*sources.values(), *(text for _, text in texts(house, {".toml"}))):
        alive |= set(re.findall(r"\b(?:quantumqtt|tools)(?:\.\w+)+", text))
    for name in ("justfile", "tools/door"):
        file = house / name
        words = file.read_text(encoding="utf-8") if file.exists() else ""
        alive |= set(re.findall(r"\btools\.\w+", words))
    for name in sources:
        module = name.removeprefix("src/").removesuffix(".py").replace("/", ".")
        ours = module.startswith(("quantumqtt.", "tools."))
        if ours and not module.endswith(("__init__", "__main__")) and module not in alive:
            yield f"{name}: nothing imports it"


def imported_names(source: str) -> set[str]:
    """Collect every dotted name that a file imports, and what it may mean as a module."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def find_dead_rust(house: Path) -> Iterator[str]:
    """Find Rust files that no `mod` line takes in; the compiler never sees those."""
    for name, _ in texts(house, {".rs"}):
        file = house / name
        parts = Path(name).parts
        if parts[:1] != ("crates",) or parts[2] != "src" or file.stem in ("lib", "main"):
            continue
        stem, folder = file.stem, file.parent
        if stem == "mod":
            stem, folder = folder.name, folder.parent
        parents = [folder / "lib.rs", folder / "main.rs", folder / "mod.rs"]
        parents.append(folder.with_suffix(".rs"))
        taken = re.compile(rf"\bmod {re.escape(stem)};|\bpath = \"{re.escape(file.name)}\"")
        if not any(p.exists() and taken.search(p.read_text(encoding="utf-8")) for p in parents):
            yield f"{name}: no `mod {stem};` takes it in"


def language_lines(house: Path) -> tuple[int, int]:
    """Count the lines of Python and of Rust."""
    python = sum(text.count("\n") for _, text in texts(house, {".py", ".pyi"}))
    rust = sum(text.count("\n") for _, text in texts(house, {".rs"}))
    return python, rust


def find_language_fault(house: Path) -> Iterator[str]:
    """Notice when the native part outgrows the Python part beyond the bound."""
    python, rust = language_lines(house)
    if rust > RUST_TO_PYTHON_MAX * python:
        yield f"{rust} lines of Rust to {python} of Python; Python is the language of this project"


def find_fragment_faults(house: Path) -> Iterator[str]:
    """Find fragments under changes/ that the changelog could not take in."""
    for fault in changelog.find_faults(house / "changes"):
        yield f"changes/{fault}"


RULES: tuple[Callable[[Path], Iterator[str]], ...] = (
    find_shape_faults,
    find_leftovers,
    find_broken_links,
    find_unmapped_rooms,
    find_dead_python,
    find_dead_rust,
    find_language_fault,
    find_fragment_faults,
)


def main() -> None:
    """Apply every rule to the tree; exit 1 when one finds something."""
    argparse.ArgumentParser(description="Apply the house rules about files.").parse_args()
    faults = [fault for rule in RULES for fault in rule(HOUSE)]
    for fault in faults:
        print(fault)
    python, rust = language_lines(HOUSE)
    print(f"{python} lines of Python, {rust} of Rust: {rust / max(python, 1):.2f} to 1")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
