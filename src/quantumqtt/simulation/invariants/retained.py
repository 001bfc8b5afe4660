"""The last retained message of every topic is there, and no other (DESIGN §11.6)."""

from collections.abc import Sequence
from typing import ClassVar

from quantumqtt.simulation.device import Device
from quantumqtt.simulation.durable import Applied, Life
from quantumqtt.simulation.invariants.invariant import Invariant, Recovery
from quantumqtt.simulation.shadow import Shadow


class Retained(Invariant):
    """See the head of this file."""

    name: ClassVar[str] = "retained"

    def __init__(self, shadow: Shadow) -> None:
        """Begin with the empty log."""
        super().__init__(shadow)
        self._life: Life | None = None

    def on_recovered(self, recovery: Recovery) -> None:
        """A restart changes nothing."""
        self._life = recovery.life
        self._compare(recovery.life, "after a restart")

    def on_turned(self, life: Life, seen: Sequence[Applied]) -> None:
        """Nor does anything but a retained publish."""
        if seen and not life.stopped:
            self._compare(life, "in the course of a life")

    def at_end(self, devices: Sequence[Device]) -> None:
        """Nor has anything else, in the end."""
        if self._life is not None:
            self._compare(self._life, "in the end")

    def _compare(self, life: Life, when: str) -> None:
        held = sorted(life.retained_offsets(now_ms=self.shadow.now_ms))
        wanted = sorted(self.shadow.retained.values())
        if held != wanted:
            self.broken(f"{when} offsets {held} are retained, and {wanted} should be")
