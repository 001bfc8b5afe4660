"""Who may do what, decided the slow and obvious way.

Pure functions over rules as they were written: every rule is asked, one after the other. The broker
runs a compiled table instead (`compile.py`); these functions are what that table must agree with,
and they know which rule and line an answer rests on, which a table does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quantumqtt.policy.rules import Action, Level, Rule, RuleSet, Template, Who, Wildcard

QUEUE_PREFIX: Final = "$queue/"
SHARE_PREFIX: Final = "$share/"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An answer and the rule it rests on; None when no rule spoke."""

    allowed: bool
    rule: Rule | None


def decide(rules: RuleSet, who: Who, action: Action, topic: str) -> Verdict:
    """Decide whether somebody may read from, or write to, one topic."""
    levels = topic_of(topic).split("/")
    for tier in rules.tiers(who):
        speaking = [
            rule for rule in tier if rule.concerns(action) and matches(rule.levels, levels, who)
        ]
        if verdict := _strictest(speaking):
            return verdict
    return Verdict(allowed=False, rule=None)


def decide_filter(rules: RuleSet, who: Who, text: str) -> Verdict:
    """Decide whether somebody may subscribe to a filter, `$share/{group}/` included.

    Refused is what a deny covers as a whole, and what overlaps with nothing readable. A filter
    wider than that is granted; each message is then decided by its topic.
    """
    asked = filter_of(text).split("/")
    for tier in rules.tiers(who):
        reading = [rule for rule in tier if rule.concerns("read")]
        for rule in reading:
            if rule.verb == "deny" and covers(rule.levels, asked, who):
                return Verdict(allowed=False, rule=rule)
        for rule in reading:
            if rule.verb == "allow" and overlaps(rule.levels, asked, who):
                return Verdict(allowed=True, rule=rule)
    return Verdict(allowed=False, rule=None)


def topic_of(topic: str) -> str:
    """Take off the prefix under which queues live."""
    return topic.removeprefix(QUEUE_PREFIX) or topic


def filter_of(text: str) -> str:
    """Take off `$share/{group}/`, then the prefix of queues."""
    if text.startswith(SHARE_PREFIX):
        _share, _, text = text.removeprefix(SHARE_PREFIX).partition("/")
    return topic_of(text)


def matches(rule: Sequence[Level], topic: Sequence[str], who: Who) -> bool:
    """Tell whether the filter of a rule matches a topic, level by level (§4.7)."""
    if topic[0].startswith("$") and not _names_dollar(rule[0], who):
        return False
    for index, level in enumerate(rule):
        if level is Wildcard.REST:
            return True  # its parent level included
        if index >= len(topic) or not _matches_text(level, topic[index], who):
            return False
    return len(rule) == len(topic)


def covers(rule: Sequence[Level], asked: Sequence[str], who: Who) -> bool:
    """Tell whether a rule matches every topic that a filter matches, level by level."""
    if asked[0].startswith("$") and not _names_dollar(rule[0], who):
        return False
    for index, level in enumerate(rule):
        if level is Wildcard.REST:
            return True
        if index >= len(asked) or asked[index] == "#":
            return False
        if asked[index] == "+":
            if level is not Wildcard.ONE:
                return False
        elif not _matches_text(level, asked[index], who):
            return False
    return len(rule) == len(asked)


def overlaps(rule: Sequence[Level], asked: Sequence[str], who: Who) -> bool:
    """Tell whether there is a topic that both a rule and a filter match."""
    if asked[0].startswith("$") != _names_dollar(rule[0], who):
        return False
    for index, level in enumerate(rule):
        if level is Wildcard.REST:
            return True
        if index >= len(asked):
            return False
        if asked[index] == "#":
            return _all_possible(rule[index:], who)
        if asked[index] == "+":
            if not _all_possible((level,), who):
                return False
        elif not _matches_text(level, asked[index], who):
            return False
    return len(rule) == len(asked) or asked[len(rule) :] == ["#"]


def _strictest(speaking: Sequence[Rule]) -> Verdict | None:
    denials = [rule for rule in speaking if rule.verb == "deny"]
    if denials:
        return Verdict(allowed=False, rule=denials[0])
    return Verdict(allowed=True, rule=speaking[0]) if speaking else None


def _matches_text(level: Level, text: str, who: Who) -> bool:
    match level:
        case Wildcard():
            return True
        case Template():
            return level.text_for(who) == text
        case str():
            return level == text


def _names_dollar(level: Level, who: Who) -> bool:
    """Tell whether a first level spells a `$` itself; a client's id never does it for it."""
    match level:
        case Wildcard():
            return False
        case Template():
            return (level.text_for(who) or "").startswith("$")
        case str():
            return level.startswith("$")


def _all_possible(levels: Sequence[Level], who: Who) -> bool:
    """Tell whether each of these levels has a text at all for this client."""
    return all(not isinstance(level, Template) or level.text_for(who) for level in levels)
