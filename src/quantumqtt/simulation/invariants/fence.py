"""A connection that was taken over changes nothing and hears nothing (DESIGN §11.4, SES-18)."""

from typing import ClassVar

from quantumqtt.simulation import commands, effects
from quantumqtt.simulation.invariants.invariant import Invariant
from quantumqtt.simulation.packets import number_of
from quantumqtt.simulation.shadow import Reading


class Fence(Invariant):
    """See the head of this file."""

    name: ClassVar[str] = "fence"

    def on_committed(self, reading: Reading) -> None:
        """What an older connection asked for has no effect."""
        applied = reading.applied
        judged = list(zip(applied.commands, reading.counts, strict=True))
        for command, counts in judged:
            if counts:
                continue
            match command:
                case commands.Publish(payload=payload, origin=origin):
                    number = number_of(payload)
                    counted = [
                        other
                        for other, other_counts in judged
                        if other_counts
                        and isinstance(other, commands.Publish)
                        and other.payload == payload
                    ]
                    if number in reading.appended and not counted:
                        self.broken(
                            f"message {number} of connection {origin} counts, which was taken over"
                        )
                case commands.Subscribe(origin=origin) | commands.Unsubscribe(origin=origin):
                    for effect in applied.effects:
                        if isinstance(effect, effects.Subscribed | effects.Unsubscribed) and (
                            effect.origin == origin
                        ):
                            self.broken(f"connection {origin} was taken over and still changes")
                case _:
                    pass
