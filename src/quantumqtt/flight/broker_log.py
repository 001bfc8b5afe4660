"""The running broker's own message log as the service's store.

Everything that takes a while happens in native code without the interpreter: finding the end,
waiting for more, reading blocks, and leaving out what a filter excludes. Two kinds of reads pass
through Python batch by batch: of a reader whose rules deny something, which a list of filters
cannot say, so each topic of a batch is asked once; and with columns in another order than the
log's.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from quantumqtt.errors import OffsetExpired, StorageError
from quantumqtt.flight.store import ReadPlan
from quantumqtt.logwire import PartitionRange
from quantumqtt.logwire.schema import schema_of

# How long the logs are waited for, before a look whether the service closes.
_TURN_S: Final = 0.25


class NativeLog(Protocol):
    """What we need of `_core.MessageLog`: one partition, which any thread may ask."""

    @property
    def tenant(self) -> str:
        """Whose log."""

    @property
    def partition(self) -> int:
        """Which part of it."""

    def bounds(self) -> tuple[int, int]:
        """Tell the earliest offset, and one past the last that is durable."""

    def offset_for_time(self, ts_ms: int) -> int:
        """Find the first offset that is not older."""

    def read(
        self,
        start: int = 0,
        end: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        topics: Sequence[str] | None = None,
        allowed: Sequence[str] | None = None,
    ) -> object:
        """Open a range, as something with Arrow's C stream interface."""

    def wait(self, position: int, timeout_ms: int) -> bool:
        """Wait until it ends past a position."""

    def statistics(self) -> Mapping[str, int]:
        """Tell its size."""


class BrokerLog:
    """A `LogStore` over the partitions of one node."""

    def __init__(self, logs: Sequence[NativeLog]) -> None:
        self._logs: dict[str, dict[int, NativeLog]] = {}
        for log in logs:
            self._logs.setdefault(log.tenant, {})[log.partition] = log
        self._closed = False

    def close(self) -> None:
        """End every wait; rows can still be read."""
        self._closed = True

    def tenants(self) -> Sequence[str]:
        """List the tenants that have a log."""
        return sorted(self._logs)

    def partitions(self, tenant: str) -> Mapping[int, PartitionRange]:
        """Tell what each partition of a tenant holds."""
        return {number: _range_of(log) for number, log in self._logs.get(tenant, {}).items()}

    def offset_for_time(self, tenant: str, partition: int, ts_us: int) -> int:
        """Find the first offset whose record is not older; the log counts milliseconds."""
        return self._logs[tenant][partition].offset_for_time(-(-ts_us // 1_000))

    def read(self, plan: ReadPlan) -> pa.RecordBatchReader:
        """Open the rows of a range; native from the disk to the wire, unless a rule denies."""
        judge, columns = plan.judge, plan.columns
        if judge is not None and columns is not None and "topic" not in columns:
            columns = (*columns, "topic")
        try:
            stream = self._logs[plan.tenant][plan.partition].read(
                plan.start,
                plan.end,
                columns=columns,
                topics=plan.topics or None,
                allowed=plan.allowed,
            )
        except StorageError as error:
            if "have expired" not in str(error):
                raise
            raise OffsetExpired(
                str(error),
                hint="start at the earliest offset; longer retention keeps slow readers safe",
                tenant=plan.tenant,
                partition=plan.partition,
                start=plan.start,
                end=plan.end,
            ) from error
        reader = pa.RecordBatchReader.from_stream(stream)
        wanted = schema_of(plan.columns)
        if judge is None and reader.schema.names == wanted.names:
            return reader
        batches = iter(reader) if judge is None else _judged(reader, judge)
        return pa.RecordBatchReader.from_batches(
            wanted, (batch.select(wanted.names) for batch in batches)
        )

    def wait(self, tenant: str, positions: Mapping[int, int], timeout_s: float) -> None:
        """Return when a partition ends past its position, or when the time is up."""
        logs = self._logs[tenant]
        until = time.monotonic() + timeout_s
        while (left_s := until - time.monotonic()) > 0 and not self._closed:
            turn_s = min(left_s, _TURN_S / len(logs))
            for number, log in logs.items():
                if log.wait(positions.get(number, 0), int(turn_s * 1_000)):
                    return


def _range_of(log: NativeLog) -> PartitionRange:
    earliest, end = log.bounds()
    sizes = log.statistics()
    return PartitionRange(
        earliest=earliest,
        end=end,
        bytes=sizes.get("chunk_bytes", 0) + sizes.get("tail_bytes", 0),
    )


def _judged(reader: pa.RecordBatchReader, judge: Callable[[str], bool]) -> Iterator[pa.RecordBatch]:
    known: dict[str, bool] = {}
    for batch in reader:
        topics = batch.column("topic")
        for topic in pc.unique(topics).to_pylist():
            if topic not in known:
                known[topic] = judge(topic)
        open_ones = [topic for topic in pc.unique(topics).to_pylist() if known[topic]]
        kept = batch.filter(pc.is_in(topics, value_set=pa.array(open_ones, pa.string())))
        # Topics are without number; what was learnt is not kept beyond what is worth it.
        if len(known) > 100_000:
            known.clear()
        if kept.num_rows:
            yield kept
