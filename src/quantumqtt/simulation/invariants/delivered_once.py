"""Every accepted publish reaches every session it is for, once (DESIGN §11.2, QOS-12).

Inside the broker exactly once: a QoS 2 publish is committed once, however often it is repeated, and
a session is sent each committed message as new once. At a device: QoS 2 exactly once, QoS 1 at
least once, when everything has come to rest.
"""

from collections.abc import Sequence
from typing import ClassVar

from quantumqtt.simulation import commands, effects
from quantumqtt.simulation.device import Device
from quantumqtt.simulation.effects import Effect
from quantumqtt.simulation.front import Connection
from quantumqtt.simulation.invariants.invariant import Invariant
from quantumqtt.simulation.packets import number_of
from quantumqtt.simulation.shadow import Reading, Shadow


class DeliveredOnce(Invariant):
    """See the head of this file."""

    name: ClassVar[str] = "delivered_once"

    def __init__(self, shadow: Shadow) -> None:
        """Begin with the empty log."""
        super().__init__(shadow)
        self._sent: set[tuple[int, int]] = set()

    def on_committed(self, reading: Reading) -> None:
        """A QoS 2 publish is one entry; one that counts is committed at all."""
        for command, counts in zip(reading.applied.commands, reading.counts, strict=True):
            if not isinstance(command, commands.Publish):
                continue
            number = number_of(command.payload)
            if number is None or not counts:
                continue
            offsets = self.shadow.committed.get(number, [])
            if not offsets:
                self.broken(f"message {number} is in the log and was not committed")
            if command.qos == 2 and len(offsets) > 1:
                self.broken(f"QoS 2 message {number} was committed {len(offsets)} times")

    def on_sent(self, connection: Connection, effect: Effect) -> None:
        """A message is new to a session once."""
        if not isinstance(effect, effects.Deliver) or effect.dup or effect.retain:
            return
        if effect.qos == 0:
            return
        sent = (connection.incarnation, effect.offset)
        if sent in self._sent:
            self.broken(f"{connection.device.name} was sent offset {effect.offset} as new twice")
        self._sent.add(sent)

    def at_end(self, devices: Sequence[Device]) -> None:
        """Everybody has what is theirs."""
        for device in devices:
            session = self.shadow.sessions.get(device.name)
            if session is None:
                continue
            for offset, expected in session.expected.items():
                times = device.delivered[session.incarnation, offset]
                if times == 0:
                    self.broken(f"{device.name} never got {expected} at offset {offset}")
                if expected.qos == 2 and times > 1:
                    self.broken(f"{device.name} got {expected} {times} times")
            for incarnation, offset in device.delivered:
                if incarnation == session.incarnation and offset not in session.expected:
                    self.broken(f"{device.name} got offset {offset}, which is not for it")
