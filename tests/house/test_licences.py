"""The quick licence check reads SPDX expressions as the standard means them."""

import json

import pytest

from tools import licences
from tools.licences import HOUSE, Rules

ALLOWED = frozenset({"MIT", "Apache-2.0", "Zlib"})


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("MIT OR GPL-3.0", True),
        ("MIT/GPL-3.0", True),
        ("MIT AND GPL-3.0", False),
        ("(MIT OR GPL-3.0) AND Zlib", True),
        ("(MIT OR Zlib) AND GPL-3.0", False),
        ("GPL-3.0 AND Zlib OR MIT", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-3.0", False),
        ("", False),
        ("MIT )", False),
    ],
)
def test_expression_is_evaluated(expression: str, *, allowed: bool) -> None:
    assert licences.is_allowed(expression, ALLOWED) is allowed


def test_crate_from_elsewhere_or_without_licence_is_named() -> None:
    rules = Rules(licences=ALLOWED, registries=frozenset({"https://registry"}))
    packages = [
        {"name": "good", "version": "1", "license": "MIT", "source": "registry+https://registry"},
        {"name": "ours", "version": "1", "license": "Apache-2.0", "source": None},
        {"name": "forked", "version": "1", "license": "MIT", "source": "git+https://forge/x"},
        {"name": "silent", "version": "1", "license": None, "source": "registry+https://registry"},
    ]
    faults = list(licences.find_faults(json.dumps({"packages": packages}), rules))
    assert [fault.split()[0] for fault in faults] == ["forked", "silent"]


def test_rules_come_from_the_file_that_cargo_deny_reads() -> None:
    rules = licences.read_rules((HOUSE / "deny.toml").read_text(encoding="utf-8"))
    assert "Apache-2.0" in rules.licences
    assert not any("GPL" in name for name in rules.licences)
