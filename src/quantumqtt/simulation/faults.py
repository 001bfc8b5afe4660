"""What goes wrong and when: the plan of one seed's faults, drawn step by step.

Faults come in seasons: a seed has its own taste for them, so that some seeds see crashes by the
dozen and others a full disk for a long time. In the liveness phase there are none.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

FaultKind: TypeAlias = Literal[
    "power_off",
    "crash",
    "sync_error",
    "write_error",
    "short_write",
    "full",
    "slow",
    "cut",
    "clock_back",
]
CRASHES: Final = ("process", "clean", "prefix", "subset", "torn")
"""What a crash does with what was not synced: keeps all, nothing, a prefix, any of it, torn."""

KINDS: Final[tuple[FaultKind, ...]] = get_args(FaultKind)


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong now; `extent` is how much or how long, as the kind takes it."""

    kind: FaultKind
    extent: int


class FaultPlan:
    """Draws faults from a seed."""

    def __init__(self, dice: random.Random, *, without: Collection[FaultKind] = ()) -> None:
        """Draw the taste of this seed; faults of some kinds are drawn and left out."""
        self._dice = dice
        self._without = without
        self._weights = [dice.choice((1, 1, 3, 8)) for _ in KINDS]
        self._per_step = dice.choice((0.01, 0.03, 0.06))

    def draw(self) -> Fault | None:
        """What goes wrong in this step, if anything does."""
        if self._dice.random() >= self._per_step:
            return None
        (kind,) = self._dice.choices(KINDS, self._weights)
        extent = self._dice.randint(0, 30)
        return None if kind in self._without else Fault(kind, extent)

    def crash(self) -> str:
        """How the next crash treats the disk."""
        return self._dice.choice(CRASHES)
