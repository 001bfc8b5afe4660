"""What a torture run found, as a table for people and as one object for programs."""

import sys
import time
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from quantumqtt.cli.crash.ledger import Property, Violation, by_property
from quantumqtt.cli.crash.run import Outcome, Plan

_SHOWN_MAX: Final = 50
_WIDTH: Final = 100


def document(
    plan: Plan, outcome: Outcome, command: str, reproduce: str, start_s: float
) -> dict[str, object]:
    """Everything, for `--json`."""
    ledger = outcome.ledger
    found = by_property(ledger.violations)
    return {
        "command": command,
        "reproduce": reproduce,
        "fault": plan.fault.value,
        "seed": plan.seed,
        "rounds": len(outcome.rounds),
        "acknowledged": ledger.acknowledged_total,
        "delivered": ledger.delivered_total,
        "repeated_qos_1": ledger.repeated_total,
        "takeovers": outcome.takeovers,
        "slowest_start_s": round(start_s, 3),
        "came_back": outcome.absence is None,
        "properties": {
            one.name.lower(): {
                "text": one.value,
                "checked": ledger.checked[one],
                "violated": len(found[one]),
            }
            for one in Property
        },
        "violations": [_violation(one) for one in ledger.violations],
        "notes": [
            {"round": one.number, "hurt_after_s": round(one.hurt_after_s, 3), "note": one.note}
            for one in outcome.rounds
            if one.note
        ],
    }


def _violation(one: Violation) -> dict[str, object]:
    return {
        "property": one.property.name.lower(),
        "what": one.what,
        "client": one.client,
        "topic": one.topic,
        "message": one.message,
        "acknowledged_at": None if one.acknowledged_s is None else _clock(one.acknowledged_s),
    }


def _clock(at_s: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_s))
    return f"{whole}.{int(at_s % 1 * 1_000):03}Z"


def print_report(plan: Plan, outcome: Outcome, reproduce: str, start_s: float) -> None:
    """Print the table, then every finding by name, at most so many of each property."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    ledger = outcome.ledger
    found = by_property(ledger.violations)
    table = Table(box=None, pad_edge=False)
    table.add_column("property")
    table.add_column("checked", justify="right")
    table.add_column("violated", justify="right")
    for one in Property:
        count = len(found[one])
        style = "bold red" if count else "green" if ledger.checked[one] else "dim"
        shown = str(count) if ledger.checked[one] or count else "–"
        table.add_row(one.value, str(ledger.checked[one]), Text(shown, style))
    console.print(table)
    for prop, violations in found.items():
        if not violations:
            continue
        console.print(f"\n[bold red]{prop.value}[/]: {len(violations)} violations")
        for violation in violations[:_SHOWN_MAX]:
            console.print(f"  {line_of(violation)}", markup=False, soft_wrap=True)
        if len(violations) > _SHOWN_MAX:
            console.print(f"  … and {len(violations) - _SHOWN_MAX} more; --json names them all")
    console.print(
        f"\n{len(outcome.rounds)} rounds of {plan.fault.value}, seed {plan.seed}:"
        f" {ledger.acknowledged_total} acknowledged, {ledger.delivered_total} delivered"
        f" ({ledger.repeated_total} repeats), {outcome.takeovers} takeovers,"
        f" slowest start {start_s:.2f} s",
        markup=False,
        soft_wrap=True,
    )
    console.print(f"again: {reproduce}", markup=False, soft_wrap=True)


def line_of(one: Violation) -> str:
    """One finding in one line."""
    parts = [one.message, one.topic and f"on {one.topic}", one.client and f"for {one.client}"]
    where = " ".join(part for part in parts if part)
    when = "" if one.acknowledged_s is None else f", acknowledged {_clock(one.acknowledged_s)}"
    return f"{where}: {one.what}{when}"
