"""The source as a table."""

from typing import TYPE_CHECKING

import pytest

from quantumqtt.errors import ConfigError, OffsetExpired, UnknownTenant
from quantumqtt.logwire.schema import LOG_SCHEMA
from quantumqtt.spark.crossing import typed_error
from tests.harness.stand_in_log import make_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Source


def test_every_row_arrives_as_it_is_in_the_log(spark: "SparkSession", source: "Source") -> None:
    frame = source.read(spark).where("partition = 1").orderBy("offset")
    table = frame.toArrow()
    assert table.schema.names == LOG_SCHEMA.names
    assert table.to_pylist() == make_rows("default", 1, 0, 500).to_pylist()


def test_schema_is_the_log_s_to_the_last_nullability(
    spark: "SparkSession", source: "Source"
) -> None:
    fields = {field.name: field for field in source.read(spark).schema.fields}
    assert [name for name, field in fields.items() if not field.nullable] == LOG_SCHEMA.names[:9]
    assert fields["qos"].dataType.typeName() == "byte"
    assert fields["user_properties"].dataType.containsNull is False


def test_ranges_are_split_into_tasks(spark: "SparkSession", source: "Source") -> None:
    frame = source.read(spark, rowsPerTask=300)
    assert frame.rdd.getNumPartitions() == 4 + 2
    assert frame.selectExpr("count(distinct partition, offset)").first()[0] == 1_500


def test_positions_choose_the_range(spark: "SparkSession", source: "Source") -> None:
    frame = source.read(
        spark, startingOffsets='{"0": 990, "1": "latest"}', endingOffsets='{"0": 995}'
    )
    assert sorted(row.offset for row in frame.collect()) == list(range(990, 995))


def test_topic_filter_reads_less(spark: "SparkSession", source: "Source") -> None:
    frame = source.read(spark, topicFilter='["office/#"]')
    assert {row.topic for row in frame.select("topic").distinct().collect()} == {"office/door"}
    assert {plan.topics for plan in source.log.plans} == {("office/#",)}


def test_filters_are_pushed_where_that_is_asked_for(
    spark: "SparkSession", source: "Source"
) -> None:
    chosen = source.read(spark, pushFilters=True).where(
        "topic = 'office/door' and partition = 0 and offset between 10 and 20"
    )
    assert sorted(row.offset for row in chosen.collect()) == [11, 14, 17, 20]
    (plan,) = source.log.plans
    assert (plan.partition, plan.start, plan.end) == (0, 10, 21)
    assert plan.topics == ("office/door",)


def test_times_are_pushed_as_offsets(spark: "SparkSession", source: "Source") -> None:
    moment = make_rows("default", 0, 400, 1)["ts"][0].as_py()
    frame = source.read(spark, pushFilters=True)
    chosen = frame.where(frame.ts >= moment).where("partition = 0")
    assert chosen.count() == 600
    (plan,) = source.log.plans
    assert (plan.start, plan.end) == (400, 1_000)


def test_one_frame_may_be_used_in_many_queries(spark: "SparkSession", source: "Source") -> None:
    # Spark keeps one plan per frame: with filters pushed, the second selection would lose rows.
    frame = source.read(spark)
    low, high = frame.where("offset < 10"), frame.where("offset >= 490")
    assert low.count() == 20
    assert frame.count() == 1_500
    assert low.union(high).count() == 20 + 10 + 510


def test_formats_are_found_without_being_registered(
    spark: "SparkSession", source: "Source"
) -> None:
    fresh = spark.newSession()
    assert source.read(fresh).count() == 1_500


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"startingOffset": "latest"}, ConfigError, "did you mean startingOffsets"),
        ({"tenant": "nobody"}, UnknownTenant, "no tenant nobody"),
        ({"startingOffsets": '{"0": 3}'}, OffsetExpired, "have expired unread"),
    ],
)
def test_errors_keep_their_type_through_the_jvm(
    spark: "SparkSession",
    source: "Source",
    options: dict[str, str],
    kind: type[Exception],
    words: str,
) -> None:
    source.log.expire("default", 0, 100)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's own kinds differ by release
        source.read(spark, **options).count()
    error = typed_error(caught.value)
    assert type(error) is kind
    assert words in f"{error} {error.hint}"


def test_expired_rows_are_left_out_only_on_request(spark: "SparkSession", source: "Source") -> None:
    source.log.expire("default", 0, 100)
    frame = source.read(spark, startingOffsets='{"0": 3}', failOnDataLoss=False)
    assert frame.where("partition = 0").count() == 900
