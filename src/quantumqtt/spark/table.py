"""The sink `quantumqtt-table`: a stream of records lands in a lake table exactly once.

Executors write Parquet files; the driver makes all files of a micro-batch visible together, by the
rules of `landing.py`. Options: `path`, and `format` (delta, or parquet).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql.types import StructType

from quantumqtt.errors import ConfigError, SinkError, TableMismatch
from quantumqtt.logwire.columns import COLUMNS
from quantumqtt.spark.crossing import spelled_errors
from quantumqtt.spark.files import part_name, write_files
from quantumqtt.spark.landing import CommitPlan, LandedFile, Place
from quantumqtt.spark.parquet_folder import ParquetPlace, staged_name
from quantumqtt.spark.versions import (
    DataSource,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

FORMATS: Final = ("delta", "parquet")


class LandingPlace(Protocol):
    """A table as the driver sees it."""

    def landed(self) -> dict[Place, int]:
        """Tell up to where each partition has landed."""

    def commit(self, files: list[LandedFile]) -> CommitPlan:
        """Make a batch visible exactly once."""

    def discard(self, files: list[LandedFile]) -> None:
        """Remove files that no commit will name."""

    def sweep(self) -> None:
        """Remove what a killed run left unfinished; only before a run starts."""


@dataclass
class WrittenFiles(WriterCommitMessage):
    """What one task wrote."""

    files: tuple[LandedFile, ...] = ()


class LakeTable(DataSource):
    """A table that a stream of the log lands in."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "quantumqtt-table"

    def schema(self) -> StructType:
        """Refuse to be read: the tables are Delta and Parquet, which have readers of their own."""
        raise ConfigError(
            "quantumqtt-table is written, not read",
            hint="read a parquet folder with format parquet; for Delta see docs/guides/spark.md",
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> "TableWriter":
        """Make the writer of a stream."""
        del overwrite
        options = {name.lower(): value for name, value in self.options.items()}
        with spelled_errors():
            if tuple(schema.fieldNames()) != COLUMNS:
                raise TableMismatch(
                    f"rows have the columns {', '.join(schema.fieldNames())}, not the log's",
                    hint="land what the source gives; derived columns belong into other tables",
                )
            return TableWriter(
                parse_home(options.get("path")), parse_format(options.get("format", "delta"))
            )


class TableWriter(DataSourceStreamArrowWriter):
    """Writes on executors, commits on the driver; pickled in between."""

    def __init__(self, home: str, table_format: str) -> None:
        self._home = home
        self._format = table_format

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Write one task's rows; runs on an executor."""
        name = part_name if self._format == "delta" else staged_name
        with spelled_errors():
            return WrittenFiles(tuple(write_files(iterator, Path(self._home), name)))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Make the batch visible; Spark's batch id says nothing that offsets do not say better."""
        del batchId
        with spelled_errors():
            if any(message is None for message in messages):
                raise SinkError("a task of the batch has no commit message")
            place = open_place(self._home, self._format)
            plan = place.commit(_files_of(messages))
            place.discard(list(plan.left_out))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what the tasks that succeeded have written."""
        del batchId
        open_place(self._home, self._format).discard(_files_of(messages))


def open_place(home: str, table_format: str) -> LandingPlace:
    """Open a table for landing; deltalake is needed for Delta, and only on the driver."""
    if table_format == "parquet":
        return ParquetPlace(Path(home))
    try:
        from quantumqtt.spark.delta import DeltaPlace
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("deltalake"):
            raise
        raise ConfigError(
            "deltalake is not installed on the driver",
            hint="install quantumqtt[spark], or land with format parquet",
        ) from error
    return DeltaPlace(Path(home))


def parse_home(path: str | None) -> str:
    """Read the option `path`: a folder every executor reaches under the same name."""
    if not path:
        raise ConfigError("option path is missing", hint="name the folder of the table")
    parts = urlsplit(path)
    if parts.scheme not in ("", "file"):
        raise ConfigError(
            f"table {path!r} is on {parts.scheme}, and only mounted folders are written so far",
            hint="mount it, or land locally and copy; a Delta table may be moved as a whole",
        )
    return unquote(parts.path) if parts.scheme == "file" else str(Path(path).absolute())


def parse_format(text: str) -> str:
    """Read the option `format`."""
    if text.lower() not in FORMATS:
        raise ConfigError(f"option format is {text!r}", hint=f"there are {', '.join(FORMATS)}")
    return text.lower()


def _files_of(messages: Sequence[WriterCommitMessage | None]) -> list[LandedFile]:
    return [
        file for message in messages if isinstance(message, WrittenFiles) for file in message.files
    ]
