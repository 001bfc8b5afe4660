"""The broker: every session, every retained message, and what happens between them.

`Broker.apply` takes one command and the time it is said to be, and returns what is to be done. Time
passes only by being told. A *tick* makes due things happen; how late it comes is not up to us, so
whatever a late tick must not change is decided by looking at the time as well.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, assert_never

from quantumqtt.simulation import commands as asked
from quantumqtt.simulation import effects as done
from quantumqtt.simulation.commands import EXPIRY_NEVER_S, Command, Limits, Origin, Will
from quantumqtt.simulation.effects import Effect, EndReason, Subscription
from tests.model.matching import is_valid, matches, order, split_share
from tests.model.message import Delivery, Message
from tests.model.session import Connection, Exchange, Replay, Session
from tests.model.share import ShareGroup

SUCCESS = 0x00
NO_SUBSCRIPTION_EXISTED = 0x11
NOT_AUTHORIZED = 0x87
TOPIC_FILTER_INVALID = 0x8F
PACKET_ID_NOT_FOUND = 0x92
QUOTA_EXCEEDED = 0x97
DEDUPE_HORIZON_MS = 86_400_000
"""How long a key of an accepted publish counts."""
ERROR = 0x80
"""The first reason code that means failure."""


class Deadline(NamedTuple):
    """Something that happens by itself; at the same time, in the order of kinds."""

    at_ms: int
    kind: Literal["1 will", "2 session", "3 retained"]
    incarnation: int = 0
    topic: str = ""


@dataclass(slots=True, kw_only=True)
class Publication:
    """A publish on its way into the log."""

    topic: str
    payload: bytes
    properties: bytes
    qos: int
    retain: bool
    expiry_s: int | None
    source: str
    client_id: str
    incarnation: int
    session_epoch: int
    publisher: Origin | None
    captured: bool = False


class Broker:
    """One partition."""

    def __init__(self, limits: Limits) -> None:
        """Begin with nothing."""
        self.limits = limits
        self.now_ms = 0
        self.next_offset = 0
        self.sessions: dict[str, Session] = {}
        self.groups: dict[str, ShareGroup] = {}
        self.retained: dict[str, Message] = {}
        self.accepted_keys: dict[tuple[str, str], int] = {}
        """When a publish under this key was accepted last."""
        self._epochs = 0
        self._incarnations = 0
        self._due_wills: list[Publication] = []
        self._effects: list[Effect] = []

    def apply(self, command: Command, *, now_ms: int) -> list[Effect]:
        """Do what is asked, at a time that never goes back."""
        self.now_ms = max(self.now_ms, now_ms)
        self._effects = []
        match command:
            case asked.OpenSession():
                self._open(command)
            case asked.ConnectionLost():
                self._lose(command)
            case asked.LeaveWill():
                self._leave_will(command)
            case asked.Subscribe():
                self._subscribe(command)
            case asked.Unsubscribe():
                self._unsubscribe(command)
            case asked.Publish():
                self._publish(command)
            case asked.PubRel():
                self._release(command)
            case asked.ClientAck():
                self._acknowledge(command)
            case asked.Tick():
                self._tick()
            case asked.SetLimits():
                self.limits = command.limits
            case _:
                assert_never(command)
        # A will is published after what caused it, like any other message.
        while self._due_wills:
            self._commit(self._due_wills.pop(0), answer=None)
        return self._effects

    # --- connecting, leaving, ending -------------------------------------------------------------

    def _open(self, open_: asked.OpenSession) -> None:
        """CONNECT (§3.1.2.4, §3.1.4)."""
        session = self.sessions.get(open_.client_id)
        is_back = session and session.identity in ("", open_.identity)
        if session and is_back and session.will_is_deferred:
            # In time, the server's own doing leaves no trace.
            is_due = _is_over(session.will_due_ms, self.now_ms)
            session.will = session.will if is_due else None
        # A client that comes back too late finds nothing, tick or no tick [MQTT-4.1.0-1].
        if session and _is_over(session.over_ms, self.now_ms):
            self._end(session, "expired")
            session = None
        if session and session.identity not in ("", open_.identity):
            refusal = done.OpenRefused(origin=open_.origin, reason=NOT_AUTHORIZED)
            self._effects.append(refusal)
            return
        previous = session.connection.origin if session and session.connection else None
        if session and open_.clean_start:
            # The old session ends, and with it its will delay [MQTT-3.1.2-4]. The old connection is
            # closed by this opening, not by that end.
            session.connection = None
            self._end(session, "discarded")
            session = None
        elif session:
            self._settle_will_on_return(session)
        is_present = session is not None
        if session is None:
            if open_.expiry_s == 0 and not is_guest(open_.client_id):
                self._effects.append(_opened_unstored(open_, previous))
                return
            self._incarnations += 1
            session = Session(open_.client_id, self._incarnations)
            self.sessions[open_.client_id] = session
        self._attach(session, open_)
        self._effects.append(
            done.SessionOpened(
                origin=open_.origin,
                client_id=open_.client_id,
                session_present=is_present,
                session_epoch=session.epoch,
                incarnation=session.incarnation,
                subscriptions=tuple(
                    session.subscriptions[f] for f in sorted(session.subscriptions)
                ),
                previous=previous,
            )
        )
        self._resume(session, open_.origin)

    def _settle_will_on_return(self, session: Session) -> None:
        """Decide what a new connection does to the will of the one before it (X-01).

        A will goes out once its delay has passed since the connection closed, unless a new
        connection comes first [MQTT-3.1.2-8, MQTT-3.1.3-9]. Taking over a live connection closes
        it, so only a will without delay can be due in that instant.
        """
        will = session.will
        is_taken_over = session.connection is not None and will is not None and will.delay_s == 0
        if is_taken_over or _is_over(session.will_due_ms, self.now_ms):
            self._fire_will(session)
        session.will = session.will_due_ms = session.expires_at_ms = session.over_ms = None

    def _attach(self, session: Session, open_: asked.OpenSession) -> None:
        self._epochs += 1
        session.epoch = self._epochs
        session.identity = session.identity or open_.identity
        session.expiry_s = open_.expiry_s
        session.will = open_.will
        session.will_is_deferred = False
        window = max(1, min(open_.receive_maximum, self.limits.window_max))
        session.connection = Connection(
            open_.origin, open_.level, open_.maximum_packet_bytes, window
        )

    def _resume(self, session: Session, origin: Origin) -> None:
        """Repeat what is unfinished, after CONNACK [MQTT-4.4.0-1] (X-12).

        PUBLISH in the order in which they were first sent, PUBREL in the order in which PUBREC came
        [MQTT-4.6.0-1, MQTT-4.6.0-4]. What the new window has no room for is repeated later, still
        ahead of anything new.
        """
        for packet_id in session.released:
            self._effects.append(done.Release(origin=origin, packet_id=packet_id, reason=SUCCESS))
        for exchange in session.published:
            exchange.is_sent = False
        self._fill_window(session)

    def _lose(self, lost: asked.ConnectionLost) -> None:
        """The connection has closed, with DISCONNECT or without (§3.14.4)."""
        session = self._session_of(lost.client_id, lost.session_epoch)
        if session is None:
            return
        if session.connection is None:
            if not lost.fire_will:
                # Taken back while it waits.
                session.will, session.will_due_ms, session.will_is_deferred = None, None, False
            return
        session.connection = None
        if lost.expiry_s is not None:
            session.expiry_s = lost.expiry_s
        if not lost.fire_will:
            session.will = None  # [MQTT-3.14.4-3]
        self._detach(session, lost.will_grace_s)

    def _leave_will(self, left: asked.LeaveWill) -> None:
        """A transient session is gone, and only its will waits for the client's return (X-03)."""
        if left.client_id in self.sessions:
            return
        self._epochs += 1
        self._incarnations += 1
        session = Session(left.client_id, self._incarnations, self._epochs, left.identity)
        session.will = left.will
        self.sessions[left.client_id] = session
        self._detach(session, max(1, left.will_grace_s))

    def _detach(self, session: Session, grace_s: int) -> None:
        """Nobody is there any more: from here on will and session wait for their time."""
        session.will_is_deferred = session.will is not None and grace_s > 0
        if session.expiry_s == 0 and not session.will_is_deferred:
            self._end(session, "closed")
            return
        will_wait_s = max(session.will.delay_s, grace_s) if session.will else 0
        if session.expiry_s != EXPIRY_NEVER_S:
            session.over_ms = self.now_ms + 1000 * session.expiry_s
            # Its own life may be shorter than the wait of its will.
            kept_s = will_wait_s if session.will_is_deferred else 0
            session.expires_at_ms = self.now_ms + 1000 * max(session.expiry_s, kept_s)
        if session.will and will_wait_s == 0:
            self._fire_will(session)
        elif session.will:
            session.will_due_ms = self.now_ms + 1000 * will_wait_s

    def _end(self, session: Session, reason: EndReason) -> None:
        """The session is no more; a will it still holds goes out now [MQTT-3.1.2-8]."""
        if self.sessions.get(session.client_id) is not session:
            return  # handing on what another left was too much for it, and that was its end
        self._fire_will(session)
        for text in session.subscriptions:
            self._leave_group(session, text)
        del self.sessions[session.client_id]
        self._effects.append(
            done.SessionEnded(
                client_id=session.client_id,
                session_epoch=session.epoch,
                origin=session.connection.origin if session.connection else None,
                reason=reason,
            )
        )
        self._hand_on(session)

    def _hand_on(self, ended: Session) -> None:
        """Give what a member of share groups has left unfinished to those still there (SUB-15).

        A QoS 2 message whose exchange has begun may have been received, so nobody else gets it
        [MQTT-4.8.2-5].
        """
        begun = [exchange.delivery for exchange in ended.published if exchange.delivery.qos == 1]
        overflowing: list[Session] = []
        for delivery in (*begun, *ended.waiting):
            message, share = delivery.message, delivery.share
            if share in self.groups and not message.is_expired(self.now_ms):
                full = self._offer_to_group(share, message, is_retained=delivery.retain_published)
                overflowing += [full] if full and full not in overflowing else []
        for session in overflowing:
            self._end(session, "overflowed")

    def _fire_will(self, session: Session) -> None:
        will, session.will, session.will_due_ms = session.will, None, None
        session.will_is_deferred = False
        if will:
            self._due_wills.append(self._publication_of(will, session))

    def _publication_of(self, will: Will, session: Session) -> Publication:
        return Publication(
            topic=will.topic,
            payload=will.payload,
            properties=will.properties,
            qos=will.qos,
            retain=will.retain,
            expiry_s=will.expiry_s,
            source="will",
            client_id=session.client_id,
            incarnation=session.incarnation,
            session_epoch=session.epoch,
            publisher=None,
        )

    def _session_of(self, client_id: str, epoch: int) -> Session | None:
        """The session, if whoever asks is its latest connection (SES-18)."""
        session = self.sessions.get(client_id)
        return session if session and session.epoch == epoch else None

    # --- time ------------------------------------------------------------------------------------

    def deadlines(self) -> list[Deadline]:
        """What will happen by itself, soonest first."""
        found: list[Deadline] = []
        for session in self.sessions.values():
            if session.will_due_ms is not None:
                found.append(Deadline(session.will_due_ms, "1 will", session.incarnation))
            if session.expires_at_ms is not None:
                found.append(Deadline(session.expires_at_ms, "2 session", session.incarnation))
        for topic, message in self.retained.items():
            if message.expires_at_ms is not None:
                found.append(Deadline(message.expires_at_ms, "3 retained", topic=topic))
        return sorted(found)

    def _tick(self) -> None:
        while (found := self.deadlines()) and found[0].at_ms <= self.now_ms:
            due = found[0]
            sessions = [s for s in self.sessions.values() if s.incarnation == due.incarnation]
            match due.kind:
                case "1 will":
                    self._fire_will(sessions[0])
                case "2 session":
                    self._end(sessions[0], "expired")
                case "3 retained":
                    del self.retained[due.topic]

    # --- publishing ------------------------------------------------------------------------------

    def _publish(self, publish: asked.Publish) -> None:
        """PUBLISH (§3.3, §4.3)."""
        session = self.sessions.get(publish.client_id)
        if publish.incarnation == 0:
            is_current = session is None
        else:
            is_current = (
                session is not None
                and session.incarnation == publish.incarnation
                and session.epoch == publish.session_epoch
            )
        if not is_current:
            return
        if session and publish.qos == 2 and publish.packet_id in session.received:
            # The same exchange again: acknowledged, never delivered twice [MQTT-4.3.3-10].
            self._answer(publish, SUCCESS)
            return
        has_id_left = (
            session is None or publish.qos < 2 or len(session.received) < self.limits.received_max
        )
        is_kept = publish.retain and publish.payload != b""
        is_known = self._is_known(publish.dedupe)
        if not has_id_left or (is_kept and not is_known and not self._fits_retained(publish)):
            self._answer(publish, QUOTA_EXCEEDED, is_owed=True)
            return
        if session and publish.qos == 2:
            session.received.add(publish.packet_id)
        if is_known:
            self._answer(publish, SUCCESS)  # it was published, under another packet id
            return
        if publish.dedupe:
            self.accepted_keys[publish.dedupe] = self.now_ms
        publication = Publication(
            topic=publish.topic,
            payload=publish.payload,
            properties=publish.properties,
            qos=publish.qos,
            retain=publish.retain,
            expiry_s=publish.expiry_s,
            source="mqtt",
            client_id=publish.client_id,
            incarnation=publish.incarnation,
            session_epoch=publish.session_epoch,
            publisher=publish.origin,
            captured=publish.captured,
        )
        self._commit(publication, answer=publish)

    def _is_known(self, key: tuple[str, str] | None) -> bool:
        """Whether a publish under this key was accepted within the last day."""
        if key is None or key not in self.accepted_keys:
            return False
        return self.now_ms < self.accepted_keys[key] + DEDUPE_HORIZON_MS

    def _answer(self, publish: asked.Publish, reason: int, *, is_owed: bool = False) -> None:
        """PUBACK or PUBREC; QoS 0 has no answer, but a refusal lets its connection go on."""
        if publish.qos or is_owed:
            self._effects.append(
                done.Acknowledge(
                    origin=publish.origin,
                    kind="pubrec" if publish.qos == 2 else "puback",
                    packet_id=publish.packet_id,
                    reason=reason,
                )
            )

    def _release(self, release: asked.PubRel) -> None:
        """PUBREL: the packet id is free, and the next PUBLISH under it is new [MQTT-4.3.3-12]."""
        session = self._session_of(release.client_id, release.session_epoch)
        if session is None and release.client_id in self.sessions:
            return
        is_known = session is not None and release.packet_id in session.received
        if session and is_known:
            session.received.remove(release.packet_id)
        self._effects.append(
            done.Acknowledge(
                origin=release.origin,
                kind="pubcomp",
                packet_id=release.packet_id,
                reason=SUCCESS if is_known else PACKET_ID_NOT_FOUND,
            )
        )

    def _commit(self, publication: Publication, answer: asked.Publish | None) -> None:
        """The moment a message counts: recorded, answered, retained, on its way (X-13, X-14)."""
        message = Message(
            offset=self.next_offset,
            accepted_ms=self.now_ms,
            topic=publication.topic,
            payload=publication.payload,
            properties=publication.properties,
            qos=publication.qos,
            expiry_s=publication.expiry_s,
        )
        # A will that would pass the quota is still sent, but not kept: nobody is left to be told.
        is_retained = publication.retain and (
            answer is not None or message.payload == b"" or self._fits_retained(publication)
        )
        self.next_offset += 1
        self._effects.append(_record_of(publication, message, retain=is_retained))
        if answer:
            self._answer(answer, SUCCESS)
        if is_retained and message.payload:
            self.retained[message.topic] = message  # [MQTT-3.3.1-5]
        elif is_retained:
            self.retained.pop(message.topic, None)  # [MQTT-3.3.1-6]
        if not publication.captured:
            self._route(message, publication.client_id, is_retained=is_retained)

    def _route(self, message: Message, publisher: str, *, is_retained: bool) -> None:
        """One copy for each session, and one for each share group."""
        overflowing: list[Session] = []
        for session in self.sessions.values():
            delivery = _merge(session, message, publisher, is_retained=is_retained)
            if delivery and not self._offer(session, delivery):
                overflowing.append(session)
        for text in self._matching_groups(message.topic):
            full = self._offer_to_group(text, message, is_retained=is_retained)
            if full and full not in overflowing:
                overflowing.append(full)
        for session in overflowing:
            self._end(session, "overflowed")

    def _offer_to_group(self, text: str, message: Message, *, is_retained: bool) -> Session | None:
        """Give a message to one member; return the member if that is too much for it."""
        session = self._choose_member(text, message)
        if session is None:
            return None
        copy = _copy_for([session.subscriptions[text]], message, is_retained=is_retained)
        delivery = replace(copy, share=text, retain_published=is_retained)
        return None if self._offer(session, delivery) else session

    def _matching_groups(self, topic: str) -> list[str]:
        found = [text for text in self.groups if matches(split_share(text)[1], topic)]
        return sorted(found, key=lambda text: (order(split_share(text)[1], topic), text))

    def _choose_member(self, text: str, message: Message) -> Session | None:
        """By turns: who can be sent to at once, else who is connected, else who can keep it."""
        group = self.groups[text]

        def keeps(member: Session) -> bool:
            return min(message.qos, member.subscriptions[text].qos) > 0

        connected = [member for member in group.members if member.connection]
        ready = [member for member in connected if not keeps(member) or member.takes_at_once()]
        keeping = [member for member in group.members if keeps(member)]
        return group.pick(ready) or group.pick(connected) or group.pick(keeping)

    # --- delivering ------------------------------------------------------------------------------

    def _offer(self, session: Session, delivery: Delivery) -> bool:
        """Send a copy, or keep it; False when the session cannot go on without it (X-21)."""
        if delivery.qos == 0:
            # At most once: whoever is away misses it.
            if session.connection:
                self._send(session, session.connection, delivery, None, dup=False)
            return True
        if session.connection and session.takes_at_once():
            self._begin(session, session.connection, delivery)
            return True
        if not self._make_room(session, delivery):
            return self.limits.overflow != "expire_session"
        session.waiting.append(delivery)
        return True

    def _make_room(self, session: Session, delivery: Delivery) -> bool:
        """Whether a copy may wait, after dropping what the policy lets go."""

        def fits(count: int, weight: int) -> bool:
            return (
                count < self.limits.queue_count_max
                and weight + delivery.message.weight <= self.limits.queue_bytes_max
            )

        def fits_now() -> bool:
            return fits(len(session.waiting), session.waiting_bytes)

        if not fits_now():
            waiting = session.waiting
            session.waiting = [d for d in waiting if not d.message.is_expired(self.now_ms)]
        # What is too large for an empty queue must not empty this one in vain.
        if self.limits.overflow == "drop_oldest" and fits(0, 0):
            while not fits_now():
                session.waiting.pop(0)
        return fits_now()

    def _fill_window(self, session: Session) -> None:
        """Send as much as the client takes: first repeats, then what waits, each in order."""
        connection = session.connection
        while connection and session.has_room():
            unsent = next(session.unsent(), None)
            if unsent:
                unsent.is_sent = True
                self._send(session, connection, unsent.delivery, unsent.packet_id, dup=True)
            elif session.waiting:
                delivery = session.waiting.pop(0)
                # An expired message is not sent, but a begun exchange is finished [MQTT-3.3.2-5].
                if not delivery.message.is_expired(self.now_ms):
                    self._begin(session, connection, delivery)
            elif session.replays:
                self._go_on_replaying(session, connection)
            else:
                return

    def _go_on_replaying(self, session: Session, connection: Connection) -> None:
        """Look at one more retained message, in the order of topics [MQTT-3.3.1-8].

        What was retained after the subscription was made has reached it live.
        """
        replay = session.replays[0]
        subscription = session.subscriptions[replay.filter]
        ahead = [
            topic
            for topic in sorted(self.retained, key=str.encode)
            if matches(replay.filter, topic)
            and (replay.last_topic is None or topic.encode() > replay.last_topic.encode())
        ]
        if len(ahead) <= 1:
            session.replays.pop(0)
        if not ahead:
            return
        replay.last_topic = ahead[0]
        message = self.retained[ahead[0]]
        if message.offset >= replay.before_offset or message.is_expired(self.now_ms):
            return
        number = subscription.subscription_id
        delivery = Delivery(
            message=message,
            qos=min(message.qos, subscription.qos),
            retain=True,
            subscription_ids=() if number is None else (number,),
        )
        if delivery.qos == 0:
            self._send(session, connection, delivery, None, dup=False)
        else:
            self._begin(session, connection, delivery)

    def _begin(self, session: Session, connection: Connection, delivery: Delivery) -> None:
        exchange = Exchange(session.take_packet_id(), delivery, is_sent=True)
        session.published.append(exchange)
        self._send(session, connection, delivery, exchange.packet_id, dup=False)

    def _send(
        self,
        session: Session,
        connection: Connection,
        delivery: Delivery,
        packet_id: int | None,
        *,
        dup: bool,
    ) -> None:
        """PUBLISH to a subscriber, or not at all if it takes no packet as large [MQTT-3.1.2-25]."""
        if delivery.packet_bytes(connection.level) > connection.maximum_packet_bytes:
            if packet_id is not None:
                session.forget(packet_id)
            return
        self._effects.append(
            done.Deliver(
                origin=connection.origin,
                session_epoch=session.epoch,
                packet_id=packet_id,
                qos=delivery.qos,
                retain=delivery.retain,
                dup=dup,
                expiry_s=delivery.message.remaining_s(self.now_ms),
                subscription_ids=delivery.subscription_ids,
                offset=delivery.message.offset,
                topic=delivery.message.topic,
                properties=delivery.message.properties,
                payload=delivery.message.payload,
            )
        )

    def _acknowledge(self, ack: asked.ClientAck) -> None:
        """PUBACK, PUBREC or PUBCOMP from a subscriber (§4.3.2, §4.3.3)."""
        session = self._session_of(ack.client_id, ack.session_epoch)
        if session is None:
            return
        exchange = session.find(ack.packet_id)
        if ack.kind == "declined":
            if exchange:
                session.forget(ack.packet_id)
            self._fill_window(session)
            if exchange and exchange.delivery.share:
                self._pass_on(session, exchange.delivery, exchange.delivery.share)
            return
        qos = exchange.delivery.qos if exchange else None
        answer: int | None = None
        match ack.kind:
            case "puback" if qos == 1:
                session.forget(ack.packet_id)
            case "pubcomp" if ack.packet_id in session.released:
                session.released.remove(ack.packet_id)
            case "pubrec" if qos == 2:
                # From here on only PUBREL may be repeated [MQTT-4.3.3-6]; a failure is the end.
                session.forget(ack.packet_id)
                if ack.reason < ERROR:
                    session.released.append(ack.packet_id)
                    answer = SUCCESS
            case "pubrec" if ack.packet_id in session.released:
                answer = SUCCESS
            case "pubrec" if ack.reason < ERROR:
                answer = PACKET_ID_NOT_FOUND
            case "puback" | "pubrec" | "pubcomp":
                pass  # of no exchange of ours: changes nothing
        if answer is not None and session.connection:
            origin = session.connection.origin
            release = done.Release(origin=origin, packet_id=ack.packet_id, reason=answer)
            self._effects.append(release)
        self._fill_window(session)

    def _pass_on(self, unable: Session, delivery: Delivery, share: str) -> None:
        """Who may not read it gives it to the next who can keep it, once round.

        After that it goes to one who is there and keeps nothing, or nobody gets it.
        """
        message, declined = delivery.message, delivery.declined + 1
        if message.is_expired(self.now_ms) or share not in self.groups:
            return
        members = self.groups[share].members
        start = members.index(unable) + 1 if unable in members else 0
        others = [m for m in (*members[start:], *members[:start]) if m is not unable]

        def keeps(member: Session) -> bool:
            return min(message.qos, member.subscriptions[share].qos) > 0

        if declined < sum(map(keeps, members)):
            chosen = next((member for member in others if keeps(member)), None)
        else:
            chosen = next((m for m in others if m.connection and not keeps(m)), None)
        if chosen is None:
            return
        is_retained = delivery.retain_published
        copy = _copy_for([chosen.subscriptions[share]], message, is_retained=is_retained)
        copy = replace(copy, share=share, retain_published=is_retained, declined=declined)
        if not self._offer(chosen, copy):
            self._end(chosen, "overflowed")

    # --- subscribing -----------------------------------------------------------------------------

    def _subscribe(self, subscribe: asked.Subscribe) -> None:
        """SUBSCRIBE: one code for each filter, then retained messages (§3.8.4)."""
        session = self._session_of(subscribe.client_id, subscribe.session_epoch)
        if session is None:
            return
        codes: list[int] = []
        wanted: list[Subscription] = []
        subscriptions = [_subscription_of(f, subscribe.subscription_id) for f in subscribe.filters]
        for filter_, subscription in zip(subscribe.filters, subscriptions, strict=True):
            is_new = filter_.filter not in session.subscriptions
            code = self._refusal_of(session, filter_)
            codes.append(filter_.qos if code is None else code)
            if code is not None:
                continue
            session.subscriptions[filter_.filter] = subscription  # [MQTT-3.8.4-3]
            is_shared = split_share(filter_.filter)[0] is not None
            if is_shared and is_new:
                self.groups.setdefault(filter_.filter, ShareGroup()).members.append(session)
            # Retain Handling: always, if new, never; shared subscriptions never (§4.8.2).
            if not is_shared and (
                filter_.retain_handling == 0 or (filter_.retain_handling == 1 and is_new)
            ):
                wanted.append(subscription)
        self._effects.append(
            done.Subscribed(
                origin=subscribe.origin,
                client_id=subscribe.client_id,
                packet_id=subscribe.packet_id,
                codes=tuple(codes),
                filters=tuple(subscriptions),
            )
        )
        for subscription in wanted:
            _end_replay(session, subscription.filter)
            session.replays.append(Replay(subscription.filter, self.next_offset))
        self._fill_window(session)

    def _refusal_of(self, session: Session, filter_: asked.SubscribeFilter) -> int | None:
        if filter_.refused is not None:
            return filter_.refused
        if not is_valid(filter_.filter):
            return TOPIC_FILTER_INVALID
        is_new = filter_.filter not in session.subscriptions
        is_full = len(session.subscriptions) >= self.limits.subscriptions_max
        return QUOTA_EXCEEDED if is_new and is_full else None

    def retained_matching(self, filter_text: str) -> list[Message]:
        """What a new subscription receives, in the order of topics."""
        return [
            self.retained[topic]
            for topic in sorted(self.retained, key=str.encode)
            if matches(filter_text, topic) and not self.retained[topic].is_expired(self.now_ms)
        ]

    def retained_bytes(self) -> int:
        """What counts against the quota: topics and bodies."""
        return sum(message.weight for message in self.retained.values())

    def _fits_retained(self, publish: asked.Publish | Publication) -> bool:
        replaced = self.retained.get(publish.topic)
        weight = len(publish.topic.encode()) + len(publish.properties) + len(publish.payload)
        after = self.retained_bytes() - (replaced.weight if replaced else 0) + weight
        return after <= self.limits.retained_bytes_max

    def _unsubscribe(self, unsubscribe: asked.Unsubscribe) -> None:
        """UNSUBSCRIBE (§3.10.4)."""
        session = self._session_of(unsubscribe.client_id, unsubscribe.session_epoch)
        if session is None:
            return
        codes = []
        for text in unsubscribe.filters:
            if not is_valid(text):
                codes.append(TOPIC_FILTER_INVALID)
            elif text not in session.subscriptions:
                codes.append(NO_SUBSCRIPTION_EXISTED)
            else:
                self._leave_group(session, text)
                del session.subscriptions[text]
                _end_replay(session, text)
                codes.append(SUCCESS)
        self._effects.append(
            done.Unsubscribed(
                origin=unsubscribe.origin,
                client_id=unsubscribe.client_id,
                packet_id=unsubscribe.packet_id,
                codes=tuple(codes),
                filters=unsubscribe.filters,
            )
        )

    def _leave_group(self, session: Session, text: str) -> None:
        group = self.groups.get(text)
        if group and session in group.members:
            group.leave(session)
            if not group.members:
                del self.groups[text]


def _end_replay(session: Session, text: str) -> None:
    session.replays = [replay for replay in session.replays if replay.filter != text]


def is_guest(client_id: str) -> bool:
    """Whether this is the place of a transient session in share groups: it ends by itself."""
    return client_id.startswith("\0")


def _is_over(at_ms: int | None, now_ms: int) -> bool:
    return at_ms is not None and at_ms <= now_ms


def _merge(
    session: Session, message: Message, publisher: str, *, is_retained: bool
) -> Delivery | None:
    """One copy, however many filters match: highest QoS, every identifier [MQTT-3.3.4-2..4].

    No Local is a matter of each subscription: another one that matches may still want the message.
    """
    matching = [
        subscription
        for text, subscription in sorted(session.subscriptions.items())
        if split_share(text)[0] is None
        and matches(text, message.topic)
        and not (subscription.no_local and session.client_id == publisher)
    ]
    return _copy_for(matching, message, is_retained=is_retained) if matching else None


def _copy_for(matching: list[Subscription], message: Message, *, is_retained: bool) -> Delivery:
    numbers = (subscription.subscription_id for subscription in matching)
    return Delivery(
        message=message,
        qos=min(message.qos, max(subscription.qos for subscription in matching)),
        retain=is_retained and any(s.retain_as_published for s in matching),
        subscription_ids=tuple(sorted(number for number in numbers if number is not None)),
    )


def _subscription_of(filter_: asked.SubscribeFilter, subscription_id: int | None) -> Subscription:
    return Subscription(
        filter=filter_.filter,
        qos=filter_.qos,
        no_local=filter_.no_local,
        retain_as_published=filter_.retain_as_published,
        retain_handling=filter_.retain_handling,
        subscription_id=subscription_id,
    )


def _opened_unstored(open_: asked.OpenSession, previous: Origin | None) -> Effect:
    """Nothing was kept and nothing is to be: the connection is its own session."""
    return done.SessionOpened(
        origin=open_.origin,
        client_id=open_.client_id,
        session_present=False,
        session_epoch=0,
        incarnation=0,
        subscriptions=(),
        previous=previous,
    )


def _record_of(publication: Publication, message: Message, *, retain: bool) -> Effect:
    return done.Append(
        offset=message.offset,
        ts_ms=message.accepted_ms,
        source=publication.source,
        client_id=publication.client_id,
        incarnation=publication.incarnation,
        session_epoch=publication.session_epoch,
        publish_seq=message.offset + 1,
        publisher=publication.publisher,
        retain=retain,
        captured=publication.captured,
        qos=message.qos,
        expiry_s=message.expiry_s,
        topic=message.topic,
        properties=message.properties,
        payload=message.payload,
    )
