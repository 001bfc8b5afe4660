"""A will goes out once if its connection broke, and never if it said goodbye (WILL rows, §11.2)."""

from typing import TYPE_CHECKING, ClassVar

from quantumqtt.simulation.front import Connection
from quantumqtt.simulation.invariants.invariant import Invariant
from quantumqtt.simulation.shadow import Reading, Shadow

if TYPE_CHECKING:
    from quantumqtt.simulation.commands import Origin


class Wills(Invariant):
    """See the head of this file."""

    name: ClassVar[str] = "wills"

    def __init__(self, shadow: Shadow) -> None:
        """Begin with the empty log."""
        super().__init__(shadow)
        self._goodbyes: set[Origin] = set()

    def on_goodbye(self, connection: Connection) -> None:
        """This connection's will must not go out."""
        self._goodbyes.add(connection.origin)

    def on_committed(self, reading: Reading) -> None:
        """Every will is where it should be after every entry."""
        for origin in reading.left:
            if origin not in self._goodbyes:
                self.broken(f"connection {origin} said no goodbye, and its will was dropped")
        for payload, will in self.shadow.wills.items():
            if will.fired > 1:
                self.broken(f"will {payload!r} went out {will.fired} times")
            if will.must_fire and not will.fired:
                self.broken(f"will {payload!r} did not go out when its connection was lost")
            if will.fired and not will.must_fire:
                self.broken(f"will {payload!r} went out, and its connection was not lost")
