"""What an invariant is: told of everything that happens, it says when something must not have.

An invariant keeps its own notes and changes nothing. Its name is that of its file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from quantumqtt.simulation.device import Device, Received
    from quantumqtt.simulation.durable import Applied, Life, Status
    from quantumqtt.simulation.effects import Effect
    from quantumqtt.simulation.front import Connection
    from quantumqtt.simulation.shadow import Reading, Shadow


class Broken(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, sentence: str) -> None:
        """Say which, and what happened."""
        super().__init__(invariant, sentence)  # both, so that it can go from process to process
        self.invariant = invariant
        self.sentence = sentence

    def __str__(self) -> str:
        return f"{self.invariant}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Recovery:
    """A life that has just begun."""

    life: Life
    found: Sequence[Applied]
    status: Status
    is_damaged: bool
    """Whether bits were flipped on purpose before."""


class Invariant:
    """Told of everything; each file overrides what it needs."""

    name: ClassVar[str]

    def __init__(self, shadow: Shadow) -> None:
        """Begin with the empty log."""
        self.shadow = shadow

    def broken(self, sentence: str) -> NoReturn:
        """Say that it does not hold.

        Raises:
            Broken: Always.
        """
        raise Broken(self.name, sentence)

    def on_committed(self, reading: Reading) -> None:
        """An entry was seen to be committed for the first time, live or after a restart."""

    def on_sent(self, connection: Connection, effect: Effect) -> None:
        """A packet leaves the broker."""

    def on_goodbye(self, connection: Connection) -> None:
        """A DISCONNECT was read."""

    def on_turned(self, life: Life, seen: Sequence[Applied]) -> None:
        """A turn has ended; these entries were applied in it."""

    def on_stopped(self, why: str) -> None:
        """The log has failed and the node stops; `on_recovered` ends that."""

    def on_refused(self, why: str, *, is_damaged: bool) -> None:
        """A start was refused because the log is damaged."""

    def on_recovered(self, recovery: Recovery) -> None:
        """A life has begun; everything its log held has been told by `on_committed`."""

    def on_checkpoint(self, index: int, floor: int | None, status: Status) -> None:
        """A checkpoint was published and the log cut behind it."""

    def on_files(self, files: Mapping[str, bytes]) -> None:
        """What the files of the log begin with, between two lives."""

    def on_received(self, device: Device, received: Received) -> None:
        """A device took a message for new."""

    def at_end(self, devices: Sequence[Device]) -> None:
        """Faults have ended, everybody came back, and nothing moves any more."""
