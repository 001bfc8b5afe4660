"""The compiled table against the naive evaluator: any rules, any client, any topic."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quantumqtt.policy.compile import compile_rules
from quantumqtt.policy.decide import decide, decide_filter
from quantumqtt.policy.rules import (
    Access,
    Action,
    Place,
    Rule,
    RuleSet,
    Verb,
    Who,
    levels_of,
)

# Few words, so that rules, ids and topics meet often; the last ones are there to break things.
WORDS = ("a", "b", "c", "ada", "lamp", "", "$SYS", "$a")
TEMPLATES = ("%c", "%u", "x%c", "%c-%u", "$%c", "$a%u")
IDS = ("a", "b", "lamp", "ada", "", "+", "#", "a/b", "$SYS", "SYS", "a\0", "xa")
USERS = ("", "ada", "b", "+", "$SYS")

texts = st.sampled_from(WORDS)
topics = st.lists(texts, min_size=1, max_size=5).map("/".join).filter(bool)
whos = st.builds(Who, user=st.sampled_from(USERS), client_id=st.sampled_from(IDS))


@st.composite
def filters(draw: st.DrawFn, *, templated: bool = False) -> str:
    level = st.one_of(texts, st.just("+"), st.sampled_from(TEMPLATES if templated else ("+",)))
    levels = draw(st.lists(level, min_size=0, max_size=4))
    if not levels or draw(st.booleans()):
        levels.append(draw(st.sampled_from(("#", "a", "+"))))
    return "/".join(levels) or "a"


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    verbs: st.SearchStrategy[Verb] = st.sampled_from(("allow", "allow", "deny"))
    accesses: st.SearchStrategy[Access] = st.sampled_from(("read", "write", "readwrite"))
    text = draw(filters(templated=True))
    return Rule(
        draw(st.sampled_from((None, None, *USERS))),
        draw(verbs),
        draw(accesses),
        levels_of(text, templated=True),
        Place(Path("rules"), 1),
        text,
    )


rule_sets = st.lists(rules(), max_size=25).map(lambda found: RuleSet(tuple(found)))


@pytest.mark.requirement("SEC-18", "SEC-19")
@settings(max_examples=200)
@given(rule_sets, st.lists(st.tuples(whos, topics), min_size=1, max_size=20))
def test_table_decides_topics_as_the_naive_evaluator_does(
    found: RuleSet, questions: list[tuple[Who, str]]
) -> None:
    table = compile_rules(found)
    actions: tuple[Action, ...] = ("read", "write")
    for who, topic in questions:
        for action in actions:
            expected = decide(found, who, action, topic).allowed
            assert table.may(who.user, who.client_id, action, topic) == expected, (who, topic)


@pytest.mark.requirement("SEC-18", "SEC-19")
@settings(max_examples=200)
@given(rule_sets, st.lists(st.tuples(whos, filters()), min_size=1, max_size=20))
def test_table_decides_filters_as_the_naive_evaluator_does(
    found: RuleSet, questions: list[tuple[Who, str]]
) -> None:
    table = compile_rules(found)
    for who, text in questions:
        expected = decide_filter(found, who, text).allowed
        assert table.may_subscribe(who.user, who.client_id, text) == expected, (who, text)


@pytest.mark.requirement("SEC-18")
@given(rule_sets, whos, topics)
def test_whoever_may_read_a_topic_may_subscribe_to_it(found: RuleSet, who: Who, topic: str) -> None:
    # The two decisions must not contradict each other: a readable topic is a grantable filter.
    if decide(found, who, "read", topic).allowed:
        assert decide_filter(found, who, topic).allowed
