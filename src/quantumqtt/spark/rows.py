"""A record as Spark sees it, and the one function that runs on executors to read a slice."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from quantumqtt.errors import OffsetExpired
from quantumqtt.logreader.reader import LogReader
from quantumqtt.logwire.schema import LOG_SCHEMA
from quantumqtt.logwire.tickets import ReadTicket
from quantumqtt.spark.crossing import spelled_errors
from quantumqtt.spark.options import SourceOptions
from quantumqtt.spark.planning import LogSlice

_SIMPLE: Final[dict[str, DataType]] = {
    "string": StringType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "timestamp[us, tz=UTC]": TimestampType(),
    "binary": BinaryType(),
    "int8": ByteType(),
    "bool": BooleanType(),
}


def spark_schema(schema: pa.Schema = LOG_SCHEMA) -> StructType:
    """Give the columns in Spark's types; widths, order and nullability as in Arrow."""
    return StructType([_field(field) for field in schema])


def _field(field: pa.Field) -> StructField:
    return StructField(field.name, _type(field.type), field.nullable)


def _type(kind: pa.DataType) -> DataType:
    if pa.types.is_list(kind):
        return ArrayType(_type(kind.value_type), containsNull=kind.value_field.nullable)
    if pa.types.is_struct(kind):
        return StructType([_field(kind.field(index)) for index in range(kind.num_fields)])
    return _SIMPLE[str(kind)]


def read_slice(
    options: SourceOptions, one: LogSlice, topics: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Read a slice over this process's own connection; nothing is inherited from the driver.

    Where a query goes on despite losses, rows that expire between plan and read are left out here
    as well; the driver has warned of them, or does so for the next batch.
    """
    reader = LogReader(options.place, tenant=one.tenant, retries=options.retries)
    start = one.start
    with spelled_errors():
        while start < one.end:
            ticket = ReadTicket(
                tenant=one.tenant,
                partition=one.partition,
                start=start,
                end=one.end,
                topics=topics,
            )
            try:
                yield from reader.batches(ticket)
            except OffsetExpired as error:
                if options.fail_on_data_loss or error.earliest is None or error.earliest <= start:
                    raise
                start = min(error.earliest, one.end)
            else:
                return
