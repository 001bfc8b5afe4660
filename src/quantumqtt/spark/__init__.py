"""The message log as a Spark source, and tables that its rows land in exactly once.

    from quantumqtt.spark import register

    register(spark)
    log = spark.readStream.format("quantumqtt").option("endpoint", "grpc://127.0.0.1:8815").load()

With the package installed on driver and executors, `register` is optional for reading: Spark finds
`pyspark_quantumqtt` by itself. What is decided without Spark (options, offsets, plans, payloads)
imports no pyspark and is tested without a JVM, so the names here are loaded when first used.

Whatever runs on executors imports at the head of its file only: `register(by_value=True)` sends
this package to workers that have not installed it, and an import inside a function would look for
it there.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quantumqtt.spark.decode import from_payload
    from quantumqtt.spark.distinct import distinct_messages
    from quantumqtt.spark.registration import local_session, register
    from quantumqtt.spark.source import LogSource
    from quantumqtt.spark.table import LakeTable

__all__ = [
    "LakeTable",
    "LogSource",
    "distinct_messages",
    "from_payload",
    "local_session",
    "register",
]

_HOMES: Final = {
    "LakeTable": "quantumqtt.spark.table",
    "LogSource": "quantumqtt.spark.source",
    "distinct_messages": "quantumqtt.spark.distinct",
    "from_payload": "quantumqtt.spark.decode",
    "local_session": "quantumqtt.spark.registration",
    "register": "quantumqtt.spark.registration",
}


def __getattr__(name: str) -> object:
    """Load a public name from its module on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
