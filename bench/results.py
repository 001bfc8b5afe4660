"""Where results lie, and how a run that was interrupted goes on.

One folder per day and commit: `runs.jsonl` has a line per measurement, written when it is made, so
that nothing measured is lost and a second start measures only what is missing.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from math import isnan, nan
from pathlib import Path
from statistics import median
from typing import Final

from bench.brokers import HOUSE
from bench.generator import Report
from bench.machine import commit

FOLDER: Final = HOUSE / "bench" / "results"
_DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement of one broker."""

    scenario: str
    broker: str
    repeat: int
    figures: Mapping[str, float] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)
    error: str | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """What it is a measurement of."""
        return self.scenario, self.broker, self.repeat


class Record:
    """The measurements of one folder."""

    def __init__(self, folder: Path) -> None:
        """Read what is there."""
        self.folder = folder
        self._file = folder / "runs.jsonl"
        self.samples: list[Sample] = []
        if self._file.exists():
            lines = self._file.read_text("utf-8").splitlines()
            read = (Sample(**json.loads(line)) for line in lines if line)
            # A later line replaces an earlier one: it was a second try.
            self.samples = list({sample.key: sample for sample in read}.values())

    def has(self, key: tuple[str, str, int]) -> bool:
        """Tell whether a measurement was made; a failed one is tried again."""
        return any(sample.key == key and sample.error is None for sample in self.samples)

    def add(self, sample: Sample) -> None:
        """Keep a measurement, on disk first; a second try replaces the failure before it."""
        self.samples = [one for one in self.samples if one.key != sample.key]
        self.samples.append(sample)
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(_rounded(asdict(sample))) + "\n")

    def write_machine(self, facts: Mapping[str, object]) -> None:
        """Keep the facts of this start beside those of earlier ones."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "machine.json"
        before = json.loads(file.read_text("utf-8")) if file.exists() else []
        file.write_text(json.dumps([*before, facts], indent=1) + "\n", "utf-8")

    def figures(self, scenario: str, broker: str, name: str) -> dict[int, float]:
        """Give one figure of every repeat; a figure that is not a number is left out."""
        return {
            sample.repeat: value
            for sample in self.samples
            if (sample.scenario, sample.broker) == (scenario, broker)
            and not isnan(value := sample.figures.get(name, nan))
        }

    def error(self, scenario: str, broker: str) -> str | None:
        """Give the first failure of a measurement that no later try has replaced."""
        found = (
            sample.error
            for sample in self.samples
            if (sample.scenario, sample.broker) == (scenario, broker) and sample.error
        )
        return next(found, None)


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle of some figures, and how far they reach."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread | None":
        """Take figures together; None when there are none."""
        listed = sorted(values)
        return cls(median(listed), listed[0], listed[-1]) if listed else None


def ratios(upper: Mapping[int, float], lower: Mapping[int, float]) -> Spread | None:
    """Divide figures of the same repeat: what was measured side by side is compared."""
    return Spread.of(upper[at] / lower[at] for at in upper if lower.get(at))


def folder_of_today() -> Path:
    """Name the folder of this day and commit."""
    return FOLDER / f"{datetime.now(UTC).date().isoformat()}-{commit()}"


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, Mapping):
        known = {key: one for key, one in value.items() if one is not None and not _is_nan(one)}
        return {key: _rounded(one) for key, one in known.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return value


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and isnan(value)
