"""Following the log: `spark.readStream.format("quantumqtt")`.

On the driver, Spark asks `latestOffset` where the next micro-batch may end, writes that into its
checkpoint, and only then asks `partitions` for the slices between two offsets. So `partitions` must
be a function of the two offsets alone; nothing it needs is remembered from `latestOffset`.

Nothing a stream does holds the log: `commit` tells the service nothing. A query that falls behind
retention is stopped, or told (`failOnDataLoss`), never served with a gap it cannot see.
"""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from quantumqtt.logreader.reader import LogReader
from quantumqtt.spark import offsets
from quantumqtt.spark.batch import warn_of_loss
from quantumqtt.spark.crossing import spelled_errors
from quantumqtt.spark.options import SourceOptions
from quantumqtt.spark.planning import advance, check_held, clip, past_end, resolve, split
from quantumqtt.spark.rows import read_slice
from quantumqtt.spark.versions import (
    DataSourceStreamReader,
    InputPartition,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's view of the log; lives on the driver, `read` runs on executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._target: offsets.Ends | None = None

    def initialOffset(self) -> offsets.SparkOffset:
        """Settle where a new query starts; an old one starts where its checkpoint says."""
        log = self._log()
        with spelled_errors():
            return offsets.spell(
                resolve(
                    self._options.starting,
                    log.partitions(),
                    tenant=self._options.tenant,
                    at_time=log.offset_for_time,
                )
            )

    def getDefaultReadLimit(self) -> ReadLimit:
        """Tell Spark the limit asked for; with both given, `latestOffset` knows the other."""
        if self._options.records_per_trigger is not None:
            return ReadMaxRows(self._options.records_per_trigger)
        if self._options.bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Mapping[str, object], limit: ReadLimit) -> offsets.SparkOffset:
        """Choose where the next micro-batch ends, within the limit Spark passes."""
        rows_max = bytes_max = None
        if not isinstance(limit, ReadAllAvailable):
            rows_max = self._options.records_per_trigger
            bytes_max = self._options.bytes_per_trigger
        if isinstance(limit, ReadMaxRows):
            rows_max = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            bytes_max = limit.max_bytes
        with spelled_errors():
            held = self._log().partitions()
            starts, _ = check_held(
                offsets.read(start),
                held,
                tenant=self._options.tenant,
                fail_on_loss=self._options.fail_on_data_loss,
            )
            if self._target is not None:
                starts, held = clip(starts, held, self._target)
            ends = advance(starts, held, rows_max=rows_max, bytes_max=bytes_max)
            # Nothing to read must look the same as before, or Spark runs an empty batch.
            return offsets.spell({**offsets.read(start), **_moved(ends, offsets.read(start))})

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end: what is committed later waits for the next run."""
        with spelled_errors():
            held = self._log().partitions()
        self._target = {number: rows.end for number, rows in held.items()}

    def reportLatestOffset(self) -> offsets.SparkOffset:
        """Tell where the log ends, so that progress shows the lag."""
        with spelled_errors():
            held = self._log().partitions()
        return offsets.spell({number: rows.end for number, rows in held.items()})

    def partitions(
        self, start: Mapping[str, object], end: Mapping[str, object]
    ) -> Sequence[InputPartition]:
        """Cut what lies between two offsets into tasks."""
        options = self._options
        ends = offsets.read(end)
        if (begun := offsets.read(start)) == ends:
            return []
        with spelled_errors():
            held = self._log().partitions()
            for number, offset in ends.items():
                if number in held and offset > held[number].end:
                    raise past_end(options.tenant, number, offset, held[number])
            starts, losses = check_held(
                {number: begun.get(number, 0) for number in ends},
                {number: rows for number, rows in held.items() if number in ends},
                tenant=options.tenant,
                fail_on_loss=options.fail_on_data_loss,
            )
        for loss in losses:
            warn_of_loss(options.tenant, loss.partition, loss.start, loss.end)
        slices = split(starts, ends, tenant=options.tenant, rows_per_task=options.rows_per_task)
        return [InputPartition(one) for one in slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one slice; runs on an executor."""
        return read_slice(self._options, partition.value, self._options.topics)

    def commit(self, end: Mapping[str, object]) -> None:
        """Hold nothing, release nothing: retention does not wait for readers."""

    def stop(self) -> None:
        """Nothing is open between calls."""

    def _log(self) -> LogReader:
        options = self._options
        return LogReader(options.place, tenant=options.tenant, retries=options.retries)


def _moved(ends: offsets.Ends, begun: offsets.Ends) -> offsets.Ends:
    return {number: end for number, end in ends.items() if number in begun or end > 0}
