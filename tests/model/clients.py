"""Clients who believe what they are told, and sometimes act on what they were told too long ago.

The same actions serve Hypothesis (`tests/property/test_machine_against_model.py`) and the plain
random walk (`walk.py`). Words are few and short so that they meet: three clients, a dozen filters
over a handful of topics, windows of a few messages.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from quantumqtt.simulation.commands import (
    AckKind,
    ClientAck,
    Command,
    ConnectionLost,
    LeaveWill,
    Limits,
    OpenSession,
    Origin,
    Publish,
    PubRel,
    SetLimits,
    Subscribe,
    SubscribeFilter,
    Tick,
    Unsubscribe,
    Will,
)
from quantumqtt.simulation.effects import (
    Acknowledge,
    Append,
    Deliver,
    Effect,
    OpenRefused,
    Release,
    SessionEnded,
    SessionOpened,
    Subscribed,
    Unsubscribed,
)
from tests.model.versus import Versus

GUEST: Final = "\0guest"
"""Where a transient session takes part in share groups."""
CLIENT_IDS: Final = ("a", "b", "c", GUEST)
TOPICS: Final = ("t", "t/u", "t/u/v", "v", "/", "t//u", "$SYS/x", "last/will")
FILTERS: Final = (
    "t", "t/u", "v", "#", "+", "t/#", "t/+", "+/u", "+/+", "t/+/v", "/", "$SYS/#", "last/will",
    "$share/g/t", "$share/g/#", "$share/h/t", "$share/g/t/+",
    "t#", "#/t", "$share//t", "$share/g/",
)  # fmt: skip
KEYS: Final = (("", "k"), ("", "l"), ("alice", "k"))
"""Identities with the keys they publish under."""
PAYLOADS: Final = (b"", b"x", b"yy", b"a longer payload")
PROPERTIES: Final = (b"", b"\x01\x01", b"\x03\x00\x04text")


@dataclass(slots=True)
class Client:
    """What one client knows of itself."""

    client_id: str
    origin: Origin = (1, 0, 0)
    epoch: int = 0
    incarnation: int = 0
    open_ids: list[tuple[int, AckKind]] = field(default_factory=list)
    """Packet ids it was sent, each with the acknowledgement that is due."""
    held: dict[int, Publish] = field(default_factory=dict)
    """Its own QoS 2 publishes by packet id, until it releases them."""


class Clients:
    """A small crowd around one broker."""

    def __init__(self, limits: Limits, *, batch_count: int = 7) -> None:
        """Nobody is connected yet."""
        self.versus = Versus(limits, batch_count=batch_count)
        self.log: list[tuple[Command, int]] = []
        """Everything that was told, with its time: enough to do it again."""
        self.seen: Counter[str] = Counter()
        """How often each kind of thing happened: a search is worth what it reaches."""
        self.now_ms = 1_000_000
        self.known = {client_id: Client(client_id) for client_id in CLIENT_IDS}
        self._connections = 0

    def tell(self, command: Command) -> list[Effect]:
        """Tell both sides, and let clients see what they are sent."""
        self.log.append((command, self.now_ms))
        effects = self.versus.tell(command, now_ms=self.now_ms)
        for effect in effects:
            self._see(effect)
        return effects

    def _see(self, effect: Effect) -> None:
        self.seen[kind_of(effect)] += 1
        match effect:
            case SessionOpened():
                client = self.known[effect.client_id]
                client.origin = effect.origin
                client.epoch = effect.session_epoch
                client.incarnation = effect.incarnation
                client.open_ids = []
                if not effect.session_present:
                    client.held = {}
            case Deliver(packet_id=int(packet_id)):
                due: AckKind = "puback" if effect.qos == 1 else "pubrec"
                self._owe(effect.origin, packet_id, due)
            case Release():
                self._owe(effect.origin, effect.packet_id, "pubcomp")
            case _:
                pass

    def _owe(self, origin: Origin, packet_id: int, due: AckKind) -> None:
        for client in self.known.values():
            if client.origin == origin and (packet_id, due) not in client.open_ids:
                client.open_ids.append((packet_id, due))

    def pass_time(self, later_ms: int) -> None:
        """Let the proposer's clock go on, or back: nothing happens by that alone."""
        self.now_ms = max(0, self.now_ms + later_ms)

    def go_to_deadline(self, beside_ms: int) -> None:
        """Go to the next deadline, or just beside it."""
        due_ms = self.versus.crank.next_deadline_ms()
        if due_ms is not None:
            self.now_ms = max(0, due_ms + beside_ms)

    def tick(self) -> None:
        """Have everything happen that is due."""
        self.tell(Tick())

    def set_limits(self, limits: Limits) -> None:
        """Change the bounds."""
        self.tell(SetLimits(limits=limits))

    def open(
        self,
        client_id: str,
        *,
        clean_start: bool,
        expiry_s: int,
        identity: str = "",
        level: int = 5,
        receive_maximum: int = 0xFFFF,
        maximum_packet_bytes: int = 0xFFFF_FFFF,
        will: Will | None = None,
    ) -> None:
        """CONNECT, whether or not a connection is there already."""
        self._connections += 1
        self.tell(
            OpenSession(
                origin=(1, self._connections % 3, self._connections),
                client_id=client_id,
                identity=identity,
                level=level,
                clean_start=clean_start,
                expiry_s=0 if client_id == GUEST else expiry_s,
                receive_maximum=receive_maximum,
                maximum_packet_bytes=maximum_packet_bytes,
                will=will,
            )
        )

    def lose(
        self,
        client_id: str,
        *,
        fire_will: bool,
        expiry_s: int | None,
        late: int = 0,
        will_grace_s: int = 0,
    ) -> None:
        """DISCONNECT or a broken connection; `late` is how many epochs ago."""
        epoch = max(0, self.known[client_id].epoch - late)
        self.tell(
            ConnectionLost(
                client_id=client_id,
                session_epoch=epoch,
                fire_will=fire_will,
                expiry_s=expiry_s,
                will_grace_s=will_grace_s,
            )
        )

    def leave_will(self, client_id: str, will: Will, will_grace_s: int) -> None:
        """Cut off by the server, a transient session leaves its will."""
        identity = "alice" if client_id == "b" else ""
        self.tell(
            LeaveWill(client_id=client_id, will=will, will_grace_s=will_grace_s, identity=identity)
        )

    def subscribe(
        self,
        client_id: str,
        filters: Sequence[SubscribeFilter],
        subscription_id: int | None,
        *,
        late: int = 0,
    ) -> None:
        """SUBSCRIBE."""
        client = self.known[client_id]
        self.tell(
            Subscribe(
                origin=client.origin,
                client_id=client_id,
                session_epoch=max(0, client.epoch - late),
                packet_id=7,
                filters=tuple(filters),
                subscription_id=subscription_id,
            )
        )

    def unsubscribe(self, client_id: str, filters: Sequence[str], *, late: int = 0) -> None:
        """UNSUBSCRIBE."""
        client = self.known[client_id]
        self.tell(
            Unsubscribe(
                origin=client.origin,
                client_id=client_id,
                session_epoch=max(0, client.epoch - late),
                packet_id=8,
                filters=tuple(filters),
            )
        )

    def publish(
        self,
        client_id: str,
        topic: str,
        payload: bytes,
        *,
        qos: int,
        packet_id: int,
        retain: bool = False,
        expiry_s: int | None = None,
        captured: bool = False,
        dedupe: tuple[str, str] | None = None,
        properties: bytes = b"",
        late: int = 0,
    ) -> None:
        """PUBLISH; under an open QoS 2 packet id it is a repeat, whatever it says (X-05)."""
        client = self.known[client_id]
        publish = Publish(
            origin=client.origin,
            client_id=client_id,
            session_epoch=max(0, client.epoch - late),
            incarnation=client.incarnation,
            packet_id=packet_id if qos else 0,
            qos=qos,
            retain=retain,
            dup=qos == 2 and packet_id in client.held,
            captured=captured and qos == 0,
            dedupe=dedupe if qos else None,
            expiry_s=expiry_s,
            topic=topic,
            properties=properties,
            payload=payload,
        )
        if qos == 2:
            client.held.setdefault(packet_id, publish)
        self.tell(publish)

    def publish_again(self, client_id: str) -> None:
        """Repeat the oldest QoS 2 publish that was not released, as after a lost PUBREC."""
        client = self.known[client_id]
        for first in client.held.values():
            self.publish(
                client_id,
                first.topic,
                first.payload,
                qos=2,
                packet_id=first.packet_id,
                retain=first.retain,
                expiry_s=first.expiry_s,
                dedupe=first.dedupe,
                properties=first.properties,
            )
            return

    def release(self, client_id: str, packet_id: int, *, late: int = 0) -> None:
        """PUBREL."""
        client = self.known[client_id]
        client.held.pop(packet_id, None)
        self.tell(
            PubRel(
                origin=client.origin,
                client_id=client_id,
                session_epoch=max(0, client.epoch - late),
                packet_id=packet_id,
            )
        )

    def ack_due(
        self, client_id: str, place: int, *, reason: int = 0, is_declined: bool = False
    ) -> None:
        """Acknowledge something that was sent, as it should be, in order or out of it.

        Or it turns out that it was not sent, for the client may not read it.
        """
        client = self.known[client_id]
        if client.open_ids:
            packet_id, kind = client.open_ids.pop(place % len(client.open_ids))
            self.ack(client_id, packet_id, "declined" if is_declined else kind, reason=reason)

    def ack(
        self, client_id: str, packet_id: int, kind: AckKind, *, reason: int = 0, late: int = 0
    ) -> None:
        """PUBACK, PUBREC or PUBCOMP for any packet id."""
        client = self.known[client_id]
        self.tell(
            ClientAck(
                client_id=client_id,
                session_epoch=max(0, client.epoch - late),
                packet_id=packet_id,
                kind=kind,
                reason=reason,
            )
        )


def kind_of(effect: Effect) -> str:
    """Name an effect with what makes it more or less rare."""
    marks: list[str] = []
    match effect:
        case Deliver():
            marks = [f"q{effect.qos}"]
            marks += ["dup"] if effect.dup else []
            marks += ["retain"] if effect.retain else []
            marks += ["several ids"] if len(effect.subscription_ids) > 1 else []
        case SessionOpened():
            marks = ["present" if effect.session_present else "new"]
            marks += ["taken over"] if effect.previous else []
        case SessionEnded():
            marks = [effect.reason]
        case Acknowledge():
            marks = [effect.kind, f"{effect.reason:#04x}"]
        case Release():
            marks = [f"{effect.reason:#04x}"]
        case Append():
            marks = [effect.source]
        case Subscribed() | Unsubscribed():
            marks = [f"{code:#04x}" for code in effect.codes[:1]]
        case OpenRefused():
            pass
    return " ".join([type(effect).__name__, *marks])
