"""Sparkplug B payloads: a timestamp, a sequence number and metrics.

The message's shape is fixed by the Sparkplug 3.0 specification, in its Protobuf schema,
so no descriptor is needed. A metric has one value in one of a dozen fields; here it becomes a
number (`value_double`, and `value_long` where it is whole), a text (`value_string`) or bytes
(`value_bytes`), whichever fits its kind, so that one table holds them all. Data sets, templates
and property sets are kept as bytes.
"""

from typing import Final

from quantumqtt.spark.payloads.bad import signed
from quantumqtt.spark.payloads.protobuf import Field, ProtobufDecoder, Types

_FLOAT, _DOUBLE = 2, 1
_UINT64, _BOOL, _STRING, _MESSAGE, _BYTES, _UINT32 = 4, 8, 9, 11, 12, 13

_PAYLOAD: Final = "sparkplug.Payload"
_METRIC: Final = "sparkplug.Metric"
_TYPES: Final = Types(
    {
        _PAYLOAD: {
            1: Field("timestamp", _UINT64, tells_absence=True),
            2: Field("metrics", _MESSAGE, repeated=True, of=_METRIC),
            3: Field("seq", _UINT64, tells_absence=True),
            4: Field("uuid", _STRING, tells_absence=True),
            5: Field("body", _BYTES, tells_absence=True),
        },
        _METRIC: {
            1: Field("name", _STRING, tells_absence=True),
            2: Field("alias", _UINT64, tells_absence=True),
            3: Field("timestamp", _UINT64, tells_absence=True),
            4: Field("datatype", _UINT32, tells_absence=True),
            5: Field("is_historical", _BOOL),
            6: Field("is_transient", _BOOL),
            7: Field("is_null", _BOOL),
            10: Field("int_value", _UINT32, tells_absence=True),
            11: Field("long_value", _UINT64, tells_absence=True),
            12: Field("float_value", _FLOAT, tells_absence=True),
            13: Field("double_value", _DOUBLE, tells_absence=True),
            14: Field("boolean_value", _BOOL, tells_absence=True),
            15: Field("string_value", _STRING, tells_absence=True),
            16: Field("bytes_value", _BYTES, tells_absence=True),
            17: Field("dataset_value", _BYTES, tells_absence=True),
            18: Field("template_value", _BYTES, tells_absence=True),
        },
    },
    {},
)

# Signed kinds travel as unsigned numbers of their width: Int8, Int16, Int32, Int64.
_SIGNED_BITS: Final = {1: 8, 2: 16, 3: 32, 4: 64}
_read_payload: Final = ProtobufDecoder(_TYPES, _PAYLOAD)

# What `from_payload(…, "sparkplug")` gives, in Spark's words.
SPARKPLUG_DDL: Final = (
    "timestamp BIGINT, seq BIGINT, uuid STRING, metrics ARRAY<STRUCT<name STRING, alias BIGINT,"
    " timestamp BIGINT, datatype INT, is_historical BOOLEAN, is_transient BOOLEAN,"
    " is_null BOOLEAN, value_double DOUBLE, value_long BIGINT, value_string STRING,"
    " value_bytes BINARY>>"
)


def decode_sparkplug(payload: bytes) -> dict[str, object]:
    """Read one payload; times are milliseconds since 1970, as devices send them.

    Raises:
        BadPayload: The bytes are no Sparkplug B payload.
    """
    read = _read_payload(payload)
    metrics = read["metrics"]
    assert isinstance(metrics, list), "metrics are repeated"
    return {
        "timestamp": read["timestamp"],
        "seq": read["seq"],
        "uuid": read["uuid"],
        "metrics": [_metric(metric) for metric in metrics],
    }


def _metric(read: dict[str, object]) -> dict[str, object]:
    datatype = read["datatype"]
    long = _first(read, "int_value", "long_value")
    if isinstance(long, int):
        bits = _SIGNED_BITS.get(datatype if isinstance(datatype, int) else 0)
        long = signed(long, bits) if bits else long
    flag = read["boolean_value"]
    if isinstance(flag, bool):
        long = int(flag)
    number = _first(read, "float_value", "double_value")
    if number is None and isinstance(long, int):
        number = float(long)
    return {
        **{name: read[name] for name in ("name", "alias", "timestamp", "datatype")},
        **{name: read[name] for name in ("is_historical", "is_transient", "is_null")},
        "value_double": number,
        "value_long": long,
        "value_string": read["string_value"],
        "value_bytes": _first(read, "bytes_value", "dataset_value", "template_value"),
    }


def _first(read: dict[str, object], *names: str) -> object:
    return next((read[name] for name in names if read[name] is not None), None)
