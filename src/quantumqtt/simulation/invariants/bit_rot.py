"""Damage below the watermark is never served (LOG-20): a start refuses, or nothing was lost."""

from typing import ClassVar

from quantumqtt.simulation.invariants.invariant import Invariant, Recovery
from quantumqtt.simulation.shadow import Reading, Shadow


class BitRot(Invariant):
    """See the head of this file."""

    name: ClassVar[str] = "bit_rot"

    def __init__(self, shadow: Shadow) -> None:
        """Begin with the empty log."""
        super().__init__(shadow)
        self._last = 0

    def on_committed(self, reading: Reading) -> None:
        """Keep how far the log went."""
        self._last = reading.applied.index

    def on_recovered(self, recovery: Recovery) -> None:
        """A start that was not refused has everything."""
        if recovery.is_damaged and recovery.status["applied"] < self._last:
            self.broken(
                f"bits were flipped, and the start serves entries up to "
                f"{recovery.status['applied']} of {self._last}"
            )
