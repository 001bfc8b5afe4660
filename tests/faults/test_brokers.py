"""Real brokers under torture: what each durability level keeps, and that `memory` is caught.

The same runs against `memory` and Mosquitto show that they would notice.
"""

import os
from pathlib import Path

import pytest

from quantumqtt.cli.crash.hurt import Fault
from quantumqtt.cli.crash.ledger import Property
from tests.harness.crash_runs import (
    assert_kept,
    broken,
    journal_broker,
    mosquitto,
    mosquitto_config,
    needs_mounts,
    needs_strict,
    ours,
    torture,
    trace_syncs,
)
from tests.harness.message_log import judge_log

ROUNDS_AT_NIGHT = int(os.environ.get("TORTURE_ROUNDS", "200"))
QUICKLY_S = 0.7
GONE = {Property.DELIVERED, Property.SESSION_PRESENT, Property.RETAINED}
# The disk has 64 MiB; a file of the log, and the packets that must fit into one, are far smaller.
SMALL_LOG = (
    "env QUANTUMQTT_STORAGE__SEGMENT_BYTES=4194304 QUANTUMQTT_LIMITS__PACKET_BYTES_MAX=262144 "
)
# Chunks of the message log and checkpoints come often, so that faults fall among them.
SMALL_FILES = (
    "env QUANTUMQTT_STORAGE__CHUNK_BYTES=65536 QUANTUMQTT_STORAGE__CHECKPOINT_INTERVAL_S=1 "
    "QUANTUMQTT_STORAGE__CHECKPOINT_LOG_BYTES=1048576 QUANTUMQTT_STORAGE__SEGMENT_BYTES=4194304 "
    "QUANTUMQTT_LIMITS__PACKET_BYTES_MAX=262144 "
)
OTHER_FAULTS = (Fault.TERM, Fault.STOP, Fault.STORM)


@needs_strict
@pytest.mark.requirement("SES-08", "SES-14", "QOS-02", "QOS-03", "WILL-01")
def test_strict_loses_nothing_to_kill() -> None:
    assert_kept(torture(SMALL_FILES + ours("strict"), Fault.KILL, rounds=3, judge_log=judge_log))


@needs_strict
@needs_mounts
@pytest.mark.requirement("SES-08", "SES-14", "LOG-12", "WILL-01")
def test_strict_loses_nothing_to_power_cuts() -> None:
    assert_kept(torture(SMALL_FILES + ours("strict"), Fault.POWER, rounds=3, judge_log=judge_log))


@needs_strict
@needs_mounts
@pytest.mark.requirement("LOG-37")
def test_strict_loses_nothing_on_a_disk_that_fills() -> None:
    assert_kept(torture(SMALL_LOG + ours("strict"), Fault.DISK_FULL, rounds=1, judge_log=judge_log))


@needs_strict
@pytest.mark.needs_program("strace")
@pytest.mark.requirement("LOG-12", "QOS-02")
def test_strict_syncs_before_each_puback() -> None:
    verdict = trace_syncs(ours("strict"))
    assert verdict.is_kept, verdict.text()


@needs_strict
@needs_mounts
@pytest.mark.needs_program("strace")
def test_strict_whose_syncs_are_stubbed_is_caught_twice() -> None:
    """Were it not, the two tests above would prove nothing about this binary."""
    outcome = torture(
        ours("strict"), Fault.POWER, rounds=1, settle_s=QUICKLY_S, syncs_are_stubbed=True
    )
    assert outcome.absence is not None or broken(outcome) & GONE
    assert not trace_syncs(ours("strict"), syncs_are_stubbed=True).is_kept


@needs_strict
@pytest.mark.night
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", [Fault.KILL, *OTHER_FAULTS])
def test_strict_loses_nothing_all_night(fault: Fault) -> None:
    command = SMALL_FILES + ours("strict")
    night = torture(
        command, fault, rounds=ROUNDS_AT_NIGHT, rate=1_000, traffic_s=1.5, judge_log=judge_log
    )
    assert_kept(night)


@needs_strict
@needs_mounts
@pytest.mark.night
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", [Fault.POWER, Fault.DISK_FULL])
def test_strict_loses_nothing_to_disks_all_night(fault: Fault) -> None:
    rounds = ROUNDS_AT_NIGHT if fault is Fault.POWER else max(1, ROUNDS_AT_NIGHT // 10)
    command = SMALL_FILES + ours("strict")
    night = torture(command, fault, rounds=rounds, rate=1_000, traffic_s=1.5, judge_log=judge_log)
    assert_kept(night)


def test_memory_is_caught_losing_to_kill() -> None:
    outcome = torture(ours("memory"), Fault.KILL, rounds=1, settle_s=QUICKLY_S)
    assert broken(outcome) & GONE


@needs_mounts
def test_memory_needs_no_disk_and_goes_on_without_space() -> None:
    assert_kept(torture(ours("memory"), Fault.DISK_FULL, rounds=1, rate=200))


@pytest.mark.parametrize("fault", [Fault.STOP, pytest.param(Fault.STORM, marks=pytest.mark.night)])
def test_memory_keeps_everything_as_long_as_it_lives(fault: Fault) -> None:
    assert_kept(torture(ours("memory"), fault, rounds=1))


@pytest.mark.needs_program("strace")
def test_memory_is_seen_not_to_sync() -> None:
    assert not trace_syncs(ours("memory")).is_kept


@pytest.mark.needs_program("mosquitto")
def test_mosquitto_is_caught_losing_to_kill(tmp_path: Path) -> None:
    config = mosquitto_config(tmp_path)
    outcome = torture(mosquitto(), Fault.KILL, rounds=1, settle_s=QUICKLY_S, config=config)
    assert broken(outcome) & GONE


@pytest.mark.needs_program("mosquitto", "strace")
def test_mosquitto_is_seen_not_to_sync(tmp_path: Path) -> None:
    verdict = trace_syncs(mosquitto(), config=mosquitto_config(tmp_path))
    assert "no sync" in verdict.text()


@needs_mounts
@pytest.mark.night
@pytest.mark.timeout(3600)
def test_an_honest_broker_survives_a_night_of_power_cuts() -> None:
    assert_kept(torture(journal_broker(), Fault.POWER, rounds=ROUNDS_AT_NIGHT))
