"""Which files of a batch a table takes in: the decision that makes landing exactly once.

The key is the offset, not Spark's batch id: ids start again at 0 when a checkpoint is lost, offsets
never do. For each (tenant, partition) a table knows its landed end, one past the last offset it
holds. Rows arrive in offset order, so of a batch's rows of one partition

- all are at or past the landed end: they are new, and the end moves to one past the last of them;
- all are before it: the batch was landed and Spark, killed before it could note that, runs it
  again. Taking nothing is right;
- some are on either side: no run of ours writes half a batch, so the table was written by another
  reader of this log, or by this one from a checkpoint that is not this table's. Refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from quantumqtt.errors import LandingConflict, SinkError

Place = tuple[str, int]
Ends = Mapping[Place, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedFile:
    """A Parquet file that is written and not yet visible: where, and which rows."""

    path: str
    size: int
    tenant: str
    partition: int
    date: str
    rows: int
    first: int
    last: int
    first_us: int
    last_us: int

    @property
    def place(self) -> Place:
        """Whose rows these are."""
        return (self.tenant, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPlan:
    """What becomes visible together: files, and the ends they move."""

    files: tuple[LandedFile, ...]
    ends: dict[Place, int]
    left_out: tuple[LandedFile, ...]


def plan_commit(files: Sequence[LandedFile], landed: Ends) -> CommitPlan:
    """Sort a batch's files into new ones and ones the table has.

    Raises:
        LandingConflict: The table has some rows of a partition's share, and not others.
        SinkError: Files of one batch overlap: rows were shuffled, or read twice.
    """
    taken: list[LandedFile] = []
    left_out: list[LandedFile] = []
    ends: dict[Place, int] = {}
    for place in sorted({file.place for file in files}):
        share = sorted((f for f in files if f.place == place), key=lambda f: (f.first, f.last))
        for before, after in pairwise(share):
            if after.first <= before.last:
                raise SinkError(
                    f"{place[0]}/{place[1]}: two files of one batch hold offset {after.first}",
                    hint="land rows as the source gives them; a union with itself lands twice",
                )
        first, end = share[0].first, share[-1].last + 1
        there = landed.get(place, 0)
        if end <= there:
            left_out += share
        elif first >= there:
            taken += share
            ends[place] = end
        else:
            raise LandingConflict(
                f"{place[0]}/{place[1]}: the table ends at offset {there}, inside the batch"
                f" {first} to {end - 1}",
                hint="the checkpoint is not this table's; `quantumqtt pipeline run land` with a new"
                " --checkpoint goes on where the table ends",
            )
    return CommitPlan(files=tuple(taken), ends=ends, left_out=tuple(left_out))
