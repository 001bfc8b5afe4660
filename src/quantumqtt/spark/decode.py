"""`from_payload`: columns out of payloads.

Payloads stay binary in the log and in its tables; what they mean is each query's to say. JSON is
Spark's own `from_json`; the other formats are decoded by `quantumqtt.spark.payloads` in Python
workers, which costs some microseconds a row.
"""

from collections.abc import Callable
from typing import Final, Literal

from pyspark.sql import Column
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from quantumqtt.errors import ConfigError
from quantumqtt.spark.payloads.avro import AvroDecoder
from quantumqtt.spark.payloads.bad import BadPayload
from quantumqtt.spark.payloads.cbor import decode_cbor
from quantumqtt.spark.payloads.coerce import coerce
from quantumqtt.spark.payloads.protobuf import ProtobufDecoder, read_descriptors
from quantumqtt.spark.payloads.sparkplug import SPARKPLUG_DDL, decode_sparkplug

Format = Literal["json", "avro", "protobuf", "cbor", "sparkplug"]
FORMATS: Final = ("json", "avro", "protobuf", "cbor", "sparkplug")


def from_payload(
    payload: Column | str,
    payload_format: Format,
    schema: StructType | str | None = None,
    *,
    avro_schema: str | None = None,
    descriptors: bytes | None = None,
    message: str | None = None,
    fail_fast: bool = False,
) -> Column:
    """Decode a column of payloads into a struct.

    Args:
        payload: The column, usually `payload`.
        payload_format: What the payloads are.
        schema: The columns wanted, as Spark's type or DDL; Sparkplug has its own. Fields that a
            payload does not have, or has in another kind, are null.
        avro_schema: The writer's schema as JSON, for avro.
        descriptors: What `protoc --include_imports --descriptor_set_out` wrote, for protobuf.
        message: Full name of the message, for protobuf.
        fail_fast: Fail the query at the first payload that cannot be read, instead of null.

    Raises:
        ConfigError: An argument is missing or wrong.
    """
    column = sql.col(payload) if isinstance(payload, str) else payload
    if payload_format not in FORMATS:
        raise ConfigError(
            f"payload format {payload_format!r} is unknown", hint=f"there are {', '.join(FORMATS)}"
        )
    if payload_format == "sparkplug" and schema is None:
        schema = SPARKPLUG_DDL
    if schema is None:
        raise ConfigError(
            f"{payload_format} payloads need a schema", hint='pass schema="temperature DOUBLE, …"'
        )
    wanted = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if payload_format == "json":
        mode = "FAILFAST" if fail_fast else "PERMISSIVE"
        return sql.from_json(column.cast("string"), wanted, {"mode": mode})
    decode = _decoder(payload_format, avro_schema, descriptors, message)
    shape = wanted.jsonValue()

    def read(one: bytes | None) -> object:
        if one is None:
            return None
        try:
            return coerce(decode(bytes(one)), shape)
        except BadPayload:
            if fail_fast:
                raise
            return None

    return sql.udf(read, wanted, useArrow=True)(column)


def _decoder(
    payload_format: str, avro_schema: str | None, descriptors: bytes | None, message: str | None
) -> Callable[[bytes], object]:
    if payload_format == "cbor":
        return decode_cbor
    if payload_format == "sparkplug":
        return decode_sparkplug
    if payload_format == "avro":
        if avro_schema is None:
            raise ConfigError("avro payloads need avro_schema", hint="pass the writer's schema")
        return AvroDecoder(avro_schema)
    if descriptors is None or message is None:
        raise ConfigError(
            "protobuf payloads need descriptors and message",
            hint="protoc --include_imports --descriptor_set_out=FILE x.proto",
        )
    return ProtobufDecoder(read_descriptors(descriptors), message)
