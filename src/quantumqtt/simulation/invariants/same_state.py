"""The same log gives the same state, however it was come by (DESIGN §11.5, DET-01).

A second state machine applies every entry as it is first seen, and is never restarted. The node's
state must be its equal at the end of every turn, after every replay and after every checkpoint it
was restored from, and its own invariants must hold.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from quantumqtt.simulation.commands import Limits
from quantumqtt.simulation.crank import Crank
from quantumqtt.simulation.durable import Applied, Life
from quantumqtt.simulation.invariants.invariant import Invariant, Recovery
from quantumqtt.simulation.shadow import Reading, Shadow

TURNS_PER_LOOK: Final = 16


class SameState(Invariant):
    """See the head of this file."""

    name: ClassVar[str] = "same_state"

    def __init__(self, shadow: Shadow) -> None:
        """Begin with the empty log."""
        super().__init__(shadow)
        self._replica = Crank(Limits())
        self._turns = 0

    def on_committed(self, reading: Reading) -> None:
        """Apply it here, too."""
        effects = self._replica.apply(reading.applied.raw)
        if tuple(effects) != reading.applied.effects:
            self.broken(f"entry {reading.applied.index} came to something else on a replica")

    def on_turned(self, life: Life, seen: Sequence[Applied]) -> None:
        """Look now and then: the digest walks the whole state."""
        self._turns += len(seen)
        if self._turns >= TURNS_PER_LOOK:
            self._turns = 0
            self._compare(life, "in the course of a life")

    def on_recovered(self, recovery: Recovery) -> None:
        """Look always."""
        restored = recovery.status["restored"]
        self._compare(recovery.life, f"after a restart from checkpoint {restored}")

    def _compare(self, life: Life, when: str) -> None:
        sentence = life.broken_invariant()
        if sentence is not None:
            self.broken(f"{when} the state says: {sentence}")
        if life.digest() != self._replica.digest():
            self.broken(f"{when} the state is not what the log comes to")
