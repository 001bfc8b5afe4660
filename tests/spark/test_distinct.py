"""One row per message, from input that was read twice."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quantumqtt.spark import distinct_messages
from tests.spark.test_stream import expected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.conftest import Source


def places(frame: "DataFrame") -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in frame.collect())


@pytest.mark.requirement("PIPE-02", "PIPE-05")
def test_a_batch_read_twice_gives_every_message_once(
    spark: "SparkSession", source: "Source"
) -> None:
    twice = source.read(spark).unionByName(source.read(spark))
    assert twice.count() == 3_000
    assert places(distinct_messages(twice)) == expected(p0=1_000, p1=500)


@pytest.mark.requirement("PIPE-05")
def test_a_stream_read_twice_gives_every_message_once(
    spark: "SparkSession", source: "Source", tmp_path: Path
) -> None:
    twice = source.stream(spark).unionByName(source.stream(spark, maxRecordsPerTrigger=400))
    query = (
        distinct_messages(twice)
        .writeStream.format("memory")
        .queryName("distinct")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert places(spark.table("distinct")) == expected(p0=1_000, p1=500)
