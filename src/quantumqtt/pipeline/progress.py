"""What a running job tells about itself, read from Spark's progress."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from quantumqtt.spark import offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class LandStart:
    """Where landing goes on.

    Attributes:
        lag: Committed rows that have not landed.
        ends: Next offset of each partition.
        running: Whether Spark has started; it takes a while.
    """

    lag: int
    ends: Mapping[int, int]
    running: bool = False

    def as_json(self) -> dict[str, object]:
        """Spell it for `--json`."""
        offsets = {str(number): end for number, end in sorted(self.ends.items())}
        return {"running": self.running, "lag": self.lag, "offsets": offsets}


@dataclass(frozen=True, slots=True, kw_only=True)
class LandProgress:
    """One micro-batch that has landed.

    Attributes:
        batch: Spark's number of it.
        rows: Rows it landed.
        batch_s: How long it took, planning and commit included.
        rows_total: Rows landed since this run began.
        lag: Committed rows that had not landed when it ended.
        ends: Next offset of each partition.
    """

    batch: int
    rows: int
    batch_s: float
    rows_total: int
    lag: int
    ends: Mapping[int, int]

    @property
    def rows_per_s(self) -> float:
        """Rows per second of this batch alone."""
        return self.rows / self.batch_s if self.batch_s > 0 else 0.0

    def as_json(self) -> dict[str, object]:
        """Spell it for `--json`."""
        return {
            "batch": self.batch,
            "rows": self.rows,
            "batch_s": round(self.batch_s, 3),
            "rows_per_s": round(self.rows_per_s, 1),
            "rows_total": self.rows_total,
            "lag": self.lag,
            "offsets": {str(number): end for number, end in sorted(self.ends.items())},
        }


def read_progress(told: Mapping[str, object], rows_before: int) -> LandProgress:
    """Read Spark's JSON of one batch; `rows_before` were landed by earlier ones of this run."""
    sources = told["sources"]
    assert isinstance(sources, list), "Spark lists the sources of a query"
    source = sources[0]
    ends = _ends(source.get("endOffset"))
    latest = _ends(source.get("latestOffset"))
    duration = told.get("durationMs")
    took_ms = duration.get("triggerExecution", 0) if isinstance(duration, Mapping) else 0
    rows, batch = count_rows(told), told["batchId"]
    assert isinstance(batch, int), "batches are numbered"
    return LandProgress(
        batch=batch,
        rows=rows,
        batch_s=took_ms / 1_000,
        rows_total=rows_before + rows,
        lag=sum(max(0, end - ends.get(number, 0)) for number, end in latest.items()),
        ends=ends,
    )


def count_rows(told: Mapping[str, object]) -> int:
    """Count the rows of a batch; through Spark Connect only the sources tell theirs."""
    sources = told["sources"]
    assert isinstance(sources, list), "Spark lists the sources of a query"
    return sum(int(source["numInputRows"]) for source in sources)


def _ends(told: object) -> offsets.Ends:
    offset = json.loads(told) if isinstance(told, str) else told
    return offsets.read(offset) if isinstance(offset, Mapping) else {}
