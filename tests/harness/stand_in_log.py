"""A `LogStore` in memory, or over Parquet files: the log service's second source in tests.

It keeps what the contract promises (dense offsets, the same rows for the same range, loud expiry)
and nothing of how the broker does it. As a program it serves a folder until it is killed:

    python -m tests.harness.stand_in_log --folder F --port 0 [--token T --tenant NAME]

prints its endpoint and, when the folder is given rows by `append_to_folder` meanwhile, finds them.
"""

import argparse
import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quantumqtt.errors import OffsetExpired
from quantumqtt.flight import Gate, LogService, LoopbackGate, Reader, ReadPlan, TokenGate
from quantumqtt.logwire import PartitionRange
from quantumqtt.logwire.schema import LOG_SCHEMA, schema_of

EPOCH_US: Final = 1_790_000_000_000_000  # some moment of 2026
ROW_US: Final = 1_000
BATCH_ROWS_MAX: Final = 65_536


def make_rows(
    tenant: str,
    partition: int,
    start: int,
    count: int,
    *,
    payload_bytes: int = 16,
    topics: Sequence[str] = ("plant/a/temperature", "plant/b/temperature", "office/door"),
) -> pa.Table:
    """Make the records `start` to `start + count`: a pure function of place and offset."""
    offsets = range(start, start + count)
    columns: dict[str, pa.Array] = {
        "tenant": pa.array([tenant] * count, pa.string()),
        "partition": pa.array([partition] * count, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "ts": pa.array([EPOCH_US + o * ROW_US for o in offsets], pa.timestamp("us", tz="UTC")),
        "topic": pa.array([topics[o % len(topics)] for o in offsets], pa.string()),
        "payload": pa.array(
            [b"%d:%d" % (partition, o) + b"." * payload_bytes for o in offsets], pa.binary()
        ),
        "qos": pa.array([o % 3 for o in offsets], pa.int8()),
        "retain": pa.array([o % 5 == 0 for o in offsets], pa.bool_()),
        "source": pa.array(["mqtt"] * count, pa.string()),
        "client_id": pa.array([f"c{o % 7}" for o in offsets], pa.string()),
        "incarnation": pa.array([1] * count, pa.int64()),
        "session_epoch": pa.array([2] * count, pa.int64()),
        "publish_seq": pa.array(offsets, pa.int64()),
        "user_properties": pa.array(
            [[{"key": "k", "value": str(o)}] * 2 if o % 11 == 0 else None for o in offsets],
            LOG_SCHEMA.field("user_properties").type,
        ),
    }
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(count, field.type)
        for field in LOG_SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=LOG_SCHEMA)


class StandInLog:
    """Partitions as lists of tables, each a run of dense offsets."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._segments: dict[str, dict[int, list[pa.Table]]] = {}
        self._earliest: dict[tuple[str, int], int] = {}
        self._files: set[Path] = set()
        self._changed = threading.Condition()
        self.plans: list[ReadPlan] = []
        self.rows_per_batch = BATCH_ROWS_MAX
        # Rows a stream gives before it breaks; a test sets it, the next read uses it up.
        self.break_after: int | None = None
        self.break_with: Exception = OSError("the disk went away")
        self.load()

    def load(self) -> None:
        """Take in files that appeared in the folder."""
        if self._folder is None:
            return
        with self._changed:
            for file in sorted(self._folder.glob("*/*/*.parquet")):
                if file not in self._files:
                    table = pq.read_table(file, schema=LOG_SCHEMA, partitioning=None)
                    self._files.add(file)
                    self._add(file.parts[-3], int(file.parts[-2]), table)

    def add_tenant(self, tenant: str) -> None:
        """Make a tenant whose log is empty."""
        self._segments.setdefault(tenant, {})

    def append(self, tenant: str, partition: int, count: int, **how: object) -> int:
        """Commit made-up records at the end of a partition; return the new end."""
        with self._changed:
            held = self._segments.get(tenant, {}).get(partition, [])
            start = _end_of(held)
            rows = make_rows(tenant, partition, start, count, **how)  # type: ignore[arg-type]
            self._add(tenant, partition, rows)
        return start + count

    def append_table(self, tenant: str, partition: int, rows: pa.Table) -> None:
        """Commit records as they are."""
        self._add(tenant, partition, rows)

    def expire(self, tenant: str, partition: int, before: int) -> None:
        """Let retention take everything before an offset."""
        with self._changed:
            self._earliest[tenant, partition] = before

    def _add(self, tenant: str, partition: int, rows: pa.Table) -> None:
        with self._changed:
            segments = self._segments.setdefault(tenant, {}).setdefault(partition, [])
            if rows.num_rows:
                assert rows["offset"][0].as_py() == _end_of(segments), "offsets are dense"
                segments.append(rows.combine_chunks())
            self._changed.notify_all()

    def tenants(self) -> Sequence[str]:
        """List the tenants."""
        self.load()
        return sorted(self._segments)

    def partitions(self, tenant: str) -> Mapping[int, PartitionRange]:
        """Tell what each partition holds."""
        self.load()
        return {
            number: PartitionRange(
                earliest=self._earliest.get((tenant, number), _start_of(segments)),
                end=_end_of(segments),
                bytes=sum(segment.nbytes for segment in segments),
            )
            for number, segments in dict(self._segments.get(tenant, {})).items()
        }

    def offset_for_time(self, tenant: str, partition: int, ts_us: int) -> int:
        """Search every segment."""
        moment = pa.scalar(ts_us, pa.timestamp("us", tz="UTC"))
        for segment in self._segments[tenant][partition]:
            newer = segment.filter(pc.greater_equal(segment["ts"], moment))
            if newer.num_rows:
                offset: int = newer["offset"][0].as_py()
                return max(offset, self._earliest.get((tenant, partition), 0))
        return _end_of(self._segments[tenant][partition])

    def read(self, plan: ReadPlan) -> pa.RecordBatchReader:
        """Give slices of the tables, filtered."""
        self.plans.append(plan)
        if plan.start < self._earliest.get((plan.tenant, plan.partition), 0):
            raise OffsetExpired("expired between check and read", tenant=plan.tenant)
        batches: list[pa.RecordBatch] = []
        for segment in list(self._segments[plan.tenant][plan.partition]):
            base = segment["offset"][0].as_py()
            start, end = max(plan.start, base), min(plan.end, base + segment.num_rows)
            if start < end:
                part = segment.slice(start - base, end - start)
                for filters in (plan.topics or None, plan.allowed):
                    if filters is not None:
                        part = part.filter(matches(part["topic"], filters))
                part = part.select(plan.columns or LOG_SCHEMA.names)
                row_bytes = max(1, part.nbytes // max(1, part.num_rows))
                rows = max(1, min(self.rows_per_batch, plan.bytes_max // row_bytes))
                batches += part.to_batches(max_chunksize=rows)
        return pa.RecordBatchReader.from_batches(schema_of(plan.columns), self._breaking(batches))

    def _breaking(self, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch] | object:
        after, self.break_after = self.break_after, None
        if after is None:
            return batches

        def broken() -> object:
            left = after
            for batch in batches:
                yield batch.slice(0, left)
                left -= min(left, batch.num_rows)
                if not left:
                    raise self.break_with

        return broken()

    def wait(self, tenant: str, positions: Mapping[int, int], timeout_s: float) -> None:
        """Wait on the condition that `append` notifies; a folder is looked at now and then."""
        until = time.monotonic() + timeout_s
        with self._changed:
            while not any(
                held.end > positions.get(number, 0)
                for number, held in self.partitions(tenant).items()
            ):
                left = until - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(min(left, 0.1) if self._folder else left)


def matches(topics: pa.ChunkedArray, filters: Sequence[str]) -> pa.ChunkedArray:
    """Match topics against MQTT filters; `$` topics are met by filters that spell the `$` only."""
    patterns = "|".join(f"(?:{_pattern(each)})" for each in filters)
    return pc.match_substring_regex(topics, f"^(?:{patterns})$")


def _pattern(topic_filter: str) -> str:
    levels = topic_filter.split("/")
    words = [("[^/]*" if level == "+" else re.escape(level)) for level in levels]
    if levels[0] == "+":
        words[0] = "(?:[^/$][^/]*)?"
    if levels[-1] != "#":
        return "/".join(words)
    before = "/".join(words[:-1])
    return f"{before}(?:/.*)?" if before else "(?:[^$].*)?"


def append_to_folder(folder: Path, tenant: str, partition: int, count: int, **how: object) -> int:
    """Commit records as one file that appears whole; a running service finds it."""
    home = folder / tenant / str(partition)
    home.mkdir(parents=True, exist_ok=True)
    start = max((int(file.stem.split("-")[1]) for file in home.glob("*.parquet")), default=0)
    rows = make_rows(tenant, partition, start, count, **how)  # type: ignore[arg-type]
    partial = home / "next.partial"
    pq.write_table(rows, partial)
    partial.rename(home / f"{start:012d}-{start + count:012d}.parquet")
    return start + count


def _start_of(segments: Sequence[pa.Table]) -> int:
    return int(segments[0]["offset"][0].as_py()) if segments else 0


def _end_of(segments: Sequence[pa.Table]) -> int:
    return int(segments[-1]["offset"][-1].as_py()) + 1 if segments else 0


def main() -> None:
    """Serve a folder until killed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token")
    parser.add_argument("--tenant", default="default")
    chosen = parser.parse_args()
    gate: Gate = LoopbackGate()
    if chosen.token:
        reader = Reader(name="test", tenants=frozenset({chosen.tenant}))
        gate = TokenGate({chosen.token: reader})
    service = LogService(StandInLog(chosen.folder), gate=gate, port=chosen.port)
    sys.stdout.write(f"grpc://127.0.0.1:{service.port}\n")
    sys.stdout.close()
    service.wait()


if __name__ == "__main__":
    main()
