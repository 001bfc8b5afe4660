"""The columns of a record, in their order; only ever appended to.

Their Arrow types stand in `schema.py`, which needs Arrow; the names alone need nothing.
"""

from typing import Final

COLUMNS: Final = (
    "tenant",
    "partition",
    "offset",
    "ts",
    "topic",
    "payload",
    "qos",
    "retain",
    "source",
    "client_id",
    "incarnation",
    "session_epoch",
    "publish_seq",
    "forward_seq",
    "routing_epoch",
    "content_type",
    "response_topic",
    "correlation_data",
    "user_properties",
    "expiry_s",
)
