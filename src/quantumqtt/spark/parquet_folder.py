"""A plain folder of Parquet files as the place where rows land.

There is no log that makes several files visible at once, so this promises less than Delta, and
exactly this: each file appears whole, by a rename; a partition's files appear in offset order, and
their names carry their range. So at any moment, also after a crash between two renames, a reader
sees of every partition all rows up to some offset, each once. The names are the landed ends. A
batch that is run again makes the same names and finds them there.

Files being written lie below `_landing/`, which Spark, DuckDB and pyarrow's datasets pass over.
"""

import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from quantumqtt.errors import StorageError, TableMismatch
from quantumqtt.spark.files import folder_of
from quantumqtt.spark.landing import CommitPlan, LandedFile, Place, plan_commit

STAGING: Final = "_landing"
_NAME: Final = re.compile(r"offsets-(\d{19})-(\d{19})\.parquet")


class ParquetPlace:
    """A folder, on the driver. One run at a time may land into it."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def landed(self) -> dict[Place, int]:
        """Tell up to where each partition has landed, by the names of its files."""
        if (self._home / "_delta_log").exists():
            raise TableMismatch(
                f"{self._home} is a Delta table", hint="land with --format delta, or elsewhere"
            )
        ends: dict[Place, int] = {}
        for folder in self._home.glob("tenant=*/date=*/partition=*"):
            tenant = unquote(folder.parts[-3].removeprefix("tenant="))
            place = (tenant, int(folder.name.removeprefix("partition=")))
            for name in os.listdir(folder):
                if (found := _NAME.fullmatch(name)) is not None:
                    ends[place] = max(ends.get(place, 0), int(found.group(2)) + 1)
        return ends

    def commit(self, files: list[LandedFile]) -> CommitPlan:
        """Make a batch visible, file by file in offset order."""
        landed = self.landed()
        # A crash between two renames leaves the rest of the batch to land: what is there already
        # is told by name, so that the rest counts as new.
        missing = [file for file in files if not (self._home / final_name(file)).exists()]
        plan = plan_commit(missing, landed)
        try:
            for file in sorted(plan.files, key=lambda file: (file.place, file.first)):
                final = self._home / final_name(file)
                final.parent.mkdir(parents=True, exist_ok=True)
                (self._home / file.path).rename(final)
                _sync_folder(final.parent)
        except OSError as error:
            raise StorageError(
                f"{self._home}: {error.strerror or error}", hint="make room, then start again"
            ) from error
        self.discard(list(files))
        return plan

    def discard(self, files: list[LandedFile]) -> None:
        """Remove what is still staged."""
        for file in files:
            (self._home / file.path).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what a killed run left staged; only before a run starts."""
        shutil.rmtree(self._home / STAGING, ignore_errors=True)


def staged_name(tenant: str, partition: int, date: str) -> Path:
    """Name a file that is being written."""
    del tenant, partition, date
    return Path(STAGING) / f"{uuid.uuid4().hex}.parquet"


def final_name(file: LandedFile) -> Path:
    """Name a file by what it holds."""
    folder = folder_of(file.tenant, file.partition, file.date)
    return folder / f"offsets-{file.first:019d}-{file.last:019d}.parquet"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
