"""What goes wrong and when: the plan of one seed's faults, drawn step by step.

Faults come in seasons: a seed has its own taste for them, so that some seeds see crashes by the
dozen and others a full disk for a long time. In the liveness phase there are none.
"""

import random
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

FaultKind: TypeAlias = Literal[
    "power_off", "crash", "sync_error", "write_error", "short_write", "full", "slow", "cut"
]
CRASHES: Final = ("process", "clean", "prefix", "subset", "torn")
"""What a crash does with what was not synced: keeps all, nothing, a prefix, any of it, torn."""

_KINDS: Final[tuple[FaultKind, ...]] = (
    "power_off",
    "crash",
    "sync_error",
    "write_error",
    "short_write",
    "full",
    "slow",
    "cut",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong now; `extent` is how much or how long, as the kind takes it."""

    kind: FaultKind
    extent: int


class FaultPlan:
    """Draws faults from a seed."""

    def __init__(self, dice: random.Random) -> None:
        """Draw the taste of this seed."""
        self._dice = dice
        self._weights = [dice.choice((1, 1, 3, 8)) for _ in _KINDS]
        self._per_step = dice.choice((0.01, 0.03, 0.06))

    def draw(self) -> Fault | None:
        """What goes wrong in this step, if anything does."""
        if self._dice.random() >= self._per_step:
            return None
        (kind,) = self._dice.choices(_KINDS, self._weights)
        return Fault(kind, self._dice.randint(0, 30))

    def crash(self) -> str:
        """How the next crash treats the disk."""
        return self._dice.choice(CRASHES)
