"""Writing rows to Parquet files, on executors: one file per tenant, partition and day at a time.

A file holds a run of rising offsets of one partition, so per-topic order can be read back by
sorting on `offset` alone. Nothing here makes a file visible; the driver does, for all files of a
batch together.
"""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quantumqtt.errors import SinkError, StorageError, TableMismatch
from quantumqtt.logwire.columns import COLUMNS
from quantumqtt.logwire.schema import LOG_SCHEMA
from quantumqtt.spark.landing import LandedFile

# Columns whose values are few; dictionaries of the others only grow and are thrown away.
_REPETITIVE: Final = ["topic", "source", "client_id", "content_type", "response_topic"]
_PARTITIONED: Final = ("tenant", "partition")
FILE_COLUMNS: Final = tuple(name for name in COLUMNS if name not in _PARTITIONED)
FILE_SCHEMA: Final = pa.schema([LOG_SCHEMA.field(name) for name in FILE_COLUMNS])

_DAY_US: Final = 86_400_000_000

_Key = tuple[str, int, int]


def write_files(
    batches: Iterable[pa.RecordBatch], home: Path, name: Callable[[str, int, str], Path]
) -> list[LandedFile]:
    """Write every row below `home`; `name(tenant, partition, date)` says where a file goes.

    Raises:
        TableMismatch: The rows are not records of the log.
        StorageError: The disk did not take them; what was written is removed.
    """
    open_files: dict[_Key, _OpenFile] = {}
    try:
        for batch in batches:
            for key, rows in _by_place(batch):
                if key not in open_files:
                    tenant, partition, day = key
                    date = _date(day)
                    path = name(tenant, partition, date)
                    open_files[key] = _OpenFile(home, path, tenant, partition, date)
                open_files[key].write(rows)
        return [file.finish() for file in open_files.values()]
    except OSError as error:
        for file in open_files.values():
            file.remove()
        raise StorageError(
            f"{home}: {error.strerror or error}",
            hint="make room or give rights, then start again; nothing of this batch is visible",
        ) from error
    except BaseException:
        for file in open_files.values():
            file.remove()
        raise


def part_name(tenant: str, partition: int, date: str) -> Path:
    """Name a file in the archive's layout: tenant, date, partition."""
    return folder_of(tenant, partition, date) / f"part-{uuid.uuid4().hex}.parquet"


def folder_of(tenant: str, partition: int, date: str) -> Path:
    """Name the folder of one tenant, day and partition, as Hive and Delta spell it."""
    return Path(f"tenant={quote(tenant, safe='')}") / f"date={date}" / f"partition={partition}"


class _OpenFile:
    """One file being written, and what its commit will need to know."""

    def __init__(self, home: Path, file: Path, tenant: str, partition: int, date: str) -> None:
        self._home = home
        self._file = file
        self._place = (tenant, partition, date)
        self._rows = 0
        self._first = self._last = -1
        self._first_us = self._last_us = 0
        path = home / file
        path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(
            path,
            FILE_SCHEMA,
            compression="zstd",
            compression_level=1,
            use_dictionary=_REPETITIVE,
            write_statistics=["offset", "ts", "topic"],
        )

    def write(self, rows: pa.RecordBatch) -> None:
        first, last = rows["offset"][0].as_py(), rows["offset"][rows.num_rows - 1].as_py()
        if first <= self._last or last - first + 1 < rows.num_rows:
            raise SinkError(
                f"offset {first} came after {self._last}: rows are not in the log's order",
                hint="land rows as the source gives them, without a shuffle or a union",
            )
        times = pc.min_max(rows["ts"].cast(pa.int64()))
        low, high = times["min"].as_py(), times["max"].as_py()
        if self._rows == 0:
            self._first, self._first_us, self._last_us = first, low, high
        self._first_us, self._last_us = min(self._first_us, low), max(self._last_us, high)
        self._last = last
        self._rows += rows.num_rows
        self._writer.write_batch(rows.select(list(FILE_COLUMNS)))

    def finish(self) -> LandedFile:
        self._writer.close()
        path = self._home / self._file
        with path.open("rb") as written:
            # Visible means there after a power cut as well.
            os.fsync(written.fileno())
        tenant, partition, date = self._place
        return LandedFile(
            path=self._file.as_posix(),
            size=path.stat().st_size,
            tenant=tenant,
            partition=partition,
            date=date,
            rows=self._rows,
            first=self._first,
            last=self._last,
            first_us=self._first_us,
            last_us=self._last_us,
        )

    def remove(self) -> None:
        # Closing writes a footer, which fails where the disk is full; the file goes either way.
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
        (self._home / self._file).unlink(missing_ok=True)


def _by_place(batch: pa.RecordBatch) -> Iterator[tuple[_Key, pa.RecordBatch]]:
    """Cut a batch by tenant, partition and day; nearly always it is one piece already."""
    if tuple(batch.schema.names) != COLUMNS:
        raise TableMismatch(
            f"rows have the columns {', '.join(batch.schema.names)}, not those of the log",
            hint="land what the source gives; derived columns belong into tables of their own",
        )
    if batch.num_rows == 0:
        return
    batch = batch.cast(LOG_SCHEMA)
    days = pc.divide(batch["ts"].cast(pa.int64()), _DAY_US)
    keys = [batch["tenant"], batch["partition"], days]
    if all(
        column[0] == column[-1] and pc.all(pc.equal(column, column[0])).as_py() for column in keys
    ):
        yield (keys[0][0].as_py(), keys[1][0].as_py(), keys[2][0].as_py()), batch
        return
    table = pa.Table.from_arrays(keys, ["tenant", "partition", "day"])
    places = table.group_by(["tenant", "partition", "day"]).aggregate([]).to_pylist()
    for place in places:
        mask = pc.equal(keys[0], place["tenant"])
        mask = pc.and_(mask, pc.equal(keys[1], pa.scalar(place["partition"], pa.int32())))
        mask = pc.and_(mask, pc.equal(keys[2], place["day"]))
        yield (place["tenant"], place["partition"], place["day"]), batch.filter(mask)


def _date(day: int) -> str:
    return str(pa.scalar(day, pa.int32()).cast(pa.date32()).as_py())
