"""Checks licences and sources of every crate we build, against `deny.toml`.

A quick stand-in for two of cargo-deny's four questions, so that the gate can ask them at each run;
`just advisories` asks all four. Reads the output of `cargo metadata`.
"""

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HOUSE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Rules:
    """What `deny.toml` allows."""

    licences: frozenset[str]
    registries: frozenset[str]


def read_rules(text: str) -> Rules:
    """Read the rules."""
    rules = tomllib.loads(text)
    return Rules(
        licences=frozenset(rules["licenses"]["allow"]),
        registries=frozenset(rules["sources"]["allow-registry"]),
    )


def is_allowed(expression: str, allowed: frozenset[str]) -> bool:
    """Evaluate an SPDX expression: may we use the crate under some choice of its licences?

    Reads `A OR B`, `A AND B`, parentheses, the old slash for OR, and `A WITH exception`; an
    exception only ever grants more, so it is passed over.
    """
    spelled = re.sub(r"\bWITH\s+[\w.-]+", "", expression.replace("/", " OR "))
    tokens = re.findall(r"[()]|[\w.+-]+", spelled)
    allowed_so_far, rest = _any_of(tokens, allowed)
    return allowed_so_far and not rest


def _any_of(tokens: list[str], allowed: frozenset[str]) -> tuple[bool, list[str]]:
    found, rest = _all_of(tokens, allowed)
    while rest and rest[0] == "OR":
        other, rest = _all_of(rest[1:], allowed)
        found = found or other
    return found, rest


def _all_of(tokens: list[str], allowed: frozenset[str]) -> tuple[bool, list[str]]:
    found, rest = _one(tokens, allowed)
    while rest and rest[0] == "AND":
        other, rest = _one(rest[1:], allowed)
        found = found and other
    return found, rest


def _one(tokens: list[str], allowed: frozenset[str]) -> tuple[bool, list[str]]:
    if not tokens:
        return False, []
    if tokens[0] == "(":
        found, rest = _any_of(tokens[1:], allowed)
        return found, rest[1:]
    return tokens[0] in allowed, tokens[1:]


def find_faults(metadata: str, rules: Rules) -> Iterator[str]:
    """Name each crate that the rules do not allow."""
    for package in json.loads(metadata)["packages"]:
        name = f"{package['name']} {package['version']}"
        licence = package["license"]
        if licence is None or not is_allowed(licence, rules.licences):
            yield f"{name}: licence {licence or 'not stated'}"
        source = package["source"]
        if source is not None and source.removeprefix("registry+") not in rules.registries:
            yield f"{name}: source {source}"


def main() -> None:
    """Check one metadata file; exit 1 on a fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("metadata", type=Path, help="output of `cargo metadata`")
    metadata: Path = parser.parse_args().metadata
    rules = read_rules((HOUSE / "deny.toml").read_text(encoding="utf-8"))
    faults = list(find_faults(metadata.read_text(encoding="utf-8"), rules))
    for fault in faults:
        print(f"not allowed by deny.toml: {fault}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
