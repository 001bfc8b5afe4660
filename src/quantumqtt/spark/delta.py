"""A Delta table as the place where rows land, written by delta-rs: no jars, no JVM.

One commit adds all files of a batch and, in the same atomic step, moves the landed end of every
partition it touches: an application transaction per partition, whose version is that end. Delta
itself refuses two commits that move the same one at the same time.
"""

import json
import time
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, Transaction

from quantumqtt.errors import LandingConflict, SinkError, StorageError, TableMismatch
from quantumqtt.logwire.schema import LOG_SCHEMA
from quantumqtt.spark.landing import CommitPlan, LandedFile, Place, plan_commit

PARTITION_BY: Final = ["tenant", "date", "partition"]
TABLE_SCHEMA: Final = LOG_SCHEMA.append(pa.field("date", pa.date32(), nullable=False))
_APP: Final = "quantumqtt-land"


class DeltaPlace:
    """A Delta table at a path, on the driver."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def landed(self) -> dict[Place, int]:
        """Tell up to where each partition has landed; nothing when there is no table yet."""
        table = self._open()
        if table is None:
            return {}
        _check_columns(table)
        return _ends_of(table, _places_of(table))

    def commit(self, files: list[LandedFile]) -> CommitPlan:
        """Make a batch visible, at once and exactly once.

        Raises:
            LandingConflict: Part of it is there already, or somebody else is landing.
            TableMismatch: The table has other columns.
            StorageError: The disk did not take the commit.
        """
        table = self._open()
        places = sorted({file.place for file in files})
        if table is not None:
            _check_columns(table)
        plan = plan_commit(files, {} if table is None else _ends_of(table, places))
        if not plan.files:
            return plan
        try:
            if table is None:
                table = DeltaTable.create(
                    self._home,
                    Schema.from_arrow(TABLE_SCHEMA),
                    mode="ignore",
                    partition_by=PARTITION_BY,
                    description="Committed messages of QuantuMQTT, exactly as in its log.",
                )
            table.create_write_transaction(
                [_add(file) for file in plan.files],
                mode="append",
                schema=Schema.from_arrow(TABLE_SCHEMA),
                partition_by=PARTITION_BY,
                commit_properties=CommitProperties(
                    custom_metadata={"quantumqttOffsets": _spelled(plan)},
                    app_transactions=[
                        Transaction(_app_of(place), end) for place, end in plan.ends.items()
                    ],
                ),
            )
        except CommitFailedError as error:
            raise LandingConflict(
                f"{self._home}: another run has landed meanwhile: {error}",
                hint="let one run at a time land into a table",
            ) from error
        except DeltaError as error:
            raise SinkError(f"{self._home}: {error}") from error
        except OSError as error:
            raise StorageError(f"{self._home}: {error}", hint="make room, then start again") from (
                error
            )
        return plan

    def discard(self, files: list[LandedFile]) -> None:
        """Remove files that no commit will name. After a crash some stay, for `vacuum`."""
        for file in files:
            (self._home / file.path).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Leave it to `vacuum`, which knows what readers of older versions still need."""

    def _open(self) -> DeltaTable | None:
        if not (self._home / "_delta_log").is_dir():
            return None
        try:
            return DeltaTable(self._home)
        except TableNotFoundError:
            return None
        except DeltaError as error:
            raise TableMismatch(
                f"{self._home} is no Delta table we can read: {error}", hint="name another --table"
            ) from error


def _check_columns(table: DeltaTable) -> None:
    ours = {field.name: str(field.type) for field in Schema.from_arrow(TABLE_SCHEMA).fields}
    theirs = {field.name: str(field.type) for field in table.schema().fields}
    if ours != theirs or list(table.metadata().partition_columns) != PARTITION_BY:
        differing = sorted(
            name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)
        )
        raise TableMismatch(
            f"the table differs from the log in {', '.join(differing) or 'its partitioning'}",
            hint="land into a new table; views can add and rename columns",
        )


def _places_of(table: DeltaTable) -> list[Place]:
    # The table names its transactions by application only; places are read from its layout.
    root = Path(table.table_uri.removeprefix("file://"))
    places: set[Place] = set()
    for folder in root.glob("tenant=*/date=*/partition=*"):
        tenant = unquote(folder.parts[-3].removeprefix("tenant="))
        places.add((tenant, int(folder.name.removeprefix("partition="))))
    return sorted(places)


def _ends_of(table: DeltaTable, places: list[Place]) -> dict[Place, int]:
    ends = {place: table.transaction_version(_app_of(place)) for place in places}
    return {place: end for place, end in ends.items() if end is not None}


def _app_of(place: Place) -> str:
    return f"{_APP}:{place[1]}:{place[0]}"


def _spelled(plan: CommitPlan) -> str:
    """Spell the ranges a commit adds, for people who read the table's history."""
    ranges: dict[str, list[int]] = {}
    for file in plan.files:
        known = ranges.setdefault(f"{file.tenant}/{file.partition}", [file.first, file.last])
        known[0], known[1] = min(known[0], file.first), max(known[1], file.last)
    return json.dumps(ranges, sort_keys=True)


def _add(file: LandedFile) -> AddAction:
    stats = {
        "numRecords": file.rows,
        "minValues": {"offset": file.first, "ts": _iso(file.first_us, up=False)},
        "maxValues": {"offset": file.last, "ts": _iso(file.last_us, up=True)},
        "nullCount": {"offset": 0, "ts": 0},
    }
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values={
            "tenant": file.tenant,
            "date": file.date,
            "partition": str(file.partition),
        },
        modification_time=int(time.time() * 1_000),
        data_change=True,
        stats=json.dumps(stats),
    )


def _iso(ts_us: int, *, up: bool) -> str:
    """Spell a time in milliseconds, as Delta's statistics are; bounds must not cut rows off."""
    ts_ms = -(-ts_us // 1_000) if up else ts_us // 1_000
    moment = pa.scalar(ts_ms, pa.timestamp("ms", tz="UTC")).as_py()
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ts_ms % 1_000:03d}Z"
