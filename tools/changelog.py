"""Joins the fragments under changes/ into CHANGELOG.md when a release is made.

One visible change, one small file, `changes/<slug>.<kind>.md`: so two people never edit the same
lines, and a release cannot forget what a change forgot to mention.
"""

import argparse
import datetime
import re
import sys
from collections.abc import Iterator
from pathlib import Path

HOUSE = Path(__file__).resolve().parent.parent
KINDS = {
    "removal": "Removed or incompatible",
    "security": "Security",
    "feature": "Added",
    "change": "Changed",
    "fix": "Fixed",
}
MARK = "<!-- releases below, newest first -->"
_NAME = re.compile(r"^[a-z0-9-]+\.([a-z]+)\.md$")
_VERSION = re.compile(r"^\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?$")


def fragment_files(folder: Path) -> list[Path]:
    """List the fragments, in the order in which they will be read."""
    return sorted(file for file in folder.glob("*.md") if file.name != "README.md")


def find_faults(folder: Path) -> Iterator[str]:
    """Name each fragment that could not be taken in."""
    for file in fragment_files(folder):
        name = _NAME.match(file.name)
        if name is None or name.group(1) not in KINDS:
            yield f"{file.name}: named <slug>.<kind>.md, kinds are {', '.join(KINDS)}"
        elif not file.read_text(encoding="utf-8").strip():
            yield f"{file.name}: is empty"


def join(changelog: str, fragments: dict[str, str], version: str, date: datetime.date) -> str:
    """Put a release made of fragments (file name → text) on top of the changelog's releases."""
    lines = [f"## {version} — {date.isoformat()}"]
    for kind, title in KINDS.items():
        entries = [text for name, text in fragments.items() if name.split(".")[-2] == kind]
        if entries:
            lines += ["", f"### {title}", ""]
            lines += ["- " + text.strip().replace("\n", "\n  ") for text in entries]
    before, mark, after = changelog.partition(MARK)
    if not mark:
        raise ValueError(f"CHANGELOG.md has lost its line {MARK!r}")
    earlier = after.strip("\n")
    return f"{before}{MARK}\n\n" + "\n".join(lines) + (f"\n\n{earlier}\n" if earlier else "\n")


def main() -> None:
    """Make one release: rewrite CHANGELOG.md, remove the fragments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", help="such as 0.2.0")
    version: str = parser.parse_args().version
    if not _VERSION.match(version):
        parser.error(f"{version} is not a version")
    folder = HOUSE / "changes"
    if faults := list(find_faults(folder)):
        sys.exit("\n".join(faults))
    files = fragment_files(folder)
    if not files:
        sys.exit("no fragments under changes/; nothing to release")
    fragments = {file.name: file.read_text(encoding="utf-8") for file in files}
    page = HOUSE / "CHANGELOG.md"
    today = datetime.datetime.now(tz=datetime.UTC).date()
    page.write_text(
        join(page.read_text(encoding="utf-8"), fragments, version, today), encoding="utf-8"
    )
    for file in files:
        file.unlink()
    print(f"{len(files)} changes joined into CHANGELOG.md under {version}")


if __name__ == "__main__":
    main()
