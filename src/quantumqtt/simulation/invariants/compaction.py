"""The log is never cut past a checkpoint, nor past what somebody holds (DESIGN §11.6, LOG-30)."""

from typing import ClassVar

from quantumqtt.simulation.durable import Status
from quantumqtt.simulation.invariants.invariant import Invariant


class Compaction(Invariant):
    """See the head of this file."""

    name: ClassVar[str] = "compaction"

    def on_checkpoint(self, index: int, floor: int | None, status: Status) -> None:
        """Look where the log begins."""
        compacted = status["compacted"]
        if compacted > index:
            self.broken(f"the log was cut to {compacted}, the checkpoint is of {index}")
        if floor is not None and compacted > floor:
            self.broken(f"the log was cut to {compacted}, and a reader holds what is above {floor}")
