"""Tables under hands other than ours, and on disks that are full."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from quantumqtt.errors import LandingConflict, StorageError, TableMismatch
from quantumqtt.logwire.schema import LOG_SCHEMA
from quantumqtt.spark import delta
from quantumqtt.spark.delta import DeltaPlace
from quantumqtt.spark.files import part_name, write_files
from quantumqtt.spark.landing import LandedFile, plan_commit
from quantumqtt.spark.parquet_folder import ParquetPlace, final_name, staged_name
from tests.harness.stand_in_log import EPOCH_US, make_rows
from tests.spark.test_stream import rows_of


def write(home: Path, start: int, count: int, *, tenant: str = "default") -> list[LandedFile]:
    name = staged_name if home.name == "parquet" else part_name
    return write_files(make_rows(tenant, 0, start, count).to_batches(), home, name)


def test_table_holds_what_the_log_held(tmp_path: Path) -> None:
    tenant = "a/b %41ä"
    DeltaPlace(tmp_path).commit(write(tmp_path, 0, 100, tenant=tenant))
    rows = DeltaTable(tmp_path).to_pyarrow_table()
    assert rows.select(LOG_SCHEMA.names).to_pylist() == make_rows(tenant, 0, 0, 100).to_pylist()
    assert DeltaPlace(tmp_path).landed() == {(tenant, 0): 100}
    # In the table's log a path is an address: the folder name's percent signs are quoted.
    log = "".join(file.read_text() for file in (tmp_path / "_delta_log").glob("*.json"))
    assert "tenant=a%252Fb%2520%252541" in log


@pytest.mark.requirement("PIPE-06")
def test_days_and_partitions_have_files_of_their_own(tmp_path: Path) -> None:
    day = 86_400_000_000
    rows = make_rows("default", 0, 0, 6)
    times = [EPOCH_US + (index // 2) * day for index in range(6)]
    rows = rows.set_column(3, LOG_SCHEMA.field("ts"), pa.array(times, LOG_SCHEMA.field("ts").type))
    other = make_rows("default", 1, 0, 3)
    mixed = pa.concat_tables([rows, other]).combine_chunks()
    files = write_files(mixed.to_batches(), tmp_path, part_name)
    DeltaPlace(tmp_path).commit(files)
    assert len({file.date for file in files}) == 3
    assert len(files) == 4
    table = DeltaTable(tmp_path).to_pyarrow_table()
    assert table.num_rows == 9
    dates = [str(date) for date in table["date"].to_pylist()]
    assert dates == [str(moment.date()) for moment in table["ts"].to_pylist()]


def test_of_two_runs_at_once_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DeltaPlace(tmp_path).commit(write(tmp_path, 0, 10))
    mine, theirs = write(tmp_path, 10, 10), write(tmp_path, 10, 10)
    judge = plan_commit

    def be_overtaken(files: list[LandedFile], landed: object) -> object:
        # The other run commits after this one has looked and before it writes.
        monkeypatch.setattr(delta, "plan_commit", judge)
        DeltaPlace(tmp_path).commit(theirs)
        return judge(files, landed)  # type: ignore[arg-type]

    monkeypatch.setattr(delta, "plan_commit", be_overtaken)
    with pytest.raises(LandingConflict, match="another run"):
        DeltaPlace(tmp_path).commit(mine)
    assert [offset for _, offset in rows_of(tmp_path, "delta")] == list(range(20))


def test_table_of_other_columns_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"offset": [1], "colour": ["red"]}))
    with pytest.raises(TableMismatch, match="colour"):
        DeltaPlace(tmp_path).landed()
    with pytest.raises(TableMismatch, match="is a Delta table"):
        ParquetPlace(tmp_path).landed()


def test_folder_goes_on_after_a_crash_between_two_renames(tmp_path: Path) -> None:
    home = tmp_path / "parquet"
    first, second = write(home, 0, 10), write(home, 10, 10)
    for file in first:
        (home / final_name(file)).parent.mkdir(parents=True)
        (home / file.path).rename(home / final_name(file))
    # Spark runs the batch again: the same rows, in files of the same ranges.
    again = write(home, 0, 10) + write(home, 10, 10)
    plan = ParquetPlace(home).commit(again)
    assert [file.first for file in plan.files] == [10]
    assert [offset for _, offset in rows_of(home, "parquet")] == list(range(20))
    ParquetPlace(home).discard(second)
    assert not list((home / "_landing").iterdir())


@pytest.mark.parametrize("name", ["delta", "parquet"])
def test_full_disk_is_an_error_with_a_remedy_and_shows_nothing(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / name

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match="No space left") as caught:
        write(home, 0, 10)
    assert "nothing of this batch is visible" in (caught.value.hint or "")
    assert not list(home.rglob("*.parquet"))


def test_rows_that_are_not_the_log_s_are_refused(tmp_path: Path) -> None:
    rows = make_rows("default", 0, 0, 3).drop_columns(["qos"])
    with pytest.raises(TableMismatch, match="not those of the log"):
        write_files(rows.to_batches(), tmp_path, part_name)
    backwards = make_rows("default", 0, 0, 3).take([2, 1, 0]).combine_chunks()
    with pytest.raises(Exception, match="not in the log's order"):
        write_files(backwards.to_batches(), tmp_path, part_name)
    assert not list(tmp_path.rglob("*.parquet"))
