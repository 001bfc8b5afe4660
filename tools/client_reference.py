"""Writes `docs/reference/client.md` from the client's sources: signatures and docstrings.

Run `python -m tools.client_reference --write`; a test compares. The sources are read, not imported,
so that signatures stand as they were written and the page is the same under every Python.
"""

import argparse
import ast
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

HOUSE: Final = Path(__file__).resolve().parent.parent
PAGE: Final = HOUSE / "docs" / "reference" / "client.md"
PACKAGE: Final = HOUSE / "src" / "quantumqtt"
_INTRODUCTION: Final = """\
# Client

Generated from `quantumqtt.client`; do not edit by hand. How the parts belong together is told in
the [guide](../guides/client.md). All names are imported from `quantumqtt.client`, authenticators
from `quantumqtt.client.auth`; errors are in `quantumqtt`.
"""
# Written by hand: what a reader asks first comes first.
_CHAPTERS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("Clients", ("Client", "SyncClient")),
    ("Publishing", ("Receipt", "Token", "Operation")),
    ("Messages", ("Stream", "Subscription", "Message", "Delivery")),
    ("Connections", ("Connected", "Capabilities", "Statistics", "Backoff", "Will", "tls_context")),
    ("Authentication", ("Authenticator", "ScramSha256", "TokenAuthenticator")),
    ("Stores", ("FileStore", "Store")),
    (
        "Interceptors",
        ("Outgoing", "Tracing", "Counts", "Traffic", "log_publishes", "log_messages"),
    ),
)
# Part of every promise, whatever its kind.
_INHERITED: Final = {"Receipt": "Pending", "Token": "Receipt", "Operation": "Pending"}
_SECTION: Final = re.compile(r"^(Args|Raises|Returns|Attributes|Yields):$")
_ITEM: Final = re.compile(r"^(\w+): ")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def definitions() -> dict[str, ast.ClassDef | _Function]:
    """Find every class and function of the client, and the native message."""
    found: dict[str, ast.ClassDef | _Function] = {}
    for file in (*sorted((PACKAGE / "client").glob("*.py")), PACKAGE / "_core.pyi"):
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef | _Function) and node.name not in found:
                found[node.name] = node
    return found


def public_names() -> set[str]:
    """Read what `quantumqtt.client` offers."""
    tree = ast.parse((PACKAGE / "client" / "__init__.py").read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    raise AssertionError("quantumqtt.client lists its names")


def render() -> str:
    """Render the whole page.

    Raises:
        AssertionError: A public name has no place on the page.
    """
    found = definitions()
    placed = {name for _, names in _CHAPTERS for name in names}
    missing = public_names() - placed
    assert not missing, f"give them a chapter in {Path(__file__).name}: {sorted(missing)}"
    lines = [_INTRODUCTION]
    for title, names in _CHAPTERS:
        lines.append(f"## {title}\n")
        for name in names:
            lines += _definition(name, found)
    return "\n".join(lines).rstrip() + "\n"


def _definition(name: str, found: dict[str, ast.ClassDef | _Function]) -> Iterator[str]:
    node = found[name]
    if not isinstance(node, ast.ClassDef):
        yield from _function(node, "###", "")
        return
    yield f"### {name}\n"
    yield from _documentation(node)
    if name in _INHERITED:
        parent = _INHERITED[name]
        if parent in {one for _, names in _CHAPTERS for one in names}:
            yield f"Has everything [{parent}](#{parent.lower()}) has.\n"
        else:
            yield from _members(found[parent], name)
    yield from _members(node, name)


def _members(node: ast.AST, owner: str) -> Iterator[str]:
    assert isinstance(node, ast.ClassDef), "only classes have members"
    fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
    shown = [one for one in fields if not ast.unparse(one.target).startswith("_")]
    is_value = any("dataclass" in ast.unparse(one) for one in node.decorator_list)
    if shown and is_value:
        yield "\n".join(f"- `{ast.unparse(one)}`" for one in shown) + "\n"
    for method in node.body:
        if not isinstance(method, _Function) or _is_overload(method):
            continue
        if method.name in ("__init__", "__new__"):
            yield from _function(method, "####", owner, as_name=owner)
        elif not method.name.startswith("_") and method.name not in ("on_connected", "offer"):
            if method.name in ("on_disconnected", "on_redirect", "end") and owner != "Store":
                continue  # for the driver
            yield from _function(method, "####", owner)


def _is_overload(method: _Function) -> bool:
    return any("overload" in ast.unparse(one) for one in method.decorator_list)


def _function(node: _Function, mark: str, owner: str, as_name: str | None = None) -> Iterator[str]:
    name = as_name or (f"{owner}.{node.name}" if owner else node.name)
    decorators = {ast.unparse(one) for one in node.decorator_list}
    returned = f" -> {ast.unparse(node.returns)}" if node.returns and as_name is None else ""
    if "property" in decorators:
        yield f"{mark} `{name}`{returned.replace(' ->', ' →')}\n"
    else:
        yield f"{mark} `{name}()`\n"
        yield _signature(node, as_name or node.name, returned)
    yield from _documentation(node)


def _signature(node: _Function, name: str, returned: str) -> str:
    before = "async def " if isinstance(node, ast.AsyncFunctionDef) else ""
    arguments = ast.unparse(node.args)
    for own in ("self, ", "self", "cls, "):
        arguments = arguments.removeprefix(own)
    flat = f"{before}{name}({arguments}){returned}"
    if len(flat) > 100:
        parts = ",\n    ".join(_split(arguments))
        flat = f"{before}{name}(\n    {parts},\n){returned}"
    return f"```python\n{flat}\n```\n"


def _split(arguments: str) -> list[str]:
    """Cut at commas that are not inside brackets or quotes."""
    parts, depth, quoted, begin = [], 0, False, 0
    for at, character in enumerate(arguments):
        if character in "'\"":
            quoted = not quoted
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and not depth and not quoted:
            parts.append(arguments[begin:at].strip())
            begin = at + 1
    return [*parts, arguments[begin:].strip()]


def _documentation(node: ast.ClassDef | _Function) -> Iterator[str]:
    text = ast.get_docstring(node)
    if text:
        yield _prose(inspect.cleandoc(text)) + "\n"


def _prose(text: str) -> str:
    """Turn the sections of a docstring into lists."""
    lines: list[str] = []
    in_section = False
    for line in text.splitlines():
        section = _SECTION.match(line)
        if section:
            in_section = True
            lines += [f"**{section[1]}**", ""]
        elif in_section and line.startswith("    "):
            body = line[4:]
            if body.startswith("    "):
                lines[-1] += f" {body.strip()}"
            elif _ITEM.match(body):
                lines.append(_ITEM.sub(r"- `\1`: ", body))
            else:
                lines.append(body)
        else:
            in_section = in_section and not line
            lines.append("```python" if line == "```" and "```python" not in lines else line)
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page, or show it."""
    parser = argparse.ArgumentParser(description="Render the client's reference page.")
    parser.add_argument("--write", action="store_true", help="write it to its place")
    page = render()
    if parser.parse_args(arguments).write:
        PAGE.write_text(page, "utf-8")
    else:
        sys.stdout.write(page)


if __name__ == "__main__":
    main()
