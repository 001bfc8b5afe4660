"""One client's session: what the broker owes it, and in which order.

A message for a session with QoS above 0 is in exactly one of two places. *In flight* are exchanges
that have begun: they have a packet id and are not over before the client says so. *Waiting* are
messages that have not begun: the client is away, or its window is full.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from quantumqtt.simulation.commands import Origin, Will
from quantumqtt.simulation.effects import Subscription
from tests.model.message import Delivery

PACKET_ID_MAX = 65_535


@dataclass(slots=True)
class Connection:
    """The connection a session is attached to."""

    origin: Origin
    level: int
    maximum_packet_bytes: int
    window: int
    """How many exchanges may be open at once: the client's Receive Maximum, or our own bound."""


@dataclass(slots=True)
class Exchange:
    """A message with a packet id, between PUBLISH and the end of its handshake."""

    packet_id: int
    delivery: Delivery
    is_sent: bool
    """Whether PUBLISH went out on the present connection."""


@dataclass(slots=True)
class Replay:
    """Retained messages that a subscription still waits for."""

    filter: str
    before_offset: int
    """Messages from here on reached the subscription live."""
    last_topic: str | None = None
    """The topic that was looked at last, in the order of bytes."""


@dataclass(slots=True, eq=False)
class Session:
    """Everything kept for one client, connected or not (§4.1). Equal to nothing but itself."""

    client_id: str
    incarnation: int
    """The life of this session: a clean start begins another (X-06)."""
    epoch: int = 0
    """Rises with every connection; whoever names another epoch is too late."""
    identity: str = ""
    connection: Connection | None = None
    expiry_s: int = 0
    over_ms: int | None = None
    """When it has lived its life; nobody resumes it from then on."""
    expires_at_ms: int | None = None
    """When it is thrown away, which a deferred will may put off."""
    will: Will | None = None
    will_due_ms: int | None = None
    will_is_deferred: bool = False
    """The server itself ended the connection: the client's return takes the will back (X-03)."""
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    published: list[Exchange] = field(default_factory=list)
    """Exchanges that wait for PUBACK or PUBREC, in the order in which they began."""
    released: list[int] = field(default_factory=list)
    """Packet ids that wait for PUBCOMP, in the order in which their PUBREC came."""
    waiting: list[Delivery] = field(default_factory=list)
    replays: list[Replay] = field(default_factory=list)
    """What new subscriptions are still to be told, in the order of subscribing."""
    received: set[int] = field(default_factory=set)
    """Packet ids of the client's own QoS 2 publishes, until their PUBREL."""
    next_packet_id: int = 1

    @property
    def waiting_bytes(self) -> int:
        """What the waiting messages weigh together."""
        return sum(delivery.message.weight for delivery in self.waiting)

    def has_room(self) -> bool:
        """Whether one more PUBLISH may be open [MQTT-3.3.4-9].

        An exchange counts until PUBACK or PUBCOMP, so one that was released counts too. One that
        began on an earlier connection counts once it has been repeated on this one.
        """
        open_count = sum(exchange.is_sent for exchange in self.published) + len(self.released)
        return self.connection is not None and open_count < self.connection.window

    def takes_at_once(self) -> bool:
        """Whether a new message may go out now, ahead of nothing that came before it."""
        is_next = not self.waiting and all(exchange.is_sent for exchange in self.published)
        return is_next and self.has_room()

    def take_packet_id(self) -> int:
        """Give out the next packet id that no open exchange has [MQTT-2.2.1-4] (X-15)."""
        in_use = {exchange.packet_id for exchange in self.published} | set(self.released)
        while True:
            packet_id = self.next_packet_id
            self.next_packet_id = 1 if packet_id == PACKET_ID_MAX else packet_id + 1
            if packet_id not in in_use:
                return packet_id

    def find(self, packet_id: int) -> Exchange | None:
        """Find the exchange that waits for its first acknowledgement."""
        return next((open_ for open_ in self.published if open_.packet_id == packet_id), None)

    def forget(self, packet_id: int) -> None:
        """End an exchange that waits for its first acknowledgement."""
        self.published = [open_ for open_ in self.published if open_.packet_id != packet_id]

    def unsent(self) -> Iterator[Exchange]:
        """Begun on an earlier connection and not yet repeated, in original order."""
        return (exchange for exchange in self.published if not exchange.is_sent)
