"""The one place that knows how Spark releases differ, and which names of pyspark we stand on.

Supported: pyspark 4.2 and 4.3. Both have admission control for Python sources (`latestOffset` with
start and limit, read limits, `reportLatestOffset`) and the AvailableNow mixin; earlier releases
have neither, and are refused here with a sentence instead of failing somewhere inside.
"""

from typing import Final

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
    WriterCommitMessage,
)

from quantumqtt.errors import ConfigError
from quantumqtt.spark.pushdown import Condition

RELEASE_MIN: Final = (4, 2)
RELEASE_BELOW: Final = (4, 4)


def check_release(version: str = pyspark.__version__) -> None:
    """Refuse a Spark that these rooms were not built for.

    Raises:
        ConfigError: It is older than 4.2, or newer than what was tested.
    """
    numbers = tuple(int(part) for part in version.split(".")[:2])
    if not RELEASE_MIN <= numbers < RELEASE_BELOW:
        raise ConfigError(
            f"pyspark {version} is not supported", hint="install quantumqtt[spark]: 4.2 or 4.3"
        )


check_release()

from pyspark.sql.streaming.datasource import (  # noqa: E402 - absent before 4.2, see above
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

_COMPARISONS: Final = {
    EqualTo: "=",
    In: "in",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    StringStartsWith: "starts with",
}


def condition_of(one: Filter) -> Condition | None:
    """Read a filter of Spark's; None when it is of a kind that narrows nothing."""
    comparison = _COMPARISONS.get(type(one))
    attribute: tuple[object, ...] = getattr(one, "attribute", ())
    if comparison is None or len(attribute) != 1:
        return None
    return Condition(str(attribute[0]), comparison, getattr(one, "value", None))


__all__ = [
    "DataSource",
    "DataSourceReader",
    "DataSourceStreamArrowWriter",
    "DataSourceStreamReader",
    "Filter",
    "InputPartition",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "WriterCommitMessage",
    "check_release",
    "condition_of",
]
