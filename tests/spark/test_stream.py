"""The source as a stream, into tables."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

from quantumqtt.errors import LandingConflict, OffsetExpired, SliceUnavailable
from quantumqtt.spark.crossing import typed_error
from quantumqtt.spark.table import open_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Lander, Source

FORMATS = ["delta", "parquet"]


def rows_of(table: Path, table_format: str) -> list[tuple[int, int]]:
    """List (partition, offset) of everything a reader of the table sees."""
    if not table.exists():
        return []
    if table_format == "delta":
        from deltalake import DeltaTable

        rows = DeltaTable(table).to_pyarrow_table(columns=["partition", "offset"])
    else:
        rows = ds.dataset(table, format="parquet", partitioning="hive").to_table(
            columns=["partition", "offset"]
        )
    return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def expected(**ends: int) -> list[tuple[int, int]]:
    return sorted((int(n[1:]), o) for n, end in ends.items() for o in range(end))


@pytest.mark.parametrize("table_format", FORMATS)
def test_limits_cut_a_stream_into_batches(
    land: "Lander", tmp_path: Path, table_format: str
) -> None:
    assert land(table_format, maxRecordsPerTrigger=600) == [600, 600, 300]
    assert rows_of(tmp_path / "table", table_format) == expected(p0=1_000, p1=500)


def test_bytes_limit_a_batch_roughly(source: "Source", land: "Lander") -> None:
    held = source.log.partitions("default")
    batches = land(maxBytesPerTrigger=sum(rows.bytes for rows in held.values()) // 5)
    assert sum(batches) == 1_500
    assert 4 <= len(batches) <= 7


@pytest.mark.parametrize("table_format", FORMATS)
def test_partition_that_is_added_is_read_from_its_start(
    source: "Source", land: "Lander", tmp_path: Path, table_format: str
) -> None:
    land(table_format)
    source.log.append("default", 2, 70)
    source.log.append("default", 0, 5)
    assert sum(land(table_format)) == 75
    assert rows_of(tmp_path / "table", table_format) == expected(p0=1_005, p1=500, p2=70)


@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.requirement("PIPE-13")
def test_lost_checkpoint_lands_nothing_twice(
    source: "Source", land: "Lander", tmp_path: Path, table_format: str
) -> None:
    land(table_format)
    land(table_format, checkpoint="another")
    assert rows_of(tmp_path / "table", table_format) == expected(p0=1_000, p1=500)


@pytest.mark.parametrize("table_format", FORMATS)
def test_batch_that_overlaps_what_is_there_is_refused_whole(
    source: "Source", land: "Lander", tmp_path: Path, table_format: str
) -> None:
    land(table_format)
    source.log.append("default", 0, 10)
    source.log.append("default", 1, 10)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's own kinds differ by release
        land(table_format, checkpoint="another")
    assert type(typed_error(caught.value)) is LandingConflict
    assert rows_of(tmp_path / "table", table_format) == expected(p0=1_000, p1=500)
    assert not list((tmp_path / "table").glob("_landing/*"))


def test_table_knows_where_it_ends(land: "Lander", tmp_path: Path) -> None:
    land("delta")
    home = str(tmp_path / "table")
    assert open_place(home, "delta").landed() == {("default", 0): 1_000, ("default", 1): 500}


def test_expired_offset_stops_a_stream_with_its_range(source: "Source", land: "Lander") -> None:
    land()
    source.log.append("default", 0, 100)
    source.log.expire("default", 0, 1_050)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's own kinds differ by release
        land()
    error = typed_error(caught.value)
    assert isinstance(error, OffsetExpired)
    assert (error.partition, error.start, error.earliest, error.end) == (0, 1_000, 1_050, 1_100)


def test_expired_offset_is_passed_on_request(
    source: "Source", land: "Lander", tmp_path: Path
) -> None:
    land()
    source.log.append("default", 0, 100)
    source.log.expire("default", 0, 1_050)
    assert sum(land(failOnDataLoss=False)) == 50
    landed = [o for p, o in rows_of(tmp_path / "table", "delta") if p == 0]
    assert landed == [*range(1_000), *range(1_050, 1_100)]


def test_log_that_is_shorter_than_the_checkpoint_is_another_log(
    source: "Source", land: "Lander"
) -> None:
    land()
    source.log._segments["default"][0] = source.log._segments["default"][0][:0]
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's own kinds differ by release
        land()
    assert type(typed_error(caught.value)) is SliceUnavailable


def test_progress_tells_how_far_behind(spark: "SparkSession", source: "Source") -> None:
    query = (
        source.stream(spark, maxRecordsPerTrigger=100)
        .writeStream.format("noop")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    first = query.recentProgress[0]["sources"][0]
    assert first["endOffset"] == '{"v": 1, "p": {"0": 50, "1": 50}}'
    assert first["latestOffset"] == '{"v": 1, "p": {"0": 1000, "1": 500}}'
