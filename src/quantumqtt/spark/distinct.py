"""One row per message, whatever was read twice.

The key of a record is its place: tenant, partition, offset. It is given at the commit and never
again to another record, so it is the same however often a record is read, landed or replayed.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY: Final = ("tenant", "partition", "offset")


def distinct_messages(rows: "DataFrame", *, late: str = "10 minutes") -> "DataFrame":
    """Keep one row of each message.

    Of a stream, doubles are found that come within `late` of the first one, by the time of commit;
    what must be remembered for that is bounded.
    """
    if rows.isStreaming:
        return rows.withWatermark("ts", late).dropDuplicatesWithinWatermark(list(KEY))
    return rows.dropDuplicates(list(KEY))
