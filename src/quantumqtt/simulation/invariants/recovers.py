"""A disk that nobody damaged is never refused: crashes, full disks and failed syncs are not damage.

DESIGN §11.6 and §11.9: what is still needed is there, whatever moment the power went.
"""

from typing import ClassVar

from quantumqtt.simulation.invariants.invariant import Invariant


class Recovers(Invariant):
    """See the head of this file."""

    name: ClassVar[str] = "recovers"

    def on_refused(self, why: str, *, is_damaged: bool) -> None:
        """A start was refused."""
        if not is_damaged:
            self.broken(f"nothing was damaged, and the start was refused: {why}")
