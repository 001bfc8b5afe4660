"""After a failed write or sync a node says nothing more (DESIGN §11.9, LOG-16)."""

from typing import ClassVar

from quantumqtt.simulation.effects import Effect
from quantumqtt.simulation.front import Connection
from quantumqtt.simulation.invariants.invariant import Invariant, Recovery
from quantumqtt.simulation.shadow import Shadow


class Stops(Invariant):
    """See the head of this file."""

    name: ClassVar[str] = "stops"

    def __init__(self, shadow: Shadow) -> None:
        """Begin with the empty log."""
        super().__init__(shadow)
        self._why: str | None = None

    def on_stopped(self, why: str) -> None:
        """From here on silence."""
        self._why = why

    def on_recovered(self, recovery: Recovery) -> None:
        """Another life may speak."""
        self._why = None

    def on_sent(self, connection: Connection, effect: Effect) -> None:
        """Nothing leaves a node that has stopped."""
        if self._why is not None:
            kind = type(effect).__name__
            self.broken(f"{connection.device.name} got {kind} after the log failed: {self._why}")
