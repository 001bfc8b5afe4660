"""What the service needs of a log; the broker's own and the tests' stand-in both are one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from quantumqtt.logwire import PartitionRange


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """A read that was checked: the partition exists and held the whole range a moment ago.

    Attributes:
        tenant: Whose log.
        partition: Which part of it.
        start: First offset.
        end: One past the last offset; at most the committed end.
        topics: What the reader asks for; () is everything.
        allowed: What the reader may see; None is everything. A row is given out only when it
            matches both, and leaves no trace in the answer otherwise.
        judge: Asked about each topic of a row that passes both; None lets all of them through.
        columns: Which, in this order; None is all.
        bytes_max: What the reader that is returned may hold in memory, beyond one single row.
    """

    tenant: str
    partition: int
    start: int
    end: int
    topics: tuple[str, ...]
    allowed: tuple[str, ...] | None
    columns: tuple[str, ...] | None
    bytes_max: int
    judge: Callable[[str], bool] | None = None


class LogStore(Protocol):
    """A committed log, read by ranges of offsets. Every method may be called from any thread."""

    def tenants(self) -> Sequence[str]:
        """List the tenants that have a log."""

    def partitions(self, tenant: str) -> Mapping[int, PartitionRange]:
        """Tell what each partition of a tenant holds; committed rows only.

        `end` never goes back and `earliest` never passes `end`.
        """

    def offset_for_time(self, tenant: str, partition: int, ts_us: int) -> int:
        """Find the first offset whose record is not older; the end when all are older."""

    def read(self, plan: ReadPlan) -> pa.RecordBatchReader:
        """Open the rows of a range, in offset order, without copying what need not be copied.

        The same plan gives the same rows for as long as they are retained. A store that loses the
        range after the reader was opened fails the reader; it never skips.

        Raises:
            OffsetExpired: Retention was quicker than the plan.
            StorageError: The disk did not give the rows.
        """

    def wait(self, tenant: str, positions: Mapping[int, int], timeout_s: float) -> None:
        """Return when a partition ends past its position (absent: 0), or when the time is up."""
