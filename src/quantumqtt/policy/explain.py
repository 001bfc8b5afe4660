"""Why somebody may or may not do something, in words: the rule, and where it stands."""

from collections.abc import Mapping

from quantumqtt.errors import ConfigError
from quantumqtt.policy.decide import Verdict, decide, decide_filter
from quantumqtt.policy.rules import RuleSet, Who


def explain(
    rules: RuleSet | None, *, user: str, client_id: str, action: str, topic: str
) -> Mapping[str, object]:
    """Decide and name the rule; without rules everything is allowed.

    Raises:
        ConfigError: The action is none, or the topic is empty.
    """
    if not topic:
        raise ConfigError("the topic is empty", hint="name the topic that was refused")
    if action not in {"read", "write", "subscribe"}:
        raise ConfigError(f"{action!r} is no action", hint="write read, write or subscribe")
    if rules is None:
        return _answer(Verdict(allowed=True, rule=None), "there is no acl_file")
    who = Who(user, client_id)
    if action == "subscribe":
        verdict = decide_filter(rules, who, topic)
    else:
        verdict = decide(rules, who, "read" if action == "read" else "write", topic)
    whose = f"user {user!r}" if user else "anonymous clients"
    return _answer(verdict, f"no rule of {whose} or of everybody matches")


def _answer(verdict: Verdict, silence: str) -> Mapping[str, object]:
    rule = verdict.rule
    return {
        "allowed": verdict.allowed,
        "rule": None if rule is None else rule.words,
        "place": None if rule is None else str(rule.place),
        "why": silence if rule is None else "a rule says so",
    }
