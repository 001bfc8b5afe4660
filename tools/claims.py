"""Finds which test claims which row of a ledger, by reading the sources; nothing is run.

Python: `@pytest.mark.requirement("SES-05", …)` on a function, on a class, in one `parametrize`d
case, or as the module's `pytestmark`. Ids are literals, so that a search for one finds its tests.

Rust: a line `// req: SES-05, SES-06` directly above a test function; attributes and further
comments may stand between. Inside `proptest!` the same holds.

Rows of the second ledger, that of old wounds (tools/hardening.py), are claimed by the words
`hardening` and `// hardening:` in the same places.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_RUST_BETWEEN = re.compile(r"^\s*(#\[|//|$)")
_RUST_FUNCTION = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?(?:async )?fn (\w+)")


class UnclearClaim(Exception):
    """A claim that cannot be read: not a literal, not an id, or not above a test."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How a test claims a row of one ledger."""

    python: str
    """The name behind `pytest.mark.`."""
    rust: str
    """The word of the comment."""
    id: re.Pattern[str]

    @property
    def rust_claim(self) -> re.Pattern[str]:
        """What the comment looks like; its first group names the rows."""
        return re.compile(rf"^\s*// {self.rust}:\s*(.+?)\s*$")


REQUIREMENT = Mark("requirement", "req", re.compile(r"^[A-Z]+-\d\d$"))
HARDENING = Mark("hardening", "hardening", re.compile(r"^[a-z]+[a-z0-9-]*$"))
RUST_FOLDERS = ("crates", "fuzz")


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """One test says that it proves one row."""

    requirement: str
    file: str
    """Relative to the tree, with forward slashes."""
    function: str
    """`name` in Rust; `name` or `Class::name` in Python."""

    @property
    def test(self) -> str:
        """How the ledger names the test; for Python this is pytest's id."""
        return f"{self.file}::{self.function}"


def find_claims(house: Path, mark: Mark = REQUIREMENT) -> list[Claim]:
    """Read every claim of a tree for one ledger, in a stable order.

    Raises:
        UnclearClaim: Some claim cannot be read; names file and line.
    """
    claims: set[Claim] = set()
    for file in sorted((house / "tests").rglob("*.py")):
        claims.update(python_claims(file.read_text(encoding="utf-8"), _relative(file, house), mark))
    for folder in RUST_FOLDERS:
        for file in sorted((house / folder).rglob("*.rs")):
            source = file.read_text(encoding="utf-8")
            claims.update(rust_claims(source, _relative(file, house), mark))
    return sorted(claims)


def _relative(file: Path, house: Path) -> str:
    return PurePosixPath(file.relative_to(house)).as_posix()


def python_claims(source: str, file: str, mark: Mark = REQUIREMENT) -> Iterator[Claim]:
    """Read the claims of one Python file."""
    module = ast.parse(source, filename=file)
    of_module: list[str] = []
    for statement in module.body:
        if isinstance(statement, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark"
            for target in statement.targets
        ):
            of_module += _marked_ids(statement.value, file, mark)
    yield from _claims_in(module.body, "", of_module, file, mark)


def _claims_in(
    body: list[ast.stmt], prefix: str, inherited: list[str], file: str, mark: Mark
) -> Iterator[Claim]:
    for statement in body:
        if not isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        ids = [*inherited]
        for decorator in statement.decorator_list:
            ids += _marked_ids(decorator, file, mark)
        if isinstance(statement, ast.ClassDef):
            yield from _claims_in(statement.body, f"{prefix}{statement.name}::", ids, file, mark)
        elif statement.name.startswith("test"):
            for requirement in ids:
                yield Claim(requirement, file, f"{prefix}{statement.name}")
        elif len(ids) > len(inherited):
            raise UnclearClaim(f"{file}:{statement.lineno}: {statement.name} is not a test")


def _marked_ids(expression: ast.expr, file: str, mark: Mark) -> list[str]:
    """Collect the arguments of every mark of one ledger inside an expression."""
    ids = []
    for node in ast.walk(expression):
        if not (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == mark.python
        ):
            continue
        for argument in node.args:
            if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                raise UnclearClaim(f"{file}:{node.lineno}: {mark.python} ids must be written out")
            ids.append(_checked_id(argument.value, file, node.lineno, mark))
    return ids


def rust_claims(source: str, file: str, mark: Mark = REQUIREMENT) -> Iterator[Claim]:
    """Read the claims of one Rust file."""
    asked = mark.rust_claim
    waiting: list[str] = []
    for number, line in enumerate(source.splitlines(), start=1):
        if claim := asked.match(line):
            waiting += [
                _checked_id(word, file, number, mark)
                for word in re.split(r"[,\s]+", claim.group(1))
            ]
        elif not waiting or _RUST_BETWEEN.match(line):
            continue
        elif function := _RUST_FUNCTION.match(line):
            for requirement in waiting:
                yield Claim(requirement, file, function.group(1))
            waiting = []
        else:
            raise UnclearClaim(f"{file}:{number}: `// {mark.rust}:` must stand above a test")
    if waiting:
        raise UnclearClaim(f"{file}: `// {mark.rust}:` at the end of the file claims nothing")


def _checked_id(text: str, file: str, line: int, mark: Mark) -> str:
    if not mark.id.match(text):
        raise UnclearClaim(f"{file}:{line}: {text!r} is not the id of a {mark.python} row")
    return text
