"""One device: what an MQTT client remembers, what it does next, what it makes of what it hears.

It keeps to the standard on its side of the talk: it repeats what was not acknowledged when its
session goes on, forgets it when the session is new, and takes a QoS 2 message once by its packet
id. It survives everything but its connections.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from quantumqtt.simulation import effects, packets
from quantumqtt.simulation.commands import EXPIRY_NEVER_S, Will
from quantumqtt.simulation.effects import Effect
from quantumqtt.simulation.packets import Message, Packet, number_of

TOPICS: Final = ("a/1", "a/2", "b/1", "b/2")
FILTERS: Final = ("#", "a/+", "b/#", "a/1", "b/2")
IN_FLIGHT_MAX: Final = 8
PADDINGS: Final = (0, 0, 0, 0, 300, 2_000)
"""Large ones fill segments; an entry of them stays below what a segment's quarter takes."""
EXPIRIES_S: Final = (2, 30, EXPIRY_NEVER_S, EXPIRY_NEVER_S)


@dataclass(slots=True)
class Outgoing:
    """A publish that is not finished; `released` once PUBREC has come."""

    message: Message
    released: bool = False


@dataclass(frozen=True, slots=True)
class Received:
    """A message that the device takes for new."""

    incarnation: int
    offset: int
    number: int | None
    qos: int
    topic: str
    retain: bool


@dataclass(slots=True)
class Device:
    """A client program and its memory."""

    name: str
    dice: random.Random
    is_stored: bool
    expiry_s: int = EXPIRY_NEVER_S
    is_connected: bool = False
    incarnation: int = 0
    sent: dict[int, Outgoing] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)
    """Packet ids of QoS 2 messages whose PUBREL has not come."""
    acknowledged: dict[int, str] = field(default_factory=dict)
    """Numbers of messages the broker took responsibility for, and how it said so."""
    delivered: Counter[tuple[int, int]] = field(default_factory=Counter)
    """How often each message was taken for new, by incarnation and offset."""
    next_packet_id: int = 1

    @property
    def is_idle(self) -> bool:
        """Whether nothing it sent waits for an answer."""
        return not self.sent

    def connect(self, *, clean_start: bool, will_number: int | None) -> packets.Connect:
        """Ask for the session."""
        will = None
        if will_number is not None:
            will = Will(topic="will/x", payload=f"w{will_number}".encode(), qos=1)
        self.expiry_s = self.dice.choice(EXPIRIES_S) if self.is_stored else 0
        receive_maximum = self.dice.randint(2, 12)
        return packets.Connect(clean_start, self.expiry_s, receive_maximum, will)

    def on_connected(self, *, is_present: bool, incarnation: int) -> list[Packet]:
        """CONNACK: repeat what is unfinished, or begin anew.

        The standard leaves a gap: if the CONNACK of a new session is lost, the next one says that a
        session is present, and the client takes it for its old one. Nothing a broker does can help
        it, so the device is told which session it is.
        """
        self.is_connected = True
        is_present = is_present and incarnation == self.incarnation
        self.incarnation = incarnation
        if not is_present:
            self.sent.clear()
            self.taken.clear()
            return []
        repeats: list[Packet] = []
        for packet_id, outgoing in self.sent.items():
            if outgoing.released:
                repeats.append(packets.Release(packet_id))
            else:
                repeats.append(packets.Publish(outgoing.message, packet_id, dup=True))
        return repeats

    def on_disconnected(self) -> None:
        """Notice that the connection is gone, and everything on its way with it."""
        self.is_connected = False

    def act(self, next_number: int) -> Packet | None:
        """Do something new on an open connection."""
        choice = self.dice.random()
        if choice < 0.18 and self.is_stored:
            packet_id = self._packet_id()
            return packets.Subscribe(
                packet_id, self.dice.choice(FILTERS), self.dice.choice((0, 1, 2, 2))
            )
        if choice < 0.22 and self.is_stored:
            return packets.Unsubscribe(self._packet_id(), self.dice.choice(FILTERS))
        if len(self.sent) >= IN_FLIGHT_MAX:
            return None
        return self._publish(next_number)

    def _publish(self, number: int) -> Packet:
        topic = self.dice.choice(TOPICS)
        retain = self.dice.random() < 0.25
        qos = self.dice.choice((1, 1, 2, 2, 2)) if self.is_stored else 1
        if retain and self.dice.random() < 0.2:
            qos = 0
        is_empty = retain and self.dice.random() < 0.2
        padding = self.dice.choice(PADDINGS)
        message = Message(number, self.name, topic, qos, retain, is_empty, padding)
        if qos == 0:
            return packets.Publish(message, 0)
        packet_id = self._packet_id()
        self.sent[packet_id] = Outgoing(message)
        return packets.Publish(message, packet_id)

    def _packet_id(self) -> int:
        # A small ring, so that ids come round while old ones are still in the state.
        while self.next_packet_id in self.sent:
            self.next_packet_id = self.next_packet_id % 40 + 1
        packet_id = self.next_packet_id
        self.next_packet_id = self.next_packet_id % 40 + 1
        return packet_id

    def hear(self, effect: Effect, incarnation: int) -> tuple[list[Packet], Received | None]:
        """Answer what came, and tell whether it was a message not seen before."""
        match effect:
            case effects.Acknowledge():
                return self._on_acknowledged(effect), None
            case effects.Deliver():
                return self._on_delivered(effect, incarnation)
            case effects.Release(packet_id=packet_id):
                self.taken.discard(packet_id)
                return [packets.Acknowledge("pubcomp", packet_id)], None
            case _:
                return [], None

    def _on_acknowledged(self, effect: effects.Acknowledge) -> list[Packet]:
        outgoing = self.sent.get(effect.packet_id)
        if outgoing is None:
            return []
        is_exactly_once = outgoing.message.qos == 2
        match effect.kind:
            case "puback" if not is_exactly_once:
                del self.sent[effect.packet_id]
            case "pubrec" if is_exactly_once and effect.reason < 0x80:
                outgoing.released = True
            case "pubcomp" if outgoing.released:
                del self.sent[effect.packet_id]
                return []
            case _:
                return []
        if effect.reason < 0x80 and not outgoing.message.is_empty:
            self.acknowledged.setdefault(outgoing.message.number, effect.kind)
        return [packets.Release(effect.packet_id)] if is_exactly_once else []

    def _on_delivered(
        self, effect: effects.Deliver, incarnation: int
    ) -> tuple[list[Packet], Received | None]:
        received = Received(
            incarnation,
            effect.offset,
            number_of(effect.payload),
            effect.qos,
            effect.topic,
            effect.retain,
        )
        packet_id = effect.packet_id
        if packet_id is None:
            return [], received
        answer: list[Packet] = [
            packets.Acknowledge("pubrec" if effect.qos == 2 else "puback", packet_id)
        ]
        if effect.qos == 2:
            if packet_id in self.taken:
                return answer, None
            self.taken.add(packet_id)
        if not effect.retain and not effect.payload.startswith(b"w"):
            self.delivered[incarnation, effect.offset] += 1
        return answer, received
