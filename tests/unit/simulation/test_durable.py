"""One life of a node on a disk that lies: what counts when, and what is found again."""

from typing import Final

import pytest

from quantumqtt import _core
from quantumqtt.errors import CorruptLog, StorageError
from quantumqtt.simulation.commands import Limits, OpenSession, Publish
from quantumqtt.simulation.durable import Life
from quantumqtt.simulation.effects import Acknowledge, SessionOpened

NOW_MS: Final = 1_700_000_000_000
OPEN: Final = OpenSession(origin=(1, 0, 1), client_id="a")
PUBLISH: Final = Publish(
    origin=(1, 0, 2), client_id="b", topic="t", payload=b"m", qos=1, packet_id=7, retain=True
)


def begin(disk: _core.SimulatedDisk, *, salts: int = 1, bend: str | None = None) -> Life:
    return Life(disk, limits=Limits(), now_ms=NOW_MS, entropy_seed=salts, bend=bend)


@pytest.mark.requirement("LOG-01", "QOS-02")
def test_nothing_is_answered_before_the_sync() -> None:
    life = begin(_core.SimulatedDisk(1))
    assert life.turn([[PUBLISH]], now_ms=NOW_MS, sync=False) == []
    (applied,) = life.turn([], now_ms=NOW_MS, sync=True)
    assert [type(effect) for effect in applied.effects][1] is Acknowledge
    assert applied.commands == (PUBLISH,)


def test_what_was_answered_survives_a_crash_and_what_was_not_may_be_gone() -> None:
    disk = _core.SimulatedDisk(1)
    life = begin(disk)
    life.turn([[OPEN]], now_ms=NOW_MS, sync=True)
    life.turn([[PUBLISH]], now_ms=NOW_MS, sync=False)
    disk.crash("clean")
    again = begin(disk, salts=2)
    assert again.client_ids() == ["a"]
    assert again.retained_offsets(now_ms=NOW_MS) == []
    assert any(isinstance(e, SessionOpened) for found in again.found for e in found.effects)


def test_a_checkpoint_holds_the_state_and_lets_the_log_go() -> None:
    disk = _core.SimulatedDisk(1)
    life = begin(disk)
    life.turn([[OPEN], [PUBLISH]], now_ms=NOW_MS, sync=True)
    index = life.begin_checkpoint_files()
    life.begin_checkpoint_state(index)
    while life.step_checkpoint(floor=None) is None:
        pass
    assert life.status()["compacted"] == index
    disk.crash("process")
    again = begin(disk, salts=2)
    assert again.status()["restored"] == index
    assert all(found.index > index for found in again.found)
    assert again.retained_offsets(now_ms=NOW_MS) == [0]
    assert again.broken_invariant() is None


def test_a_floor_holds_the_log() -> None:
    disk = _core.SimulatedDisk(1)
    life = begin(disk)
    life.turn([[OPEN], [PUBLISH]], now_ms=NOW_MS, sync=True)
    life.begin_checkpoint_state(life.begin_checkpoint_files())
    while life.step_checkpoint(floor=1) is None:
        pass
    assert life.status()["compacted"] == 1


@pytest.mark.requirement("LOG-16")
def test_a_failed_sync_stops_the_node_for_good() -> None:
    disk = _core.SimulatedDisk(1)
    life = begin(disk)
    disk.inject("sync_error", 0)
    assert life.turn([[PUBLISH]], now_ms=NOW_MS, sync=True) == []
    assert life.stopped is not None
    assert "the log has failed" in life.stopped
    assert life.turn([[OPEN]], now_ms=NOW_MS, sync=True) == []
    assert life.stopped is not None


def test_a_full_disk_answers_nothing_and_goes_on_once_there_is_room() -> None:
    disk = _core.SimulatedDisk(1)
    disk.set_capacity(10_000)
    with pytest.raises(StorageError):
        begin(disk)
    disk.set_capacity(None)
    disk.crash("process")
    assert begin(disk, salts=2).status()["is_full"] is False


@pytest.mark.requirement("LOG-20")
def test_a_changed_byte_below_the_watermark_is_refused() -> None:
    disk = _core.SimulatedDisk(1)
    life = begin(disk)
    for _ in range(3):
        life.turn([[PUBLISH]], now_ms=NOW_MS, sync=True)
    disk.crash("clean")
    (segment,) = (path for path in disk.paths() if path.endswith(".seg"))
    disk.flip(segment, 4096 + 80, 4)
    with pytest.raises(CorruptLog):
        begin(disk, salts=2)


def test_words_nobody_knows_are_refused() -> None:
    disk = _core.SimulatedDisk(1)
    with pytest.raises(ValueError, match="melted"):
        disk.crash("melted")
    with pytest.raises(ValueError, match="boredom"):
        disk.inject("boredom", 0)
    with pytest.raises(ValueError, match="twisted"):
        begin(disk, bend="twisted")
