"""A client's side of MQTT without a socket, a clock or dice.

Theory of operation. A `Session` is told what happened (`begin`, `receive`, `tick`, `lost`) and what
is wanted (`publish`, `subscribe`, …); time is an argument. It answers with bytes to write
(`take_output`), things to tell (`take_events`), messages to hand out (`take_deliveries`) and
promises to settle (`take_settlements`), all of which the caller fetches under the same lock and
acts on after releasing it. So nothing here can block, and no callback can run under the lock.

States: `IDLE` (no connection) → `OPENING` (CONNECT is out) → `OPEN` (the server said yes) →
`ENDING` (we said goodbye, or gave up on the peer) → `IDLE`. The session's contents (publishes in
flight, received ids, subscriptions) live across connections; the parts hold them: `outbound.py`,
`inbound.py`. With a store, what must outlive the process is noted in `journal.py`.

Deliberately absent: reconnecting (the caller's, with `backoff.py`), and any wait.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Generic, TypeVar

from quantumqtt import _core
from quantumqtt._core import AckRun, Control, Message
from quantumqtt.client.inbound import Inbound
from quantumqtt.client.journal import Contents, Journal
from quantumqtt.client.options import LEVELS, SessionOptions
from quantumqtt.client.outbound import QOS_1_BITS, QOS_2_BITS, Outbound
from quantumqtt.client.receipts import Operation, Pending, Receipt
from quantumqtt.client.refusals import Properties, property_of, refusal, text_of
from quantumqtt.client.routes import Routes
from quantumqtt.errors import (
    ConnectionLost,
    LocalProtocolError,
    PacketTooLarge,
    ProtocolError,
    QuantuMQTTError,
    Refused,
    RemoteProtocolError,
    ServerRedirect,
)
from quantumqtt.mqtt import PropertyId, ReasonCode, encode_properties

_CONNACK: Final = 2
_PUBACK: Final = 4
_PUBREC: Final = 5
_PUBREL: Final = 6
_PUBCOMP: Final = 7
_SUBACK: Final = 9
_UNSUBACK: Final = 11
_PINGREQ_BYTES: Final = b"\xc0\x00"
_PINGRESP: Final = 13
_DISCONNECT: Final = 14
_AUTH: Final = 15
_FIRST_ERROR: Final = 0x80
_UNLIMITED: Final = 0xFFFF_FFFF
_V3_RECEIVE_MAXIMUM: Final = 65_535
# Before MQTT 5 a server cannot say how many QoS 2 it holds at once. Mosquitto's default is 20: it
# ends connections that exceed it, and at exactly 20 drops the next QoS 1 and acknowledges it.
_V3_QOS_2_WINDOW: Final = 16
_RESTORE_AT_ONCE: Final = 64
# Codes that a client may put into DISCONNECT; others become the general one.
_SAYABLE: Final = frozenset({0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x99})
# Ping after three quarters of the keep alive, give up after as much again.
_PING_AFTER: Final = 0.75

Sink = TypeVar("Sink")


class State(Enum):
    """Where a connection is in its life."""

    IDLE = auto()
    OPENING = auto()
    OPEN = auto()
    ENDING = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What the server said it can do; the defaults are the standard's."""

    version: str
    client_id: str
    keep_alive_s: int
    session_expiry_s: int
    receive_maximum: int = _V3_RECEIVE_MAXIMUM
    packet_bytes_max: int = _UNLIMITED
    topic_alias_maximum: int = 0
    maximum_qos: int = 2
    retain_available: bool = True
    wildcard_subscriptions: bool = True
    subscription_ids: bool = True
    shared_subscriptions: bool = True
    response_information: str | None = None
    server_reference: str | None = None
    user_properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Connected:
    """The server accepted the connection."""

    session_present: bool
    capabilities: Capabilities
    # We had a session there, and it expired or was thrown away: subscriptions are made again, QoS 1
    # is sent again, and QoS 2 that was on its way has failed with `SessionLost`.
    session_lost: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """This connection is over; flush what is to be written and close it."""

    error: QuantuMQTTError


@dataclass(frozen=True, slots=True)
class Challenged:
    """The server wants authentication data; `is_final` comes with its success."""

    data: bytes | None


@dataclass(frozen=True, slots=True)
class SubscriptionLost:
    """A subscription could not be restored after the server forgot the session."""

    topic_filter: str
    error: Refused


Event = Connected | Failed | Challenged | SubscriptionLost


class Session(Generic[Sink]):
    """One client's protocol state, whatever connections it goes through."""

    def __init__(self, options: SessionOptions) -> None:
        self.state: State = State.IDLE
        self.level: int = LEVELS[options.version]
        self.client_id: str = options.client_id
        self.capabilities: Capabilities | None = None
        self.subscriptions: dict[str, int] = {}
        self.routes: Routes[Sink] = Routes()
        self.unrouted_total: int = 0
        self._options = options
        self._journal = Journal() if options.is_stored else None
        self._outbound = Outbound(
            queue_bytes_max=options.queue_bytes_max,
            aliases=options.topic_aliases,
            journal=self._journal,
        )
        self._inbound = Inbound(
            receive_maximum=options.receive_maximum,
            alias_maximum=options.topic_alias_maximum,
            journal=self._journal,
        )
        self._rest = bytearray()
        self._wanted = 0
        self._events: list[Event] = []
        self._deliveries: list[tuple[tuple[Sink, ...], list[Message]]] = []
        self._operations: list[Operation] = []
        self._restoring: set[int] = set()
        self._must_restore = False
        self._had_session = False
        self._stored_level = 0
        self._is_limited = True
        self._keep_alive_s = 0.0
        self._sent_at = 0.0
        self._pinged_at: float | None = None

    # --- a life before this process -----------------------------------------------------------

    def restore(
        self, contents: Contents, new_receipt: Callable[[str, bytes, int, bytes], Receipt]
    ) -> list[Receipt]:
        """Go on where the store says an earlier process was; before the first connection.

        Returns the publishes that process did not see acknowledged, oldest first.
        """
        assert self._journal is not None, "only a stored session has an earlier life"
        self.client_id = contents.client_id
        self._had_session = bool(contents.level)
        self._stored_level = contents.level
        if contents.level and self._options.version == "auto":
            self.level = contents.level
        self.subscriptions |= contents.subscriptions
        self._inbound.exactly_once |= contents.received
        receipts = []
        for sequence, stored in contents.publishes.items():
            receipt = new_receipt(*stored.parts())
            receipt.sequence = sequence
            receipt.packet_id = stored.packet_id
            receipt.released = stored.released
            receipt._acceptance = Pending()
            receipt._acceptance._settle(None)
            receipts.append(receipt)
        self._outbound.resume(receipts)
        self._journal.open(contents.next_sequence)
        return receipts

    def take_records(self) -> tuple[list[bytes], list[Receipt]]:
        """Hand out what the store must know before the output of this turn may leave."""
        assert self._journal is not None, "only a stored session has records"
        return self._journal.take()

    def snapshot(self) -> tuple[list[bytes], list[Receipt]]:
        """As `take_records`, in place of all records there ever were."""
        assert self._journal is not None, "only a stored session has records"
        return self._journal.snapshot(
            level=self._stored_level,
            subscriptions=self.subscriptions,
            received=self._inbound.handed_over(),
            receipts=sorted(
                (one for one in self._outbound.unsettled() if one.sequence),
                key=lambda one: one.sequence,
            ),
        )

    # --- life of a connection -----------------------------------------------------------------

    def begin(self, now: float, auth_data: bytes | None = None) -> None:
        """A transport is there: say CONNECT."""
        assert self.state is State.IDLE, "one connection at a time"
        options = self._options
        self.state = State.OPENING
        self._sent_at = now
        self._pinged_at = None
        self._rest.clear()
        self._wanted = 0
        will = options.will.parts(self.level) if options.will else None
        connect = _core.encode_connect(
            self.level,
            self.client_id,
            clean_start=self._starts_clean(),
            keep_alive_s=options.keep_alive_s,
            user_name=options.user_name,
            password=options.password,
            will=will,
            properties=self._connect_properties(auth_data) if self.level == LEVELS["5"] else None,
        )
        self._outbound.outbox.append(connect)

    def _starts_clean(self) -> bool:
        if self.level == LEVELS["5"]:
            return self._options.clean_start and not self._had_session
        # Before MQTT 5 a session that survives the connection survives for ever.
        return not self._options.resumes

    def _connect_properties(self, auth_data: bytes | None) -> bytes:
        options = self._options
        authenticator = options.authenticator
        return encode_properties(
            (
                (PropertyId.SESSION_EXPIRY_INTERVAL, self._session_expiry_s() or None),
                (PropertyId.RECEIVE_MAXIMUM, options.receive_maximum),
                (PropertyId.MAXIMUM_PACKET_SIZE, options.packet_bytes_max),
                (PropertyId.TOPIC_ALIAS_MAXIMUM, options.topic_alias_maximum or None),
                (
                    PropertyId.REQUEST_RESPONSE_INFORMATION,
                    options.request_response_information or None,
                ),
                (
                    PropertyId.AUTHENTICATION_METHOD,
                    authenticator.method if authenticator else None,
                ),
                (PropertyId.AUTHENTICATION_DATA, auth_data),
            ),
            options.user_properties,
        )

    def _session_expiry_s(self) -> int:
        """Without a wish the session outlives a broken connection, and ends with `disconnect`."""
        wished = self._options.session_expiry_s
        if wished is not None:
            return wished
        is_brief = self._options.clean_start and self._journal is None
        return 300 if is_brief else _UNLIMITED

    def fall_back(self) -> bool:
        """Speak 3.1.1 from now on; False when that is not what the caller allowed."""
        if self._options.version != "auto" or self.level != LEVELS["5"] or self._had_session:
            return False
        self.level = LEVELS["3.1.1"]
        return True

    def fall_forward(self) -> None:
        """The older version did not help: ask for the newest again next time."""
        if not self._had_session:
            self.level = LEVELS[self._options.version]

    def lost(self, error: QuantuMQTTError) -> None:
        """The transport is gone."""
        self.state = State.IDLE
        unanswered = self._outbound.end_connection(error)
        # What restored subscriptions is planned anew by the next connection.
        unanswered = [one for one in unanswered if one.packet_id not in self._restoring]
        for operation in unanswered:
            operation.packet_id = 0
        self._operations = [*unanswered, *self._operations]
        self._restoring.clear()
        self._inbound.end_connection()

    def disconnect(self, reason_code: int = 0, *, session_expiry_s: int | None = None) -> None:
        """Say goodbye; nothing but that is sent any more."""
        if self.state is State.OPEN:
            properties = b""
            is_v5 = self.level == LEVELS["5"]
            if is_v5:
                if session_expiry_s is None and not self._options.resumes:
                    session_expiry_s = 0
                properties = encode_properties(
                    ((PropertyId.SESSION_EXPIRY_INTERVAL, session_expiry_s),)
                )
            self._outbound.outbox.append(
                _core.encode_disconnect(self.level, reason_code if is_v5 else 0, properties)
            )
        self.state = State.ENDING
        self._outbound.is_open = False

    def close(self, error: QuantuMQTTError) -> None:
        """The client ends: everything that is under way fails."""
        self._outbound.fail_all(error)
        for operation in self._operations:
            self._outbound.answer(operation, None, error)
        self._operations.clear()

    # --- time ---------------------------------------------------------------------------------

    def tick(self, now: float) -> float | None:
        """Ping, or give up on a silent server; returns when to ask again."""
        if self.state is not State.OPEN or not self._keep_alive_s:
            return None
        if self._pinged_at is not None:
            gives_up_at = self._pinged_at + self._keep_alive_s * _PING_AFTER
            if now < gives_up_at:
                return gives_up_at
            self._fail(
                ConnectionLost(
                    f"no answer to a ping for {self._keep_alive_s * _PING_AFTER:.1f} s",
                    "the network or the server is gone; the client reconnects if allowed",
                )
            )
            return None
        pings_at = self._sent_at + self._keep_alive_s * _PING_AFTER
        if now < pings_at:
            return pings_at
        self._outbound.outbox.append(_PINGREQ_BYTES)
        self._pinged_at = now
        return now + self._keep_alive_s * _PING_AFTER

    def excuse_silence(self) -> None:
        """The caller does not read at the moment, so an answer to a ping cannot be seen."""
        self._pinged_at = None

    # --- what the application wants -----------------------------------------------------------

    def publish(self, receipt: Receipt, drop_oldest: bool = False) -> None:
        """Accept a publish; everything that can be known to fail fails here.

        Raises:
            PublishQueueFull: The bound on unacknowledged bytes is reached.
            LocalProtocolError: The connection's version cannot carry this.
            Refused: The server said before that it does not take this.
        """
        if self._is_limited or receipt.properties:
            error = self._refusal_of(receipt)
            if error is not None:
                raise error
        self._outbound.accept(receipt, drop_oldest)

    def can_ever_fit(self, bytes_count: int) -> bool:
        """Whether a publish of this size could be accepted at all."""
        return bytes_count <= self._options.queue_bytes_max

    @property
    def unsettled_bytes(self) -> int:
        """Bytes of publishes that are accepted and not acknowledged."""
        return self._outbound.unsettled_bytes

    @property
    def unsettled(self) -> bool:
        """Whether any publish is accepted and not acknowledged."""
        return self._outbound.has_unsettled()

    def _refusal_of(self, receipt: Receipt) -> QuantuMQTTError | None:
        if receipt.properties and self.level != LEVELS["5"]:
            return LocalProtocolError(
                f"publish to {receipt.topic!r} has properties", "only MQTT 5 has them"
            )
        known = self.capabilities
        if known is None:
            return None
        what = f"publish to {receipt.topic!r}"
        # Topic, properties and payload, and at most 13 bytes of header, lengths and packet id.
        if receipt.bytes_count + 13 > known.packet_bytes_max:
            return PacketTooLarge(
                f"{what}: {receipt.bytes_count} bytes, the server takes {known.packet_bytes_max}",
                "make the payload smaller",
                ReasonCode.PACKET_TOO_LARGE,
            )
        if receipt.qos > known.maximum_qos:
            return refusal(f"{what} at QoS {receipt.qos}", ReasonCode.QOS_NOT_SUPPORTED, [])
        if receipt.retain and not known.retain_available:
            return refusal(f"{what} retained", ReasonCode.RETAIN_NOT_SUPPORTED, [])
        return None

    def subscribe(self, filters: Sequence[tuple[str, int]]) -> Operation:
        """Ask for messages; filters come with their options byte.

        Raises:
            QuotaExceeded: All packet ids are in use.
        """
        return self._start(Operation(tuple(filters), is_subscribe=True))

    def unsubscribe(self, filters: Sequence[str]) -> Operation:
        """Want no more messages.

        Raises:
            QuotaExceeded: All packet ids are in use.
        """
        return self._start(Operation(tuple((text, 0) for text in filters), is_subscribe=False))

    def _start(self, operation: Operation) -> Operation:
        if self.state is State.OPEN:
            self._send_operation(operation)
        else:
            self._operations.append(operation)
        return operation

    def _send_operation(self, operation: Operation) -> None:
        operation.packet_id = self._outbound.take_id_or_raise(operation)
        if operation.is_subscribe:
            packet = _core.encode_subscribe(self.level, operation.packet_id, operation.filters)
        else:
            texts = [text for text, _ in operation.filters]
            packet = _core.encode_unsubscribe(self.level, operation.packet_id, texts)
        self._outbound.outbox.append(packet)

    def accept(self, packet_id: int, session: int) -> None:
        """One subscriber is done with a QoS 1 or 2 message."""
        self._inbound.accept(packet_id, session, self._outbound.outbox)

    def answer_challenge(self, data: bytes | None) -> None:
        """Go on with enhanced authentication."""
        self._send_auth(ReasonCode.CONTINUE_AUTHENTICATION, data)

    def reauthenticate(self, data: bytes | None) -> None:
        """Prove again who we are, before the old proof expires.

        Raises:
            LocalProtocolError: There is no authenticator, or no open connection of MQTT 5.
        """
        if self._options.authenticator is None or self.state is not State.OPEN:
            raise LocalProtocolError(
                "cannot re-authenticate", "give the client an authenticator, and be connected"
            )
        self._send_auth(ReasonCode.REAUTHENTICATE, data)

    def _send_auth(self, reason_code: int, data: bytes | None) -> None:
        authenticator = self._options.authenticator
        assert authenticator is not None, "only an authenticator is asked"
        properties = encode_properties(
            (
                (PropertyId.AUTHENTICATION_METHOD, authenticator.method),
                (PropertyId.AUTHENTICATION_DATA, data),
            )
        )
        self._outbound.outbox.append(_core.encode_auth(reason_code, properties))

    # --- what the caller fetches --------------------------------------------------------------

    def take_output(self, now: float) -> bytes:
        """Hand out the bytes to write."""
        if not self._outbound.outbox:
            return b""
        self._sent_at = now
        return _core.encode_batch(self.level, self._outbound.take_outbox())

    def has_output(self) -> bool:
        """Whether there is something to write."""
        return bool(self._outbound.outbox)

    def take_events(self) -> list[Event]:
        """Hand out what happened."""
        events, self._events = self._events, []
        return events

    def take_deliveries(self) -> list[tuple[tuple[Sink, ...], list[Message]]]:
        """Hand out messages and who gets them."""
        deliveries, self._deliveries = self._deliveries, []
        return deliveries

    def take_settled(self) -> list[Receipt | Operation | Pending[None]]:
        """Hand out promises whose outcome is known and that somebody waits for.

        Call those who wait without the lock.
        """
        outbound = self._outbound
        settled, outbound.settled = outbound.settled, []
        return settled

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self._outbound.is_open = False

    def resume_writing(self) -> None:
        """The transport takes bytes again."""
        if self.state is State.OPEN:
            self._outbound.is_open = True
            self._outbound.release()

    # --- what the server sends ----------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Take bytes from the transport."""
        if self.state not in (State.OPENING, State.OPEN):
            return
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return
            data = bytes(self._rest)
            self._rest.clear()
        limit = self._options.packet_bytes_max
        level = self.level
        if self.state is State.OPENING and data[:2] == b"\x20\x02":
            # The CONNACK of a server that only knows older versions has no property length.
            level = min(level, LEVELS["3.1.1"])
        items, taken, self._wanted = _core.decode_packets(level, data, limit, self._inbound.session)
        if taken < len(data):
            self._rest += data[taken:]
        try:
            for item in items:
                self._on_item(item)
        except ProtocolError as error:
            self._fail(error)
        if self._outbound.is_open and self._outbound.waiting:
            self._outbound.release()

    def _on_item(
        self, item: list[Message] | Message | AckRun | Control | RemoteProtocolError
    ) -> None:
        if isinstance(item, RemoteProtocolError):
            raise item
        if isinstance(item, Control):
            self._on_control(item)
        elif self.state is not State.OPEN:
            if self.state is State.OPENING:
                raise _broken("a packet before CONNACK")
        elif isinstance(item, list):
            self._hand_out(item[0].topic, item)
        elif isinstance(item, AckRun):
            self._on_acks(item.kind, item.packet_ids, item.reason_code, [])
        else:
            self._on_message(item)

    def _hand_out(self, topic: str, messages: list[Message]) -> None:
        sinks = self.routes.for_topic(topic)
        if sinks:
            self._deliveries.append((sinks, messages))
        else:
            self.unrouted_total += len(messages)

    def _on_message(self, message: Message) -> None:
        alias = message.topic_alias
        if alias is not None:
            message = self._inbound.resolve_alias(message, alias)
        packet_id = message.packet_id
        if packet_id is None:
            self._hand_out(message.topic, [message])
            return
        outbox = self._outbound.outbox
        if not self._inbound.on_message(message, outbox):
            return
        sinks = self.routes.for_topic(message.topic)
        if not sinks:
            self.unrouted_total += 1
            self._inbound.accept(packet_id, message.session, outbox)
            return
        if len(sinks) > 1:
            self._inbound.expect(packet_id, len(sinks))
        self._deliveries.append((sinks, [message]))

    def _on_acks(
        self, kind: int, packet_ids: list[int], reason_code: int, properties: Properties
    ) -> None:
        outbound = self._outbound
        if kind == _PUBCOMP and reason_code == ReasonCode.PACKET_IDENTIFIER_NOT_FOUND:
            # The server had finished before; we released again because its word was lost.
            reason_code = ReasonCode.SUCCESS
        if kind in (_PUBACK, _PUBCOMP):
            qos_bits = QOS_1_BITS if kind == _PUBACK else QOS_2_BITS
            error = _refused(reason_code, properties)
            for packet_id in packet_ids:
                if not outbound.on_ack(packet_id, qos_bits, reason_code, error):
                    self._on_unknown_ack(kind, packet_id)
        elif kind == _PUBREC:
            error = _refused(reason_code, properties)
            for packet_id in packet_ids:
                self._on_pubrec(packet_id, reason_code, error)
        else:
            for packet_id in packet_ids:
                self._on_pubrel(packet_id)

    def _on_unknown_ack(self, kind: int, packet_id: int) -> None:
        owner = self._outbound.pending.get(packet_id)
        if owner is not None:
            raise _broken(f"packet type {kind} acknowledges packet id {packet_id} of another kind")
        # Without an owner it is late, after a session was lost; that harms nobody.

    def _on_pubrec(self, packet_id: int, reason_code: int, error: Refused | None) -> None:
        outbound = self._outbound
        if error is not None:
            if not outbound.on_ack(packet_id, QOS_2_BITS, reason_code, error):
                self._on_unknown_ack(_PUBREC, packet_id)
        elif not outbound.on_pubrec(packet_id):
            self._on_unknown_ack(_PUBREC, packet_id)
            self._answer_unknown(_PUBREL, packet_id)

    def _on_pubrel(self, packet_id: int) -> None:
        if self._inbound.on_pubrel(packet_id):
            self._outbound.outbox.append(_PUBCOMP << 16 | packet_id)
        else:
            self._answer_unknown(_PUBCOMP, packet_id)

    def _answer_unknown(self, kind: int, packet_id: int) -> None:
        reason_code = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if self.level == LEVELS["5"] else 0
        self._outbound.outbox.append(_core.encode_ack(self.level, kind, packet_id, reason_code))

    def _on_control(self, packet: Control) -> None:
        kind = packet.kind
        if self.state is State.OPENING:
            if kind == _CONNACK:
                self._on_connack(packet)
            elif kind == _AUTH:
                self._on_auth(packet)
            else:
                raise _broken(f"packet type {kind} before CONNACK")
        elif self.state is not State.OPEN:
            return
        elif kind == _PINGRESP:
            self._pinged_at = None
        elif kind in (_SUBACK, _UNSUBACK):
            self._on_operation_answered(packet)
        elif kind == _DISCONNECT:
            self._on_disconnect(packet)
        elif kind == _AUTH:
            self._on_auth(packet)
        elif _PUBACK <= kind <= _PUBCOMP:
            self._on_acks(kind, [packet.packet_id], packet.reason_code, packet.properties)
        else:
            raise _broken(f"packet type {kind} on an open connection")

    def _on_connack(self, packet: Control) -> None:
        if packet.reason_code >= _FIRST_ERROR:
            self._fail(refusal("connection refused", packet.reason_code, packet.properties))
            return
        if packet.session_present and self._starts_clean():
            raise _broken("a session is present after a clean start")
        if not self._finish_authentication(packet):
            return
        self.state = State.OPEN
        known = self.capabilities = self._capabilities_of(packet.properties)
        self.client_id = known.client_id
        self._keep_alive_s = float(known.keep_alive_s)
        self._is_limited = known != Capabilities(
            version=known.version,
            client_id=known.client_id,
            keep_alive_s=known.keep_alive_s,
            session_expiry_s=known.session_expiry_s,
            receive_maximum=known.receive_maximum,
            topic_alias_maximum=known.topic_alias_maximum,
            user_properties=known.user_properties,
        )
        if not packet.session_present:
            self._inbound.forget_session()
            self._outbound.forget_session()
        window = min(known.receive_maximum, self._options.inflight_max)
        self._outbound.begin_connection(
            window=window,
            window_qos_2=window if self.level == LEVELS["5"] else min(window, _V3_QOS_2_WINDOW),
            alias_max=known.topic_alias_maximum,
        )
        is_lost = self._had_session and not packet.session_present
        self._events.append(Connected(packet.session_present, known, is_lost))
        self._restore_subscriptions(session_present=packet.session_present)
        self._had_session = True
        if self._journal is not None and self._stored_level != self.level:
            self._stored_level = self.level
            self._journal.opened(self.level)
        self._refuse_waiting()
        self._outbound.release()

    def _restore_subscriptions(self, *, session_present: bool) -> None:
        waiting, self._operations = self._operations, []
        if not session_present and self._had_session:
            self._must_restore = True
        if self._must_restore:
            known = list(self.subscriptions.items())
            for at in range(0, len(known), _RESTORE_AT_ONCE):
                chunk = tuple(known[at : at + _RESTORE_AT_ONCE])
                operation = Operation(chunk, is_subscribe=True)
                self._send_operation(operation)
                self._restoring.add(operation.packet_id)
        for operation in waiting:
            self._send_operation(operation)

    def _refuse_waiting(self) -> None:
        """Settle what was accepted before the server told that it does not take it."""
        outbound = self._outbound
        for receipt in tuple(outbound.waiting):
            error = None if receipt.packet_id else self._refusal_of(receipt)
            if error is not None:
                outbound.waiting.remove(receipt)
                outbound.settle(receipt, None, error)

    def _capabilities_of(self, properties: Properties) -> Capabilities:
        options = self._options
        version = {level: name for name, level in LEVELS.items() if name != "auto"}[self.level]

        def number(wanted: PropertyId, default: int) -> int:
            value = property_of(properties, wanted)
            return value if isinstance(value, int) else default

        def offers(wanted: PropertyId) -> bool:
            return bool(number(wanted, 1))

        is_v5 = self.level == LEVELS["5"]
        return Capabilities(
            version=version,
            client_id=text_of(properties, PropertyId.ASSIGNED_CLIENT_ID) or self.client_id,
            keep_alive_s=number(PropertyId.SERVER_KEEP_ALIVE, options.keep_alive_s),
            session_expiry_s=number(
                PropertyId.SESSION_EXPIRY_INTERVAL, self._session_expiry_s() if is_v5 else 0
            ),
            receive_maximum=number(PropertyId.RECEIVE_MAXIMUM, _V3_RECEIVE_MAXIMUM),
            packet_bytes_max=number(PropertyId.MAXIMUM_PACKET_SIZE, _UNLIMITED),
            topic_alias_maximum=number(PropertyId.TOPIC_ALIAS_MAXIMUM, 0),
            maximum_qos=number(PropertyId.MAXIMUM_QOS, 2),
            retain_available=offers(PropertyId.RETAIN_AVAILABLE),
            wildcard_subscriptions=offers(PropertyId.WILDCARD_SUBSCRIPTION_AVAILABLE),
            subscription_ids=offers(PropertyId.SUBSCRIPTION_ID_AVAILABLE),
            shared_subscriptions=offers(PropertyId.SHARED_SUBSCRIPTION_AVAILABLE),
            response_information=text_of(properties, PropertyId.RESPONSE_INFORMATION),
            server_reference=text_of(properties, PropertyId.SERVER_REFERENCE),
            user_properties=tuple(
                value
                for number, value in properties
                if number == PropertyId.USER_PROPERTY and isinstance(value, tuple)
            ),
        )

    def _on_operation_answered(self, packet: Control) -> None:
        operation = self._outbound.pending.get(packet.packet_id)
        is_subscribe = packet.kind == _SUBACK
        if not isinstance(operation, Operation) or operation.is_subscribe != is_subscribe:
            raise _broken(f"packet type {packet.kind} answers nothing that was asked")
        codes = tuple(packet.codes)
        if not is_subscribe and self.level != LEVELS["5"]:
            codes = (0,) * len(operation.filters)
        if len(codes) != len(operation.filters):
            raise _broken(f"{len(codes)} codes answer {len(operation.filters)} filters")
        del self._outbound.pending[packet.packet_id]
        is_restoring = packet.packet_id in self._restoring
        self._restoring.discard(packet.packet_id)
        if not self._restoring:
            self._must_restore = False
        first_error: Refused | None = None
        for (text, filter_options), code in zip(operation.filters, codes, strict=True):
            if code >= _FIRST_ERROR:
                verb = "subscribe to" if is_subscribe else "unsubscribe from"
                error = refusal(f"{verb} {text!r}", code, packet.properties)
                first_error = first_error or error
                if is_restoring:
                    self._forget_subscription(text)
                    self._events.append(SubscriptionLost(text, error))
            elif is_subscribe:
                if self._journal is not None and self.subscriptions.get(text) != filter_options:
                    self._journal.subscribed(text, filter_options)
                self.subscriptions[text] = filter_options
            else:
                self._forget_subscription(text)
        self._outbound.answer(operation, codes, first_error)

    def _forget_subscription(self, topic_filter: str) -> None:
        if self.subscriptions.pop(topic_filter, None) is not None and self._journal is not None:
            self._journal.unsubscribed(topic_filter)

    def _on_disconnect(self, packet: Control) -> None:
        if self.level != LEVELS["5"]:
            raise _broken("DISCONNECT from a server before MQTT 5")
        refused = refusal("the server ended the connection", packet.reason_code, packet.properties)
        if isinstance(refused, ServerRedirect):
            self._fail(refused, say=False)
            return
        lost = ConnectionLost(str(refused), refused.hint)
        # Coming back would take the session over again, and so on without end.
        lost.retryable = packet.reason_code != ReasonCode.SESSION_TAKEN_OVER
        self._fail(lost, say=False)

    def _on_auth(self, packet: Control) -> None:
        authenticator = self._options.authenticator
        method = text_of(packet.properties, PropertyId.AUTHENTICATION_METHOD)
        if authenticator is None or method != authenticator.method:
            raise _broken("AUTH with a method that was not offered")
        if packet.reason_code == ReasonCode.SUCCESS:
            self._finish_authentication(packet)
        else:
            self._events.append(Challenged(_auth_data(packet)))

    def _finish_authentication(self, packet: Control) -> bool:
        """Have the server's own proof checked before anything else is sent."""
        authenticator = self._options.authenticator
        if authenticator is not None and self.level == LEVELS["5"]:
            try:
                authenticator.finish(_auth_data(packet))
            except QuantuMQTTError as error:
                self._fail(error)
                return False
        return True

    def _fail(self, error: QuantuMQTTError, *, say: bool = True) -> None:
        """Give up on this connection; tell a server of MQTT 5 why."""
        if say and self.state is State.OPEN and self.level == LEVELS["5"]:
            code = getattr(error, "reason_code", ReasonCode.UNSPECIFIED_ERROR)
            code = code if code in _SAYABLE else int(ReasonCode.UNSPECIFIED_ERROR)
            self._outbound.outbox.append(_core.encode_disconnect(self.level, code))
        self.state = State.ENDING
        self._outbound.is_open = False
        self._events.append(Failed(error))


def _auth_data(packet: Control) -> bytes | None:
    data = property_of(packet.properties, PropertyId.AUTHENTICATION_DATA)
    return data if isinstance(data, bytes) else None


def _broken(what: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"the server breaks MQTT: {what}", "report it to the server's makers"
    )


def _refused(reason_code: int, properties: Properties) -> Refused | None:
    if reason_code < _FIRST_ERROR:
        return None
    return refusal("publish refused", reason_code, properties)
