"""Reading rules: what is understood, and how everything else is refused."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantumqtt.config import split_error
from quantumqtt.errors import ConfigError
from quantumqtt.policy.decide import decide, decide_filter
from quantumqtt.policy.explain import explain
from quantumqtt.policy.rule_file import load_rules, parse_mosquitto, parse_toml
from quantumqtt.policy.rules import RuleSet, Who
from tests.harness.complaints import complaints

FILE = Path("acl")
MOSQUITTO = """\
# the house
topic read $SYS/#

user ada lovelace
topic readwrite sensors/#
topic deny sensors/secret/#
  topic write spaced name/x
topic plain
pattern read devices/%c/#
pattern write users/%u-%c/x
"""
TOML = """\
[[rule]]
anonymous = true
allow = "read"
topics = ["$SYS/#"]

[[rule]]
users = ["ada lovelace"]
allow = "readwrite"
topics = ["sensors/#", "plain"]

[[rule]]
users = ["ada lovelace"]
deny = "readwrite"
topics = ["sensors/secret/#"]

[[rule]]
allow = "read"
topics = ["devices/%c/#"]

[[ rule ]]
allow = "write"
topics = ["users/%u-%c/x"]

[[rule]]
users = ["ada lovelace"]
allow = "write"
topics = ["spaced name/x"]
"""


@pytest.mark.requirement("SEC-18")
@pytest.mark.parametrize("rules", [parse_mosquitto(MOSQUITTO, FILE), parse_toml(TOML, FILE)])
def test_both_forms_say_the_same(rules: RuleSet) -> None:
    ada, lamp = Who("ada lovelace", "a1"), Who("", "lamp")
    assert decide(rules, ada, "write", "sensors/x").allowed
    assert not decide(rules, ada, "read", "sensors/secret/x").allowed
    assert decide(rules, ada, "write", "spaced name/x").allowed
    assert not decide(rules, ada, "read", "spaced name/x").allowed
    assert decide(rules, ada, "read", "plain").allowed
    assert decide(rules, ada, "write", "users/ada lovelace-a1/x").allowed
    assert not decide(rules, ada, "read", "$SYS/broker").allowed
    assert decide(rules, lamp, "read", "$SYS/broker").allowed
    assert decide(rules, lamp, "read", "devices/lamp/x/y").allowed
    assert not decide(rules, lamp, "read", "devices/ada/x").allowed
    assert decide_filter(rules, lamp, "$share/g/devices/#").allowed


@pytest.mark.parametrize(
    ("text", "complaint", "remedy"),
    [
        ("topic\n", "acl:1: a topic is missing", "write topic read"),
        ("# x\n\nuser\n", "acl:3: a user name is missing", "write user NAME"),
        ("tpoic read a\n", "acl:1: 'tpoic' is no keyword", "begin with user"),
        ("topic reed a\n", "acl:1: 'reed' is no kind of access", "write read, write"),
        ("topic read a/#/b\n", "acl:1: `#` stands alone", "topic filter"),
        ("pattern read a+\n", "acl:1: `+` stands alone", "topic filter"),
        ("topic read $share/g/a\n", "acl:1: $share/… is taken off", "behind the prefix"),
    ],
)
def test_bad_line_is_named_with_its_remedy(text: str, complaint: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_mosquitto(text, FILE)
    ((line, hint),) = split_error(caught.value)
    assert complaint in line
    assert remedy in (hint or "")


def test_all_bad_lines_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_mosquitto("a\ntopic read ok\nb\n", FILE)
    assert [line.split(": ")[0] for line, _ in split_error(caught.value)] == ["acl:1", "acl:3"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[rule]\n", "acl:1: "),
        ("rule = 1\n", "rule is not a list"),
        ("[[rule]]\nallow = 'read'\ntopics = ['a']\n\n[[rule]]\ntopics = ['a']\n", "acl:5: a rule"),
        ("[[rule]]\nallow = 'read'\ndeny = 'read'\ntopics = ['a']\n", "either allows or denies"),
        ("[[rule]]\nallow = 'all'\ntopics = ['a']\n", "'all' is no kind of access"),
        ("[[rule]]\nallow = 'read'\n", "topics are missing"),
        ("[[rule]]\nallow = 'read'\ntopics = 'a'\n", "topics is not a list"),
        ("[[rule]]\nallow = 'read'\ntopics = ['a']\nusers = []\n", "users is empty"),
        ("[[rule]]\nallow = 'read'\ntopics = ['a']\nuser = ['x']\n", "'user' is unknown"),
        ("[[rules]]\n", "'rules' is unknown"),
        ("[[rule]]\nallow = 'read'\ntopics = ['a']\nanonymous = 'x'\n", "true or false"),
    ],
)
def test_bad_toml_is_named(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_toml(text, FILE)
    assert complaint in str(caught.value)
    assert caught.value.hint


@given(st.text(alphabet=st.sampled_from("topicuserandb %c+#/$\n\0[]=\"'rl*:"), max_size=200))
def test_any_text_is_rules_or_a_named_complaint(text: str) -> None:
    for parse in (parse_mosquitto, parse_toml):
        found = complaints(lambda parse=parse: parse(text, FILE))  # type: ignore[misc]
        assert all(line.startswith("acl:") and hint for line, hint in found)


@given(st.binary(max_size=200))
def test_any_bytes_are_rules_or_a_named_complaint(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("acl", "acl.toml"):
            file = Path(folder) / name
            file.write_bytes(content)
            found = complaints(lambda file=file: load_rules(file))  # type: ignore[misc]
            assert all(str(file) in line for line, _ in found)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none: cannot be read: no such file"):
        load_rules(tmp_path / "none")


def test_explanation_names_rule_and_line() -> None:
    rules = parse_mosquitto(MOSQUITTO, FILE)
    answer = explain(
        rules, user="ada lovelace", client_id="x", action="write", topic="sensors/secret/1"
    )
    assert answer["allowed"] is False
    assert (answer["place"], answer["rule"]) == ("acl:6", "topic deny sensors/secret/#")
    silent = explain(rules, user="", client_id="x", action="subscribe", topic="sensors/#")
    assert silent["place"] is None
    assert "no rule of anonymous clients" in str(silent["why"])
    assert explain(None, user="", client_id="x", action="read", topic="t")["allowed"] is True
    with pytest.raises(ConfigError, match="no action"):
        explain(rules, user="", client_id="x", action="fly", topic="t")
