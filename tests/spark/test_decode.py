"""Payloads become columns."""

import json
from typing import TYPE_CHECKING, Any

import pytest

from quantumqtt.errors import ConfigError
from quantumqtt.spark import from_payload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AVRO = json.dumps(
    {"type": "record", "name": "R", "fields": [{"name": "t", "type": ["null", "double"]}]}
)


@pytest.mark.parametrize(
    ("payload_format", "payload", "how"),
    [
        ("json", b'{"t": 21.5}', {}),
        ("cbor", b"\xa1\x61t\xfb\x40\x35\x80\x00\x00\x00\x00\x00", {}),
        ("avro", b"\x02\x00\x00\x00\x00\x00\x80\x35\x40", {"avro_schema": AVRO}),
    ],
)
def test_payload_becomes_columns_and_a_bad_one_null(
    spark: "SparkSession", payload_format: str, payload: bytes, how: dict[str, str]
) -> None:
    frame = spark.createDataFrame([(payload,), (b"\xff\xff",), (None,)], "payload BINARY")
    schema = "t DOUBLE, absent STRING"
    decode: Any = from_payload
    column = decode("payload", payload_format, schema, **how)
    read = frame.select(column.alias("p"))
    rows = read.select("p.t", "p.absent").collect()
    assert [tuple(row) for row in rows] == [(21.5, None), (None, None), (None, None)]


def test_sparkplug_needs_no_schema(spark: "SparkSession") -> None:
    metric = b"\x0a\x01t\x20\x0a\x69" + b"\x00\x00\x00\x00\x00\x80\x35\x40"
    payload = b"\x08\x05\x12" + bytes([len(metric)]) + metric + b"\x18\x07"
    frame = spark.createDataFrame([(payload,)], "payload BINARY")
    row = frame.select(from_payload("payload", "sparkplug").alias("p")).first()["p"]
    assert (row.timestamp, row.seq) == (5, 7)
    assert [(m.name, m.datatype, m.value_double) for m in row.metrics] == [("t", 10, 21.5)]


def test_fail_fast_fails(spark: "SparkSession") -> None:
    frame = spark.createDataFrame([(b"\xff",)], "payload BINARY")
    with pytest.raises(Exception, match="BadPayload"):
        frame.select(from_payload("payload", "cbor", "t DOUBLE", fail_fast=True)).collect()


def test_missing_arguments_are_named(spark: "SparkSession") -> None:
    with pytest.raises(ConfigError, match="need avro_schema"):
        from_payload("payload", "avro", "t DOUBLE")
    with pytest.raises(ConfigError, match="need a schema"):
        from_payload("payload", "cbor")
