"""A will goes out once if its connection broke, and never if it said goodbye (WILL rows, §11.2)."""

from typing import ClassVar

from quantumqtt.simulation.invariants.invariant import Invariant
from quantumqtt.simulation.shadow import Reading


class Wills(Invariant):
    """See the head of this file."""

    name: ClassVar[str] = "wills"

    def on_committed(self, reading: Reading) -> None:
        """Every will is where it should be after every entry."""
        for payload, will in self.shadow.wills.items():
            if will.fired > 1:
                self.broken(f"will {payload!r} went out {will.fired} times")
            if will.must_fire and not will.fired:
                self.broken(f"will {payload!r} did not go out when its connection was lost")
            if will.fired and not will.must_fire:
                self.broken(f"will {payload!r} went out, and its connection was not lost")
