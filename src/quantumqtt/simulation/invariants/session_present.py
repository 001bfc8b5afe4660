"""`session present` tells the truth (DESIGN §11.4) [MQTT-3.2.2-2].

A session is there from its first opening until a clean start or the end of its expiry interval,
counted from the entry that said its connection was lost, whatever restarts lie between.
"""

from typing import ClassVar

from quantumqtt.simulation import commands, effects
from quantumqtt.simulation.effects import Effect
from quantumqtt.simulation.front import Connection
from quantumqtt.simulation.invariants.invariant import Invariant
from quantumqtt.simulation.shadow import Reading


class SessionPresent(Invariant):
    """See the head of this file."""

    name: ClassVar[str] = "session_present"

    def on_committed(self, reading: Reading) -> None:
        """The state agrees with the log."""
        opened = {
            effect.origin: effect
            for effect in reading.applied.effects
            if isinstance(effect, effects.SessionOpened)
        }
        for command in reading.applied.commands:
            if not isinstance(command, commands.OpenSession) or command.origin not in opened:
                continue
            said = opened[command.origin].session_present
            if said != self.shadow.presence[command.origin]:
                self.broken(f"entry {reading.applied.index} opens {command.client_id}: {said}")

    def on_sent(self, connection: Connection, effect: Effect) -> None:
        """And so does CONNACK."""
        if not isinstance(effect, effects.SessionOpened):
            return
        truth = self.shadow.presence.get(effect.origin, False)
        if effect.session_present != truth:
            self.broken(
                f"{connection.device.name} was told session present {effect.session_present}"
            )
