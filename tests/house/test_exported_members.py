"""A package's `__init__.py` is its list of public names: the list and the imports agree."""

import ast
from pathlib import Path

import pytest

import quantumqtt
from tools.tidy import HOUSE

PACKAGE = HOUSE / "src" / "quantumqtt"
ROOMS = sorted(file for file in PACKAGE.rglob("__init__.py") if "__all__" in file.read_text())


def read_names(file: Path) -> tuple[list[str], set[str]]:
    """Read `__all__` and the names imported from rooms, `TYPE_CHECKING` blocks included."""
    listed: list[str] = []
    imported: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("quantumqtt"):
            imported.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            if "__all__" in names and node.value is not None:
                listed = ast.literal_eval(node.value)
    return listed, imported


def names_defined_in(file: Path) -> set[str]:
    """List the public functions, classes and constants that the file defines itself."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    body = ast.parse(file.read_text(encoding="utf-8")).body
    names = {node.name for node in body if isinstance(node, kinds)}
    for node in body:
        if isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("file", ROOMS, ids=lambda file: file.parent.name)
def test_listed_names_are_the_imported_names(file: Path) -> None:
    listed, imported = read_names(file)
    defined = names_defined_in(file)
    assert len(listed) == len(set(listed))
    assert {name for name in listed if not name.startswith("__")} <= imported | defined
    if not defined:
        # A room whose face is a function imports for that function; any other only to export.
        assert imported <= set(listed)


@pytest.mark.parametrize("name", quantumqtt.__all__)
def test_public_name_can_be_imported(name: str) -> None:
    value = getattr(quantumqtt, name)
    assert value is not None
    assert name in dir(quantumqtt)


def test_name_that_is_not_public_is_refused() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = quantumqtt.no_such_name
