"""Runs the checks, one after the other, and keeps what each of them found."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from quantumqtt.cli.mosquitto.options import Options
from quantumqtt.cli.probe import basics, malformed, messages, sessions, version_5
from quantumqtt.cli.probe.check import CHECKS, VERSION_NAMES, Check, Probe
from quantumqtt.cli.probe.peer import NotOffered, Violation
from quantumqtt.errors import ConnectFailed, QuantuMQTTError

# The checks register themselves when their rooms are loaded.
ROOMS: Final = (basics, messages, sessions, version_5, malformed)


class Verdict(Enum):
    """How one check ended."""

    KEPT = "kept"
    VIOLATED = "violated"
    NOT_OFFERED = "not offered"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found in one version."""

    version: str
    clause: str
    title: str
    verdict: Verdict
    detail: str


@dataclass(frozen=True, slots=True)
class Results:
    """Everything one run found."""

    findings: tuple[Finding, ...]
    not_spoken: dict[str, str]
    left_behind: tuple[str, ...]

    def count(self, verdict: Verdict) -> int:
        """How many checks ended so."""
        return sum(finding.verdict == verdict for finding in self.findings)


def chosen(*, polite: bool, only: str | None) -> list[Check]:
    """The checks of a run; a polite one sends nothing that breaks MQTT."""
    return [
        one
        for one in CHECKS
        if not (polite and one.breaks_rules)
        and (only is None or any(only in text for text in (one.title, *one.clauses.values())))
    ]


def run(
    target: Options,
    versions: list[int],
    *,
    timeout_s: float,
    checks: list[Check],
    on_check: Callable[[Check, int], object],
) -> Results:
    """Ask everything.

    Raises:
        ConnectFailed: Nobody listens there.
    """
    findings: list[Finding] = []
    not_spoken: dict[str, str] = {}
    left: list[str] = []
    for version in versions:
        probe = Probe(target, version, timeout_s)
        refusal = _refusal_of(probe)
        if refusal is not None:
            not_spoken[VERSION_NAMES[version]] = refusal
            continue
        try:
            findings += _ask_all(probe, checks, on_check)
        finally:
            left += probe.clean_up()
    return Results(tuple(findings), not_spoken, tuple(left))


def _refusal_of(probe: Probe) -> str | None:
    """Why the broker does not talk to us in this version at all."""
    with probe.closing():
        try:
            probe.open().leave()
        except NotOffered as refused:
            return str(refused)
        except Violation as silent:
            return str(silent)
    return None


def _ask_all(
    probe: Probe, checks: list[Check], on_check: Callable[[Check, int], object]
) -> Iterator[Finding]:
    for one in checks:
        clause = one.clauses.get(probe.version)
        if clause is None:
            continue
        on_check(one, probe.version)
        verdict, detail = _ask(one, probe)
        yield Finding(VERSION_NAMES[probe.version], clause, one.title, verdict, detail)


def _ask(one: Check, probe: Probe) -> tuple[Verdict, str]:
    with probe.closing():
        try:
            one.ask(probe)
        except NotOffered as refused:
            return Verdict.NOT_OFFERED, str(refused)
        except Violation as violation:
            return Verdict.VIOLATED, str(violation)
        except ConnectFailed as error:
            return Verdict.VIOLATED, f"the broker takes no connection any more: {error}"
        except QuantuMQTTError as error:
            return Verdict.VIOLATED, str(error)
    return Verdict.KEPT, ""
