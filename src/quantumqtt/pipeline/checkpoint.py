"""What Spark's checkpoint of a query says about how far it came.

A checkpoint folder has one file per micro-batch under `offsets/`, written before the batch runs,
and one under `commits/`, written after its sink has committed. Each file is a version line, a line
of metadata, and (offsets) one line of JSON per source.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from quantumqtt.errors import StorageError
from quantumqtt.spark import offsets


@dataclass(frozen=True, slots=True)
class CheckpointEnds:
    """Where a query has been: `committed` by its sink, `planned` at most one batch further."""

    committed: offsets.Ends
    planned: offsets.Ends

    @property
    def is_new(self) -> bool:
        """Tell whether no batch was ever planned."""
        return not self.planned


def read_checkpoint(folder: Path) -> CheckpointEnds:
    """Read how far a query came; a folder that is absent or empty is a new one.

    Raises:
        StorageError: A file is there and cannot be read, or `metadata` is lost.
        SourceError: It is another source's checkpoint.
    """
    plans = _batches(folder / "offsets")
    commits = _batches(folder / "commits")
    if plans and not (folder / "metadata").exists():
        raise StorageError(
            f"checkpoint {folder} has lost its file metadata; Spark refuses to use it",
            hint="name a new --checkpoint: landing goes on where the table ends",
        )
    planned = _ends(folder, max(plans)) if plans else {}
    done = plans & commits
    return CheckpointEnds(_ends(folder, max(done)) if done else {}, planned)


def _batches(folder: Path) -> set[int]:
    try:
        return {int(file.name) for file in folder.iterdir() if file.name.isdecimal()}
    except FileNotFoundError:
        return set()


def _ends(folder: Path, batch: int) -> offsets.Ends:
    file = folder / "offsets" / str(batch)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        offset = json.loads(lines[2])
    except (OSError, ValueError, IndexError) as error:
        raise StorageError(
            f"checkpoint {file} cannot be read: {error}",
            hint="name a new --checkpoint: landing goes on where the table ends",
        ) from error
    return offsets.read(offset if isinstance(offset, dict) else {})
