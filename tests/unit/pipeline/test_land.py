"""What `land` decides before Spark starts."""

import json
from pathlib import Path

import pytest

from quantumqtt.errors import LandingConflict, SourceError, StorageError, TableMismatch
from quantumqtt.logwire import PartitionRange
from quantumqtt.pipeline import read_checkpoint
from quantumqtt.pipeline.checkpoint import CheckpointEnds
from quantumqtt.pipeline.land import plan_start
from quantumqtt.pipeline.progress import read_progress

HELD = {n: PartitionRange(earliest=0, end=100) for n in range(3)}
NEW = CheckpointEnds({}, {})


def test_new_checkpoint_starts_where_the_table_ends() -> None:
    assert json.loads(plan_start(NEW, {1: 40, 0: 7}, HELD, filtered=False)) == {"0": 7, "1": 40}
    assert plan_start(NEW, {}, HELD, filtered=False) == "{}"


def test_checkpoint_ahead_of_the_table_is_refused() -> None:
    ahead = CheckpointEnds({0: 50}, {0: 60})
    with pytest.raises(LandingConflict, match="up to 50, the table ends at 40"):
        plan_start(ahead, {0: 40}, HELD, filtered=False)
    with pytest.raises(LandingConflict, match="the table ends at 0"):
        plan_start(ahead, {}, HELD, filtered=False)


@pytest.mark.parametrize("landed", [50, 60])
def test_checkpoint_may_lag_by_the_batch_that_was_cut_off(landed: int) -> None:
    behind = CheckpointEnds({0: 50}, {0: 60})
    assert plan_start(behind, {0: landed}, HELD, filtered=False) == "earliest"


def test_filter_may_leave_the_table_behind() -> None:
    assert plan_start(CheckpointEnds({0: 50}, {0: 50}), {}, HELD, filtered=True) == "earliest"


def test_table_of_another_log_is_refused() -> None:
    with pytest.raises(TableMismatch, match="partition 9"):
        plan_start(NEW, {9: 1}, HELD, filtered=False)


def write_batch(folder: Path, batch: int, offset: object, *, committed: bool) -> None:
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text("{}")
    lines = f"v1\n{{}}\n{json.dumps(offset)}"
    (folder / "offsets" / str(batch)).write_text(lines)
    if committed:
        (folder / "commits" / str(batch)).write_text("v1\n{}")


def test_checkpoint_tells_what_is_committed_and_what_is_planned(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path / "none").is_new
    write_batch(tmp_path, 9, {"v": 1, "p": {"0": 5}}, committed=True)
    write_batch(tmp_path, 10, {"v": 1, "p": {"0": 8, "1": 2}}, committed=False)
    (tmp_path / "offsets" / ".10.crc").write_bytes(b"x")
    read = read_checkpoint(tmp_path)
    assert (read.committed, read.planned) == ({0: 5}, {0: 8, 1: 2})
    assert not read.is_new


def test_damaged_checkpoint_names_its_remedy(tmp_path: Path) -> None:
    write_batch(tmp_path, 0, {"v": 1, "p": {}}, committed=False)
    (tmp_path / "offsets" / "0").write_text("v1\n{}")
    with pytest.raises(StorageError, match="cannot be read") as caught:
        read_checkpoint(tmp_path)
    assert "new --checkpoint" in (caught.value.hint or "")
    (tmp_path / "metadata").unlink()
    with pytest.raises(StorageError, match="lost its file metadata"):
        read_checkpoint(tmp_path)


def test_checkpoint_of_another_source_is_refused(tmp_path: Path) -> None:
    write_batch(tmp_path, 0, {"topic": {"0": 5}}, committed=True)
    with pytest.raises(SourceError, match="not of version 1"):
        read_checkpoint(tmp_path)


def test_progress_counts_rows_by_source_and_the_lag_of_partitions_not_begun() -> None:
    told = {
        "batchId": 4,
        "durationMs": {"triggerExecution": 250},
        "sources": [
            {
                "numInputRows": 500,
                "endOffset": '{"v": 1, "p": {"0": 70}}',
                "latestOffset": {"v": 1, "p": {"0": 100, "1": 5}},
            }
        ],
    }
    progress = read_progress(told, 1_000)
    assert (progress.lag, progress.rows_total, progress.rows_per_s) == (35, 1_500, 2_000.0)
    assert json.loads(json.dumps(progress.as_json()))["offsets"] == {"0": 70}
