"""The Arrow schema of a record, exactly as chunks store it, Flight sends it and Spark reads it.

Spark compares types, widths, nullability and order, and looks at the first batch only; so every
reader and writer takes the schema from here. MQTT allows a user property twice, hence a list of
pairs and not a map: a map would silently drop the second.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from quantumqtt.logwire.columns import COLUMNS

_PROPERTY: Final = pa.struct(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("value", pa.string(), nullable=False),
    ]
)

LOG_SCHEMA: Final = pa.schema(
    [
        pa.field("tenant", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("qos", pa.int8(), nullable=False),
        pa.field("retain", pa.bool_(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("client_id", pa.string()),
        pa.field("incarnation", pa.int64()),
        pa.field("session_epoch", pa.int64()),
        pa.field("publish_seq", pa.int64()),
        pa.field("forward_seq", pa.int64()),
        pa.field("routing_epoch", pa.int64()),
        pa.field("content_type", pa.string()),
        pa.field("response_topic", pa.string()),
        pa.field("correlation_data", pa.binary()),
        pa.field("user_properties", pa.list_(pa.field("item", _PROPERTY, nullable=False))),
        pa.field("expiry_s", pa.int64()),
    ]
)

assert tuple(LOG_SCHEMA.names) == COLUMNS, "names and types tell of the same columns"


def schema_of(columns: Sequence[str] | None) -> pa.Schema:
    """Choose columns, in the order they are asked for; None means all."""
    if columns is None:
        return LOG_SCHEMA
    return pa.schema([LOG_SCHEMA.field(name) for name in columns])
