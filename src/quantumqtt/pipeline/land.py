"""The job `land`: every committed message into a lake table, raw, exactly once.

Three things know how far landing came: the table (its landed ends), the checkpoint (what Spark has
planned and committed), and the log (what it still holds). Before Spark starts, they are compared:

- a new checkpoint starts where the table ends, so a lost checkpoint costs nothing;
- a checkpoint that has committed more than the table holds belongs to another table, or rows were
  removed from this one: refused, since going on would leave a gap;
- the table's own check (`quantumqtt.spark.landing`) covers what is left: batches that run twice.
"""

import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quantumqtt.errors import ConfigError, InternalError, LandingConflict, TableMismatch
from quantumqtt.logreader import LogPlace, LogReader
from quantumqtt.pipeline.checkpoint import CheckpointEnds, read_checkpoint
from quantumqtt.pipeline.progress import LandProgress, LandStart, count_rows, read_progress
from quantumqtt.spark.offsets import Ends

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

# Large enough that a micro-batch pays for its overhead, small enough to be seen soon.
RECORDS_PER_TRIGGER: Final = 2_000_000
_LOOK_S: Final = 0.1

# Rows of one Arrow batch between Spark and its Python workers. The default of 10 000 makes small
# row groups; larger than this gains nothing and holds more memory.
_ARROW_ROWS: Final = "65536"


@dataclass(frozen=True, slots=True, kw_only=True)
class LandOptions:
    """What to land, where, and how long.

    Attributes:
        tls_roots: The file whose certificates `place` holds; Spark's source reads it again.
        once: Stop when what was committed at the start has landed; otherwise go on until stopped.
        interval_s: How often to look for new rows, when going on.
        master: Spark master or `sc://` address; None takes the environment's, or this machine.
        records_per_trigger: Most rows of one batch, and of one commit of the table.
        settings: Spark settings, as `--conf` of spark-submit takes them.
    """

    place: LogPlace
    table: str
    checkpoint: str
    tls_roots: str | None = None
    tenant: str = "default"
    table_format: str = "delta"
    topics: tuple[str, ...] = ()
    once: bool = False
    interval_s: float = 1.0
    master: str | None = None
    fail_on_data_loss: bool = True
    records_per_trigger: int = RECORDS_PER_TRIGGER
    rows_per_task: int | None = None
    settings: Mapping[str, str] | None = None


def plan_start(
    checkpoint: CheckpointEnds, landed: Ends, held: Mapping[int, object], *, filtered: bool
) -> str:
    """Choose `startingOffsets` from what checkpoint and table know.

    Raises:
        LandingConflict: The checkpoint is ahead of the table.
        TableMismatch: The table has rows of partitions that the log does not have.
    """
    if strangers := sorted(set(landed) - set(held)):
        raise TableMismatch(
            f"the table holds rows of partition {strangers[0]}, which this log does not have",
            hint="it is the table of another log; name another --table",
        )
    if checkpoint.is_new:
        # Partitions that are not named start at their earliest row.
        return json.dumps({str(number): end for number, end in sorted(landed.items())})
    for number, end in sorted(checkpoint.committed.items()):
        # Rows that a filter leaves out move the checkpoint and not the table.
        if not filtered and end > 0 and landed.get(number, 0) < end:
            raise LandingConflict(
                f"the checkpoint has committed partition {number} up to {end}, the table ends at"
                f" {landed.get(number, 0)}",
                hint="restore the table, or name a new --checkpoint: landing goes on where the"
                " table ends",
            )
    return "earliest"


def run_land(
    options: LandOptions,
    *,
    on_start: Callable[[LandStart], None] = lambda _: None,
    on_progress: Callable[[LandProgress], None] = lambda _: None,
    stop: threading.Event | None = None,
) -> int:
    """Land until done, stopped or failed; return the rows that landed.

    Raises:
        ConfigError: An option is wrong, or Spark is not there.
        SourceError: The log cannot be read as asked; names partition and offsets.
        SinkError: The table cannot take the rows.
        StorageError: A disk did not do its part.
        TransportError: The log service stayed away.
    """
    try:
        from quantumqtt.spark.crossing import typed_error
        from quantumqtt.spark.registration import local_session, register
        from quantumqtt.spark.table import open_place, parse_format, parse_home
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _NEEDED:
            raise
        raise ConfigError(
            f"{error.name} is not installed", hint="pip install 'quantumqtt[spark]'"
        ) from error

    home, table_format = parse_home(options.table), parse_format(options.table_format)
    checkpoint = Path(parse_home(options.checkpoint))
    place = open_place(home, table_format)
    # All of this is asked before Spark starts: what is wrong is said within a second.
    landed = place.landed()
    strangers = {tenant for tenant, _ in landed} - {options.tenant}
    if strangers:
        raise TableMismatch(
            f"the table holds rows of tenant {min(strangers)}",
            hint="a table takes one tenant's log; name another --table",
        )
    held = LogReader(options.place, tenant=options.tenant).partitions()
    ends = {number: end for (_, number), end in landed.items()}
    starting = plan_start(read_checkpoint(checkpoint), ends, held, filtered=bool(options.topics))
    begun = {number: max(rows.earliest, ends.get(number, 0)) for number, rows in held.items()}
    lag = sum(rows.end - begun[number] for number, rows in held.items())
    on_start(LandStart(lag=lag, ends=begun))
    stop = stop or threading.Event()
    if stop.is_set():
        return 0
    place.sweep()
    spark = local_session("quantumqtt land", master=options.master, settings=_settings(options))
    try:
        register(spark)
        stream = spark.readStream.format("quantumqtt")
        for name, value in _source_options(options, starting).items():
            stream = stream.option(name, value)
        writing = (
            stream.load()
            .writeStream.format("quantumqtt-table")
            .queryName(f"land {options.tenant}")
            .option("path", home)
            .option("format", table_format)
            .option("checkpointLocation", str(checkpoint))
        )
        writing = (
            writing.trigger(availableNow=True)
            if options.once
            else writing.trigger(processingTime=f"{options.interval_s} seconds")
        )
        try:
            query = writing.start()
            on_start(LandStart(lag=lag, ends=begun, running=True))
            return _follow(query, on_progress, stop)
        except Exception as failure:
            typed = typed_error(failure)
            if typed is None:
                raise InternalError(
                    f"Spark failed: {str(failure)[:2_000]}",
                    hint="this is not an error we know; please report it with Spark's log",
                ) from failure
            raise typed from failure
    finally:
        spark.stop()


_NEEDED: Final = ("pyspark", "pyarrow", "pandas", "numpy")


def _follow(
    query: "StreamingQuery", on_progress: Callable[[LandProgress], None], stop: threading.Event
) -> int:
    """Report each batch, until the query ends or is stopped."""
    rows = 0
    reported = -1

    def report_new() -> None:
        nonlocal rows, reported
        for told in query.recentProgress:
            fields = json.loads(told.json) if hasattr(told, "json") else dict(told)
            # Spark repeats the last batch's number while nothing new comes.
            if fields["batchId"] > reported and count_rows(fields) > 0:
                progress = read_progress(fields, rows)
                rows, reported = progress.rows_total, progress.batch
                on_progress(progress)

    try:
        while query.isActive:
            if stop.wait(0) or query.awaitTermination(_LOOK_S):
                break
            report_new()
        failure = query.exception()
        if failure is not None:
            raise failure
    finally:
        if query.isActive:
            # Stops between batches where it can; a batch that is cut off is run again next time.
            query.stop()
        report_new()
    return rows


def _settings(options: LandOptions) -> dict[str, str]:
    settings = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": _ARROW_ROWS,
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A batch without rows is not worth a task, and progress of it not a line.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    return {**settings, **(options.settings or {})}


def _source_options(options: LandOptions, starting: str) -> dict[str, str]:
    chosen = {
        "endpoint": options.place.endpoint,
        "tenant": options.tenant,
        "startingOffsets": starting,
        "maxRecordsPerTrigger": str(options.records_per_trigger),
        "failOnDataLoss": "true" if options.fail_on_data_loss else "false",
    }
    if options.place.token is not None:
        chosen["token"] = options.place.token
    if options.tls_roots is not None:
        chosen["tlsRoots"] = options.tls_roots
    if options.topics:
        chosen["topicFilter"] = json.dumps(list(options.topics))
    if options.rows_per_task is not None:
        chosen["rowsPerTask"] = str(options.rows_per_task)
    return chosen
