"""Messages of one publisher on one topic reach a session in the order they were published.

DESIGN §11.3 [MQTT-4.6.0-6]. Repeats do not count, nor do retained messages sent to a new
subscription, nor QoS 0, for which the standard orders nothing against the rest.
"""

from typing import ClassVar

from quantumqtt.simulation.device import Device, Received
from quantumqtt.simulation.invariants.invariant import Invariant
from quantumqtt.simulation.shadow import Shadow


class Order(Invariant):
    """See the head of this file."""

    name: ClassVar[str] = "order"

    def __init__(self, shadow: Shadow) -> None:
        """Begin with the empty log."""
        super().__init__(shadow)
        self._seen: set[tuple[str, int, int]] = set()
        self._last_offset: dict[tuple[str, int], int] = {}

    def on_received(self, device: Device, received: Received) -> None:
        """The offset of what is new is above that of everything before it."""
        if received.retain or received.qos == 0 or received.number is None:
            return
        place = (device.name, received.incarnation, received.offset)
        if place in self._seen:
            return
        self._seen.add(place)
        last = self._last_offset.get((device.name, received.incarnation), -1)
        if received.offset < last:
            self.broken(f"{device.name} got offset {received.offset} after {last}")
        self._last_offset[device.name, received.incarnation] = received.offset
