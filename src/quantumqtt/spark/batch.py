"""Reading a range of the log once: `spark.read.format("quantumqtt")`."""

import logging
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from quantumqtt.logreader.reader import LogReader
from quantumqtt.spark.crossing import spelled_errors
from quantumqtt.spark.options import SourceOptions
from quantumqtt.spark.planning import check_held, resolve, split
from quantumqtt.spark.pushdown import Narrowing, join_topics, narrow, narrow_range
from quantumqtt.spark.rows import read_slice
from quantumqtt.spark.versions import DataSourceReader, Filter, InputPartition, condition_of


class BatchReader(DataSourceReader):
    """Plans on the driver, reads on executors; it is pickled in between."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._narrowing = Narrowing()

    def partitions(self) -> Sequence[InputPartition]:
        """Settle both ends once, and cut what lies between into tasks."""
        options = self._options
        log = LogReader(options.place, tenant=options.tenant, retries=options.retries)
        with spelled_errors():
            held = log.partitions()
            starts = resolve(
                options.starting, held, tenant=options.tenant, at_time=log.offset_for_time
            )
            ends = resolve(options.ending, held, tenant=options.tenant, at_time=log.offset_for_time)
            starts, ends = narrow_range(self._narrowing, starts, ends, log.offset_for_time)
            starts, losses = check_held(
                starts,
                {number: held[number] for number in starts},
                tenant=options.tenant,
                fail_on_loss=options.fail_on_data_loss,
            )
        for loss in losses:
            warn_of_loss(options.tenant, loss.partition, loss.start, loss.end)
        slices = split(starts, ends, tenant=options.tenant, rows_per_task=options.rows_per_task)
        return [InputPartition(one) for one in slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one slice; runs on an executor."""
        topics = join_topics(self._options.topics, self._narrowing.topics)
        return read_slice(self._options, partition.value, topics)


class PushingBatchReader(BatchReader):
    """The same, asked what the query's filters let it leave unread.

    Spark (4.2 and 4.3) keeps one plan per DataFrame of a Python source: filters of one query stay
    in force for the next, and in a union of two selections the later one's for both. Rows are then
    missing without a word. So this is used only where the option `pushFilters` asks for it; see
    docs/decisions/2026-11-19-log-as-a-spark-source.md.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow by what is understood; every filter stays Spark's to apply."""
        understood = [condition_of(one) for one in filters]
        self._narrowing = narrow(one for one in understood if one is not None)
        return filters


def warn_of_loss(tenant: str, partition: int, start: int, end: int) -> None:
    """Say, where the driver's log is read, which rows a query goes on without."""
    logging.getLogger("quantumqtt.spark").warning(
        "rows expired unread, failOnDataLoss=false: tenant=%s partition=%d offsets=%d..%d count=%d",
        *(tenant, partition, start, end - 1, end - start),
    )
