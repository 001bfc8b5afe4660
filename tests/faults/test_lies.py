"""Torture told apart: a broker that keeps its promises, and brokers that break one each.

The honest one syncs a journal before it answers; without these runs a silent tool could as well be
a blind one, and a loud one could be crying wolf.
"""

import pytest

from quantumqtt.cli.crash.hurt import Fault
from quantumqtt.cli.crash.ledger import Property
from quantumqtt.cli.crash.victim import BrokerAbsent
from tests.harness.crash_runs import (
    assert_kept,
    broken,
    journal_broker,
    needs_mounts,
    torture,
    trace_syncs,
)
from tests.harness.journal_broker import LIES

# A lie is seen because something is missing, so the silence after it is waited for.
QUICKLY_S = 0.7
BREAKS = {
    "forgets": Property.DELIVERED,
    "doubles": Property.ONCE,
    "invents": Property.INVENTED,
    "reorders": Property.ORDER,
    "denies-sessions": Property.SESSION_PRESENT,
    "claims-sessions": Property.SESSION_PRESENT,
    "loses-filters": Property.SUBSCRIPTIONS,
    "keeps-filters": Property.UNSUBSCRIPTIONS,
    "loses-retained": Property.RETAINED,
    "swallows-wills": Property.WILLS,
    "serves-wills-always": Property.WILLS,
    "forgets-goodbyes": Property.WILLS,
    "never-writes": Property.SESSION_PRESENT,
}
# The judge's own tests plant every lie; these few show that the swarm lets it see them.
BY_DAY = ("forgets", "denies-sessions", "keeps-filters", "swallows-wills")
FAULTS_AT_NIGHT = (Fault.TERM, Fault.STOP, Fault.STORM)


def test_every_lie_is_tried() -> None:
    assert set(BREAKS) | {"never-syncs", "dies"} == set(LIES)


@pytest.mark.parametrize(
    "fault",
    [Fault.KILL, *(pytest.param(one, marks=pytest.mark.night) for one in FAULTS_AT_NIGHT)],
)
def test_an_honest_broker_is_left_in_peace(fault: Fault) -> None:
    assert_kept(torture(journal_broker(), fault))


@needs_mounts
def test_an_honest_broker_survives_power_cuts() -> None:
    assert_kept(torture(journal_broker(), Fault.POWER, rounds=3))


@pytest.mark.parametrize(
    "lie",
    [pytest.param(one, marks=() if one in BY_DAY else pytest.mark.night) for one in BREAKS],
)
def test_a_lie_is_called_by_its_name(lie: str) -> None:
    outcome = torture(
        journal_broker(lie),
        Fault.KILL,
        rounds=20,
        traffic_s=0.9,
        settle_s=QUICKLY_S,
        stops_at=BREAKS[lie],
    )
    assert BREAKS[lie] in broken(outcome)


def test_a_broker_that_does_not_come_back_is_absent() -> None:
    outcome = torture(journal_broker("dies"), Fault.KILL)
    assert isinstance(outcome.absence, BrokerAbsent)
    assert "does not start twice" in str(outcome.absence)


def test_kill_alone_does_not_find_out_who_never_syncs() -> None:
    """The page cache outlives the process; this is why the power has to be cut."""
    assert_kept(torture(journal_broker("never-syncs"), Fault.KILL, rounds=1))


@needs_mounts
def test_a_power_cut_finds_out_who_never_syncs() -> None:
    outcome = torture(journal_broker("never-syncs"), Fault.POWER, rounds=1, settle_s=QUICKLY_S)
    assert {Property.DELIVERED, Property.SESSION_PRESENT} & broken(outcome)


@needs_mounts
@pytest.mark.needs_program("strace")
def test_an_honest_broker_whose_syncs_are_stubbed_is_caught_twice() -> None:
    outcome = torture(
        journal_broker(), Fault.POWER, rounds=1, settle_s=QUICKLY_S, syncs_are_stubbed=True
    )
    assert {Property.DELIVERED, Property.SESSION_PRESENT} & broken(outcome)
    assert not trace_syncs(journal_broker(), syncs_are_stubbed=True).is_kept


@pytest.mark.needs_program("strace")
def test_the_trace_tells_who_syncs() -> None:
    assert trace_syncs(journal_broker()).is_kept
    verdict = trace_syncs(journal_broker("never-syncs"))
    assert not verdict.is_kept
    assert "no sync" in verdict.text()
