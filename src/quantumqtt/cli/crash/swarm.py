"""The clients of a torture run: who there is, what they do all the time, how they come back.

Everybody has a job that makes some promise of the broker visible:

- *publishers* send QoS 1 and 2 with unique numbers, several at once, each on several topics;
- *subscribers* hold stored sessions: some always online, some away in turns, some with filters that
  come and go, some whose connection is taken over by another with the same id;
- the *keeper* sets and clears retained messages, one at a time on each topic;
- *mortals* connect with a will and vanish, say goodbye, or come back before its delay is over;
- the *leaver* begins and ends sessions, so that a session can be remembered that must not be.

All dice come from one seeded generator. What the broker's timing adds to them cannot be repeated,
so a seed repeats the plan of a run and not every interleaving.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from quantumqtt._core import Message
from quantumqtt.cli.crash.ledger import Ledger
from quantumqtt.cli.crash.link import FOR_EVER, V5, V311, Outgoing, Peer, WillWish
from quantumqtt.cli.crash.waiting import wait_until
from quantumqtt.errors import TransportError

_TURN_S: Final = 0.01
_PAUSE_S: Final = 0.03
_LONG_DELAY_S: Final = 86_400
SHORT_DELAY_S: Final = 1
_WILL_LISTENER: Final = "wills"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large the swarm is, and how it talks."""

    clients: int = 12
    topics: int = 8
    rate: int = 1_000
    payload_bytes: int = 64
    window: int = 64
    prefix: str = "torture"
    answers_within_s: float = 20.0

    @property
    def publishers(self) -> int:
        """A third of all clients."""
        return max(1, self.clients // 3)

    @property
    def subscribers(self) -> int:
        """All others."""
        return max(1, self.clients - self.publishers)


@dataclass(slots=True)
class Subscriber:
    """A stored session with filters it wants."""

    peer: Peer
    qos: int
    wanted: set[str]
    travels: bool = False
    changes: bool = False


@dataclass(slots=True)
class Mortal:
    """A client with a will, while it is connected."""

    peer: Peer
    payload: bytes
    delay_s: int


@dataclass
class Swarm:
    """Everybody, and the account they write into."""

    ledger: Ledger
    shape: Shape
    dice: random.Random
    port: int
    topics: list[str] = field(default_factory=list)
    publishers: list[Peer] = field(default_factory=list)
    subscribers: list[Subscriber] = field(default_factory=list)
    mortals: list[Mortal] = field(default_factory=list)
    takeovers_total: int = 0
    # While the broker is being hurt, the end of a connection confirms no goodbye: a dying process
    # closes its sockets, too.
    is_hurt: bool = False
    _wills: int = 0
    _retained: int = 0
    _busy: set[str] = field(default_factory=set)
    _subscribed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Hand out the jobs."""
        shape = self.shape
        self.topics = [f"{shape.prefix}/t/{n}" for n in range(shape.topics)]
        self.publishers = [self._peer(f"pub{n}") for n in range(shape.publishers)]
        self.canary = self._peer("canary")
        self.keeper = self._peer("keeper")
        self.leaver = self._peer("leaver")
        self.listener = self._peer(_WILL_LISTENER)
        self.listener.on_message = self._on_will
        everything = f"{shape.prefix}/t/#"
        for n in range(shape.subscribers):
            peer = self._peer(f"sub{n}", V311 if n % 5 == 4 else V5)
            kind = n % 4
            if kind == 0:
                one = Subscriber(peer, 2, {everything})
            elif kind == 1:
                one = Subscriber(peer, 2, set(self.topics[::2]), travels=True)
            elif kind == 2:
                one = Subscriber(peer, 1, {everything}, travels=True)
            else:
                one = Subscriber(peer, 2, set(self.topics[::3]), changes=True)
            self.subscribers.append(one)

    def _peer(self, name: str, version: int = V5) -> Peer:
        shape = self.shape
        return Peer(
            self.ledger,
            name,
            version=version,
            window=shape.window,
            answers_within_s=shape.answers_within_s,
        )

    def _on_will(self, message: Message) -> None:
        self.ledger.on_will_published(message.payload)

    @property
    def everybody(self) -> list[Peer]:
        """All clients that outlive a round."""
        fixed = [self.canary, self.keeper, self.leaver, self.listener]
        return [*(one.peer for one in self.subscribers), *self.publishers, *fixed]

    # --- coming back --------------------------------------------------------------------------

    async def connect_all(self) -> None:
        """Bring everybody online; whoever is, stays.

        Raises:
            TransportError: Somebody could not come in.
        """
        await self._connect(self.listener, {f"{self.shape.prefix}/w/#"}, 1)
        for one in self.subscribers:
            await self._connect(one.peer, one.wanted, one.qos)
        for peer in (self.canary, self.keeper, *self.publishers):
            if not peer.is_online:
                await peer.connect(self.port)

    async def _connect(self, peer: Peer, wanted: set[str], qos: int) -> None:
        """Come back; subscribe again only where the broker says it knows of nothing."""
        if peer.is_online or peer.client_id in self._busy:
            return
        await self._open(peer, wanted, qos)

    async def _open(self, peer: Peer, wanted: set[str], qos: int) -> None:
        self._busy.add(peer.client_id)
        try:
            present = await peer.connect(self.port)
            if not present or peer.client_id not in self._subscribed:
                for topic_filter in sorted(wanted):
                    await peer.subscribe(topic_filter, qos)
                self._subscribed.add(peer.client_id)
        finally:
            self._busy.discard(peer.client_id)

    def drop_all(self) -> None:
        """Close every connection, as a cut cable would."""
        for peer in self.everybody:
            peer.drop()

    def judge_mortals(self, *, broker_died: bool, was_asked: bool) -> None:
        """Say what became of the wills of those who were connected when the round ended.

        A broker that was killed must find their wills in what it had stored; one that was asked to
        end may see to them in either way, since the standard does not say which.
        """
        for mortal in self.mortals:
            mortal.peer.drop()
            if mortal.delay_s < _LONG_DELAY_S and not (broker_died and was_asked):
                self.ledger.on_will_due(mortal.payload)
        self.mortals.clear()

    # --- what goes on all the time ------------------------------------------------------------

    async def live(self) -> None:
        """Publish, come and go, until cancelled."""
        jobs: list[Callable[[], Awaitable[None]]] = [
            self._keep,
            self._travel,
            self._change,
            self._take_over,
            self._die,
            self._leave,
        ]
        async with asyncio.TaskGroup() as group:
            for number, peer in enumerate(self.publishers):
                group.create_task(self._publish(peer, random.Random(f"{number}")))
            for job in jobs:
                group.create_task(self._repeat(job))

    async def _repeat(self, job: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self.dice.uniform(0.2, 2.0) * _PAUSE_S)
            try:
                await job()
            except TransportError:
                # The broker is being hurt; whoever wants an answer learns it at the next round.
                await asyncio.sleep(_PAUSE_S)

    async def _publish(self, peer: Peer, dice: random.Random) -> None:
        """Send at the rate wished for, as far as the window allows."""
        each = self.shape.rate / len(self.publishers)
        began, sent = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - began) * each)
            while sent < due and peer.has_room():
                topic = self.topics[dice.randrange(len(self.topics))]
                peer.publish_next(topic, 1 + sent % 2, self.shape.payload_bytes)
                sent += 1
            if sent < due:  # no catching up after a pause: that would be another load
                began, sent = time.monotonic(), 0
            await asyncio.sleep(_TURN_S)

    async def _keep(self) -> None:
        """Set or clear one retained message, unless one for its topic is under way."""
        topic = f"{self.shape.prefix}/r/{self.dice.randrange(16)}"
        if topic in self._busy or not self.keeper.has_room():
            return
        self._retained += 1
        payload = b"" if self.dice.random() < 0.3 else b"kept:%d" % self._retained
        self._busy.add(topic)
        self.ledger.on_retaining(topic, payload)

        def on_done(is_success: bool) -> None:
            self._busy.discard(topic)
            if is_success:
                self.ledger.on_retained(topic, payload)

        qos = self.dice.choice((1, 2))
        self.keeper.send(Outgoing(topic, payload, qos, retain=True, on_done=on_done))

    async def _travel(self) -> None:
        """Somebody who travels leaves, or comes back."""
        one = self.dice.choice([one for one in self.subscribers if one.travels] or [None])
        if one is None:
            return
        if not one.peer.is_online:
            await self._connect(one.peer, one.wanted, one.qos)
        elif self.dice.random() < 0.5:
            one.peer.drop()
        else:
            await one.peer.leave()

    async def _change(self) -> None:
        """A filter comes or goes."""
        one = self.dice.choice([one for one in self.subscribers if one.changes] or [None])
        if one is None or not one.peer.is_online:
            return
        topic = self.dice.choice(self.topics)
        if topic in one.wanted:
            one.wanted.discard(topic)
            await one.peer.unsubscribe(topic)
        else:
            one.wanted.add(topic)
            await one.peer.subscribe(topic, one.qos)

    async def _take_over(self) -> None:
        """A second connection of the same client while the first one stands."""
        one = self.dice.choice(self.subscribers)
        if one.peer.is_online and not one.changes and self.dice.random() < 0.5:
            await self.take_over(one)

    async def take_over(self, one: Subscriber) -> None:
        """Connect beside the connection that stands; subscribe again if all was forgotten.

        Raises:
            TransportError: The new connection did not come about.
        """
        if one.peer.client_id not in self._busy:
            self.takeovers_total += 1
            await self._open(one.peer, one.wanted, one.qos)

    async def _die(self) -> None:
        """A mortal comes; an older one goes in one of three ways."""
        await self._new_mortal()
        if len(self.mortals) < 3:
            return
        mortal = self.mortals.pop(0)
        if mortal.delay_s >= _LONG_DELAY_S:
            mortal.peer.drop()
            if self.dice.random() < 0.5:
                await mortal.peer.connect(self.port)
                self.ledger.on_will_withdrawn(mortal.payload)
                await mortal.peer.leave()
        elif self.dice.random() < 0.5:
            mortal.peer.drop()
            self.ledger.on_will_due(mortal.payload)
        elif await mortal.peer.leave() and not self.is_hurt:
            self.ledger.on_goodbye(mortal.payload)

    async def _new_mortal(self) -> None:
        self._wills += 1
        delay_s = self.dice.choice((0, 0, SHORT_DELAY_S, _LONG_DELAY_S))
        peer = self._peer(f"mortal{self._wills}")
        peer.expiry_s = 2 * _LONG_DELAY_S if delay_s >= _LONG_DELAY_S else 120
        payload = b"will:%d" % self._wills
        topic = f"{self.shape.prefix}/w/{self._wills % 8}"
        await peer.connect(self.port, will=WillWish(topic, payload, delay_s=delay_s))
        self.ledger.on_will_accepted(
            peer.client_id, topic, payload, is_delayed=delay_s >= _LONG_DELAY_S
        )
        self.mortals.append(Mortal(peer, payload, delay_s))

    async def _leave(self) -> None:
        """Begin a session that is kept, resume it, or end it for good, in turns."""
        leaver = self.leaver
        leaver.keeps = self.dice.random() < 0.6
        clean = not leaver.keeps
        leaver.expiry_s = FOR_EVER
        await leaver.connect(self.port, clean=clean)
        if await leaver.leave() and not self.is_hurt and not leaver.keeps:
            self.ledger.on_session_ended(leaver.client_id)

    # --- after the fault ----------------------------------------------------------------------

    async def send_canaries(self) -> None:
        """One message on every topic shows which filters still bring something.

        Raises:
            TransportError: The broker did not take them.
        """
        if not self.canary.is_online:
            await self.canary.connect(self.port)
        for topic in self.topics:
            self.canary.publish_next(topic, 1, self.shape.payload_bytes, is_canary=True)

    def unanswered(self) -> list[Peer]:
        """Name the clients with publishes that the broker still owes an answer for."""
        return [peer for peer in self.everybody if peer.in_flight]

    def last_packet_at(self) -> float:
        """When anything last came from the broker."""
        return max(peer.last_packet_at for peer in self.everybody)

    async def retained_now(
        self, is_enough: Callable[[dict[str, bytes]], bool], settle_s: float
    ) -> dict[str, bytes]:
        """Ask with a new session what is retained; returns when `is_enough`, or after a silence.

        Raises:
            TransportError: The broker did not answer.
        """
        found: dict[str, bytes] = {}
        asker = self._peer("asker")
        asker.keeps = False

        def on_message(message: Message) -> None:
            found[message.topic] = message.payload

        asker.on_message = on_message
        await asker.connect(self.port, clean=True)
        await asker.subscribe(f"{self.shape.prefix}/r/#", 1)
        await asker.ping()
        asker.last_packet_at = time.monotonic()
        await wait_until(lambda: is_enough(found), lambda: asker.last_packet_at + settle_s)
        await asker.leave()
        return found
