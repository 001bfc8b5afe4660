"""What a table costs, and where compiling says no."""

from pathlib import Path

import pytest

from quantumqtt._core import RuleTable
from quantumqtt.errors import ConfigError, InternalError
from quantumqtt.policy import compile as compiler
from quantumqtt.policy.compile import compile_rules
from quantumqtt.policy.rule_file import parse_mosquitto

FILE = Path("acl")


def rules_for(count: int) -> str:
    """Write rules for many users, and as many patterns, of all shapes."""
    lines = ["pattern read all/%c/#", "pattern write all/+/state", "pattern deny all/secret/#"]
    for number in range(count // 4):
        lines += [
            f"user u{number}",
            f"topic readwrite site/{number}/+/temperature",
            f"topic read site/{number}/#",
            f"topic deny site/{number}/vault/#",
            f"pattern read common/{number}/x",
        ]
    return "\n".join(lines)


@pytest.mark.requirement("SEC-19")
def test_cost_of_a_look_up_does_not_grow_with_the_rules() -> None:
    questions = [
        ("u1", "c", "site/1/a/temperature"),
        ("u1", "c", "site/1/vault/x"),
        ("u1", "c", "common/1/x"),
        ("u1", "c", "all/c/x/y/z"),
        ("nobody", "c", "nothing/at/all"),
        ("u1", "c", "site/" + "/".join("abcdefghij")),
    ]
    few = compile_rules(parse_mosquitto(rules_for(10), FILE))
    many = compile_rules(parse_mosquitto(rules_for(10_000), FILE))
    assert many.state_count > 100 * few.state_count
    for user, client, topic in questions:
        costs = {table.steps(user, client, "read", topic) for table in (few, many)}
        assert len(costs) == 1, (topic, costs)
        # Twice at most: once through the user's own rules, once through the common ones.
        assert costs.pop() <= 2 * (topic.count("/") + 1)


@pytest.mark.requirement("SEC-19")
def test_steps_grow_with_the_topic_and_no_faster() -> None:
    table = compile_rules(parse_mosquitto("topic read " + "+/" * 200 + "#", FILE))
    steps = [table.steps("", "c", "read", "/".join("x" * n)) for n in (50, 100, 200)]
    assert steps == [50, 100, 200]


def test_entangled_rules_are_refused_and_not_half_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiler, "STATES_MAX", 1_000)
    lines = [
        "topic read " + "/".join("x" if at == here else "+" for at in range(14))
        for here in range(14)
    ]
    with pytest.raises(ConfigError, match="more than 1000 states"):
        compile_rules(parse_mosquitto("\n".join(lines), FILE))


@pytest.mark.parametrize(
    ("lines", "where"),
    [
        ([f"pattern read {letter}%c/x" for letter in "abcdefg"], "at one level"),
        ([f"pattern read {n}/{n}%c" for n in range(33)], "in one file"),
    ],
)
def test_too_many_templates_are_refused(lines: list[str], where: str) -> None:
    with pytest.raises(ConfigError, match=where) as caught:
        compile_rules(parse_mosquitto("\n".join(lines), FILE))
    assert caught.value.hint


def test_table_that_no_compiler_writes_is_our_bug() -> None:
    with pytest.raises(InternalError, match="state 7 does not exist"):
        RuleTable(
            symbols=[],
            templates=[],
            states=[(0, 0, 0)],
            transitions=[],
            scopes=[("ada", 7, 0)],
            common=(0, 0),
        )
