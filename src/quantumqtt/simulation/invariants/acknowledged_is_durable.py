"""What was acknowledged is in the log after any crash (DESIGN §11.1, QOS-02, LOG-01).

Everything a broker says to anybody is an effect of an entry. So once effects of an entry were seen,
the entry must be found again, byte for byte, at its place or inside a checkpoint that covers it.
And whatever a device was told PUBACK or PUBREC for must be the content of some entry.
"""

from collections.abc import Sequence
from typing import ClassVar

from quantumqtt.simulation.device import Device
from quantumqtt.simulation.durable import Applied, Life
from quantumqtt.simulation.invariants.invariant import Invariant, Recovery
from quantumqtt.simulation.shadow import Reading, Shadow


class AcknowledgedIsDurable(Invariant):
    """See the head of this file."""

    name: ClassVar[str] = "acknowledged_is_durable"

    def __init__(self, shadow: Shadow) -> None:
        """Begin with the empty log."""
        super().__init__(shadow)
        self._entries: dict[int, bytes] = {}

    def on_committed(self, reading: Reading) -> None:
        """Keep what it was."""
        self._entries[reading.applied.index] = reading.applied.raw

    def on_turned(self, life: Life, seen: Sequence[Applied]) -> None:
        """Entries come once and in order within a life."""
        for applied in seen:
            self._compare(applied)

    def on_recovered(self, recovery: Recovery) -> None:
        """Everything ever seen is found, unless the checkpoint covers it."""
        found = {applied.index for applied in recovery.found}
        covered = recovery.status["restored"]
        lost = [index for index in self._entries if index > covered and index not in found]
        if lost:
            self.broken(
                f"entries {lost[:5]} were answered and are gone; restored from {covered}, "
                f"the log ends at {recovery.status['last']}"
            )
        for applied in recovery.found:
            self._compare(applied)

    def _compare(self, applied: Applied) -> None:
        if self._entries.get(applied.index, applied.raw) != applied.raw:
            self.broken(f"entry {applied.index} was answered and is another one now")

    def at_end(self, devices: Sequence[Device]) -> None:
        """Whatever a publisher was told is in the log."""
        for device in devices:
            for number, kind in device.acknowledged.items():
                if number not in self.shadow.committed:
                    self.broken(f"{device.name} got {kind} for message {number}: not in the log")
