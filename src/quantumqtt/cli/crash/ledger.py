"""The account of a torture run, and the judge over it.

Theory of operation. The swarm reports each thing it did and saw, in the order in which it happened
to it; the ledger numbers them (`_now`), and that number is the only clock. So "published after the
subscription was acknowledged" is a comparison of two integers, whatever broker and disk did
meanwhile. Nothing here sends, reads a clock or rolls dice.

What a broker owes is derived from what it acknowledged, never from what was sent: a publish that
got no answer may be delivered or not; a filter whose SUBSCRIBE got no answer may exist or not. A
publish counts as acknowledged with PUBACK or PUBREC, since either takes it over. MQTT has no answer
to DISCONNECT: a goodbye is believed to outlive a crash once a publish was acknowledged that left
after the broker had closed the connection, because what a log keeps it keeps in order.

`close_round` compares what is owed with what came and lets go of what is settled, so that a run of
many rounds needs no more memory than one; per publisher and subscriber one byte per message stays,
and with it a copy that comes rounds later is still seen.
"""

import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

_PAD: Final = b"."
_DELIVERED: Final = 1
_NEVER: Final = float("inf")


class Property(Enum):
    """What is judged; the value is what the table shows."""

    DELIVERED = "acknowledged publishes delivered"
    ONCE = "delivered no oftener than promised"
    INVENTED = "nothing invented or altered"
    ORDER = "order per topic and publisher"
    SESSION_PRESENT = "session present is true"
    SUBSCRIPTIONS = "acknowledged subscriptions kept"
    UNSUBSCRIPTIONS = "acknowledged unsubscriptions kept"
    RETAINED = "retained messages as acknowledged"
    WILLS = "wills published, and only when due"
    RECOVERY = "answers again after the fault"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise, named so that a person can look for it in logs."""

    property: Property
    what: str
    client: str
    topic: str = ""
    message: str = ""
    acknowledged_s: float | None = None


@dataclass(slots=True)
class Sent:
    """One publish and what became of it."""

    publisher: str
    sequence: int
    topic: str
    qos: int
    first_sent: int
    is_canary: bool
    times_sent: int = 1
    acknowledged: float = _NEVER
    completed: float = _NEVER
    acknowledged_s: float | None = None

    @property
    def name(self) -> str:
        """How it is called in findings."""
        return f"{self.publisher}:{self.sequence}"


@dataclass(slots=True)
class Span:
    """One life of a subscription, by the numbers of its events."""

    qos: int
    subscribing: int
    subscribed: float = _NEVER
    unsubscribing: float = _NEVER
    unsubscribed: float = _NEVER


@dataclass(slots=True)
class _Subscriber:
    spans: dict[str, list[Span]] = field(default_factory=dict)
    filters_of: dict[str, list[str]] = field(default_factory=dict)
    seen: dict[str, bytearray] = field(default_factory=dict)
    last: dict[tuple[str, str, int], int] = field(default_factory=dict)
    on_connection: set[tuple[str, int]] = field(default_factory=set)

    def spans_for(self, topic: str) -> list[Span]:
        """Every life of every filter that matches a topic."""
        filters = self.filters_of.get(topic)
        if filters is None:
            filters = [one for one in self.spans if matches(one, topic)]
            self.filters_of[topic] = filters
        return [span for name in filters for span in self.spans[name]]


class SessionState(Enum):
    """What is known of a session without asking the broker."""

    ABSENT = "absent"
    PRESENT = "present"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class _Will:
    client: str
    topic: str
    is_delayed: bool
    is_due: bool | None = None
    count: int = 0
    is_counted: bool = False
    is_told: bool = False
    # When the broker closed after a goodbye; None as long as there was none.
    goodbye: int | None = None


def payload_of(publisher: str, sequence: int, qos: int, topic: str, size: int) -> bytes:
    """Write a payload that tells whose it is, and whether it is whole."""
    head = f"{publisher}:{sequence}:{qos}:{topic}:".encode()
    body = head + _PAD * max(0, size - len(head) - 9)
    return body + b":%08x" % zlib.crc32(body)


def matches(topic_filter: str, topic: str) -> bool:
    """Match the two shapes of filters the swarm uses: a whole topic, and everything below one."""
    return topic == topic_filter or (
        topic_filter.endswith("/#") and topic.startswith(topic_filter[:-1])
    )


def read_payload(payload: bytes) -> tuple[str, int, int, str] | None:
    """Read publisher, sequence, QoS and topic; None when nobody here wrote this."""
    body, colon, check = payload.rpartition(b":")
    if not colon or check != b"%08x" % zlib.crc32(body):
        return None
    try:
        publisher, sequence, qos, topic, _ = body.decode().split(":")
        return publisher, int(sequence), int(qos), topic
    except ValueError:
        return None


class Ledger:
    """What was promised, what came, and what follows from both."""

    def __init__(self, *, keeps_account: bool = False) -> None:
        """Begin with nothing; `keeps_account` is for whoever can look into the broker's log."""
        self.account: list[Sent] | None = [] if keeps_account else None
        self.checked: Counter[Property] = Counter()
        self.violations: list[Violation] = []
        self.acknowledged_total = 0
        self.delivered_total = 0
        self.repeated_total = 0
        self._now = 0
        self._sent: dict[tuple[str, int], Sent] = {}
        self._next: Counter[str] = Counter()
        self._subscribers: dict[str, _Subscriber] = {}
        self._sessions: dict[str, SessionState] = {}
        self._retained: dict[str, list[tuple[bytes, bool]]] = {}
        self._wills: dict[bytes, _Will] = {}
        # Everything a broker was told before this is kept, if it keeps its log in order.
        self._proved = 0

    def _tick(self) -> int:
        self._now += 1
        return self._now

    def _break(self, violation: Violation) -> None:
        self.violations.append(violation)

    # --- sessions -----------------------------------------------------------------------------

    def on_connecting(self, client: str, *, clean: bool) -> SessionState:
        """CONNECT leaves; returns what was known before, for `on_connected`.

        The session begins, or by a clean start ends, with the CONNECT that the broker reads, and
        until it answers nobody can know whether it did.
        """
        before = self._sessions.get(client, SessionState.ABSENT)
        if clean or before is SessionState.ABSENT:
            self._sessions[client] = SessionState.UNKNOWN
        return before

    def on_connected(
        self, client: str, *, before: SessionState, clean: bool, keeps: bool, present: bool
    ) -> None:
        """CONNACK came. `before` is what `on_connecting` said."""
        self.checked[Property.SESSION_PRESENT] += 1
        if present and (clean or before is SessionState.ABSENT):
            why = "a clean start" if clean else "a client id that has none"
            self._break(
                Violation(Property.SESSION_PRESENT, f"session present 1 after {why}", client)
            )
        if not present and not clean and before is SessionState.PRESENT:
            self._break(
                Violation(
                    Property.SESSION_PRESENT,
                    "session present 0: a session that was acknowledged is gone",
                    client,
                )
            )
        self._sessions[client] = SessionState.PRESENT if keeps else SessionState.UNKNOWN
        subscriber = self._subscribers.setdefault(client, _Subscriber())
        subscriber.on_connection.clear()
        if clean:
            now = self._tick()
            for span in (one for spans in subscriber.spans.values() for one in spans):
                span.unsubscribing = min(span.unsubscribing, now)
                span.unsubscribed = min(span.unsubscribed, now)

    def on_session_ended(self, client: str) -> None:
        """A session that was not to be kept is over, and the broker has confirmed it."""
        self._sessions[client] = SessionState.ABSENT

    # --- subscriptions ------------------------------------------------------------------------

    def on_subscribing(self, client: str, topic_filter: str, qos: int) -> None:
        """SUBSCRIBE leaves."""
        subscriber = self._subscribers.setdefault(client, _Subscriber())
        if topic_filter not in subscriber.spans:
            subscriber.filters_of.clear()
        subscriber.spans.setdefault(topic_filter, []).append(Span(qos, self._tick()))

    def on_subscribed(self, client: str, topic_filter: str, code: int) -> None:
        """SUBACK came; a refused filter ends the span."""
        span = self._subscribers[client].spans[topic_filter][-1]
        if code >= 0x80:
            span.unsubscribed = span.unsubscribing = self._tick()
        else:
            span.qos = code
            span.subscribed = self._tick()

    def on_unsubscribing(self, client: str, topic_filter: str) -> None:
        """UNSUBSCRIBE leaves; every earlier span ends with it."""
        now = self._tick()
        for span in self._subscribers[client].spans.get(topic_filter, ()):
            span.unsubscribing = min(span.unsubscribing, now)

    def on_unsubscribed(self, client: str, topic_filter: str) -> None:
        """UNSUBACK came."""
        now = self._tick()
        for span in self._subscribers[client].spans.get(topic_filter, ()):
            if span.unsubscribing != _NEVER:
                span.unsubscribed = min(span.unsubscribed, now)

    # --- publishes ----------------------------------------------------------------------------

    def next_sequence(self, publisher: str) -> int:
        """Number the next publish of a publisher; from 1."""
        self._next[publisher] += 1
        return self._next[publisher]

    def on_sending(
        self, publisher: str, sequence: int, topic: str, qos: int, *, is_canary: bool = False
    ) -> None:
        """PUBLISH leaves, for the first time or again."""
        known = self._sent.get((publisher, sequence))
        if known is not None:
            known.times_sent += 1
            return
        sent = Sent(publisher, sequence, topic, qos, self._tick(), is_canary)
        self._sent[publisher, sequence] = sent

    def on_acknowledged(self, publisher: str, sequence: int, at_s: float) -> None:
        """PUBACK or PUBREC came and said success."""
        sent = self._sent.get((publisher, sequence))
        if sent is not None and sent.acknowledged == _NEVER:
            sent.acknowledged = self._tick()
            sent.acknowledged_s = at_s
            self.acknowledged_total += 1
            self._proved = max(self._proved, sent.first_sent)

    def on_completed(self, publisher: str, sequence: int) -> None:
        """PUBACK or PUBCOMP came: until then QoS 2 may not even have been routed [4.3.3]."""
        sent = self._sent.get((publisher, sequence))
        if sent is not None and sent.completed == _NEVER:
            sent.completed = self._tick()

    # --- deliveries ---------------------------------------------------------------------------

    def on_delivered(self, client: str, topic: str, payload: bytes, qos: int, *, dup: bool) -> None:
        """A message was handed over; repeats of one QoS 2 exchange never come this far."""
        self._tick()
        self.delivered_total += 1
        self.checked[Property.INVENTED] += 1
        self.checked[Property.ONCE] += 1
        read = read_payload(payload)
        if read is None or read[3] != topic or not 0 < read[1] <= self._next[read[0]]:
            self._break(
                Violation(
                    Property.INVENTED,
                    f"a message nobody published: {payload[:60]!r}",
                    client,
                    topic,
                )
            )
            return
        publisher, sequence, published_qos, _ = read
        subscriber = self._subscribers.setdefault(client, _Subscriber())
        if self._is_repeat(subscriber, publisher, sequence):
            self._judge_repeat(client, subscriber, read, qos, dup=dup)
        else:
            self._judge_order(client, subscriber, read)
            self._judge_right(client, subscriber, (publisher, sequence))
            if qos > published_qos:
                self._break(
                    Violation(
                        Property.INVENTED,
                        f"published at QoS {published_qos}, delivered at QoS {qos}",
                        client,
                        topic,
                        f"{publisher}:{sequence}",
                    )
                )
        subscriber.on_connection.add((publisher, sequence))

    @staticmethod
    def _is_repeat(subscriber: _Subscriber, publisher: str, sequence: int) -> bool:
        seen = subscriber.seen.setdefault(publisher, bytearray())
        if len(seen) <= sequence:
            seen.extend(bytes(sequence + 1024 - len(seen)))
        before = seen[sequence]
        seen[sequence] = _DELIVERED
        return before == _DELIVERED

    def _judge_repeat(
        self,
        client: str,
        subscriber: _Subscriber,
        read: tuple[str, int, int, str],
        qos: int,
        *,
        dup: bool,
    ) -> None:
        """QoS 2 never repeats; QoS 1 may, when publisher or broker had a reason to send again."""
        publisher, sequence, _, topic = read
        self.repeated_total += 1
        sent = self._sent.get((publisher, sequence))
        sent_once = sent is not None and sent.times_sent == 1
        here = (publisher, sequence) in subscriber.on_connection
        if qos == 2 or (sent_once and here and not dup):
            why = "QoS 2 twice" if qos == 2 else "QoS 1 twice on one connection, sent once"
            self._break(
                Violation(
                    Property.ONCE,
                    why,
                    client,
                    topic,
                    f"{publisher}:{sequence}",
                    None if sent is None else sent.acknowledged_s,
                )
            )

    def _judge_order(
        self, client: str, subscriber: _Subscriber, read: tuple[str, int, int, str]
    ) -> None:
        publisher, sequence, qos, topic = read
        key = (publisher, topic, qos)
        last = subscriber.last.get(key, 0)
        self.checked[Property.ORDER] += 1
        if sequence < last:
            self._break(
                Violation(
                    Property.ORDER,
                    f"came after {publisher}:{last}",
                    client,
                    topic,
                    f"{publisher}:{sequence}",
                )
            )
        else:
            subscriber.last[key] = sequence

    def _judge_right(self, client: str, subscriber: _Subscriber, name: tuple[str, int]) -> None:
        """A filter that was taken away before the message existed must not bring it."""
        sent = self._sent.get(name)
        spans = [] if sent is None else subscriber.spans_for(sent.topic)
        if sent is None or not spans:
            return
        self.checked[Property.UNSUBSCRIPTIONS] += 1
        if all(span.unsubscribed < sent.first_sent for span in spans):
            self._break(
                Violation(
                    Property.UNSUBSCRIPTIONS,
                    "delivered although UNSUBACK came before it was published",
                    client,
                    sent.topic,
                    sent.name,
                    sent.acknowledged_s,
                )
            )

    # --- retained -----------------------------------------------------------------------------

    def on_retaining(self, topic: str, payload: bytes) -> None:
        """A retained publish leaves, an empty one to clear; one at a time per topic."""
        history = self._retained.setdefault(topic, [(b"", True)])
        history.append((payload, False))

    def on_retained(self, topic: str, payload: bytes) -> None:
        """It was acknowledged; everything older can no longer be what is kept."""
        history = self._retained[topic]
        at = max(n for n, (value, _) in enumerate(history) if value == payload)
        self._retained[topic] = [(payload, True), *history[at + 1 :]]

    def retained_faults(self, found: dict[str, bytes]) -> list[Violation]:
        """Compare what a new subscriber was given with what may be kept; judges nothing yet."""
        faults = []
        for topic, history in self._retained.items():
            allowed = [value for value, _ in history]
            value = found.get(topic, b"")
            if value not in allowed:
                want = " or ".join(repr(one[:40]) if one else "nothing" for one in allowed)
                have = repr(value[:40]) if value else "nothing"
                faults.append(
                    Violation(
                        Property.RETAINED, f"{have} is kept, {want} is due", "retained", topic
                    )
                )
        faults += [
            Violation(Property.RETAINED, f"{value[:40]!r} was never retained", "retained", topic)
            for topic, value in found.items()
            if topic not in self._retained
        ]
        return faults

    def judge_retained(self, found: dict[str, bytes]) -> None:
        """Judge what a new subscriber was given, once it can be assumed complete."""
        self.checked[Property.RETAINED] += len(self._retained)
        faults = self.retained_faults(found)
        self.violations += faults
        for fault in faults:  # told once; from here on it is what is kept
            history = self._retained.get(fault.topic, [])
            unanswered = [one for one in history[1:] if not one[1]]
            self._retained[fault.topic] = [(found.get(fault.topic, b""), True), *unanswered]

    # --- wills --------------------------------------------------------------------------------

    def on_will_accepted(
        self, client: str, topic: str, payload: bytes, *, is_delayed: bool
    ) -> None:
        """A CONNECT with a will was answered; the payload is unique."""
        self._wills[payload] = _Will(client, topic, is_delayed)

    def on_will_due(self, payload: bytes) -> None:
        """Its connection is gone without a goodbye, and its delay is one that we shall see end."""
        if payload in self._wills:
            self._wills[payload].is_due = True

    def on_will_withdrawn(self, payload: bytes) -> None:
        """The broker acknowledged a return before the delay was over."""
        if payload in self._wills:
            self._wills[payload].is_due = False

    def on_goodbye(self, payload: bytes) -> None:
        """The broker closed after a DISCONNECT, which has no other answer: no will is due."""
        if payload in self._wills:
            self._wills[payload].is_due = False
            self._wills[payload].goodbye = self._tick()

    def on_crashed(self) -> None:
        """The broker ended without being asked to; what it was told last may be gone.

        A goodbye that nothing acknowledged came after may be gone with it: then the connection
        counts as lost and the will is due again. What was published before is judged all the same.
        """
        doubtful = [
            key
            for key, will in self._wills.items()
            if will.goodbye is not None and will.goodbye > self._proved and not will.count
        ]
        for key in doubtful:
            del self._wills[key]

    def on_will_published(self, payload: bytes) -> None:
        """The listener got one."""
        self._tick()
        will = self._wills.get(payload)
        if will is None:
            if not payload.startswith(b"will:"):
                self._break(
                    Violation(Property.INVENTED, f"a will nobody left: {payload[:60]!r}", "wills")
                )
            return
        will.count += 1

    def missing_wills(self) -> list[bytes]:
        """Name the wills that are due and have not come."""
        return [key for key, will in self._wills.items() if will.is_due and not will.count]

    def _judge_wills(self) -> None:
        for payload, will in self._wills.items():
            if will.is_told or (will.is_due is None and not will.count):
                continue
            self.checked[Property.WILLS] += not will.is_counted
            will.is_counted = True
            name = payload.decode(errors="replace")
            if will.is_due and not will.count:
                what = "the connection was lost and the will never came"
            elif will.is_due is False and will.count:
                what = "published although it had been withdrawn"
            elif will.is_due is None and will.is_delayed and will.count:
                what = "published long before its delay was over"
            else:
                # A withdrawn will stays in the account: it may still come, and must not.
                will.is_told = will.is_due is not False and will.count > 0
                continue
            will.is_told = True
            self._break(Violation(Property.WILLS, what, will.client, will.topic, name))
        settled = [key for key, will in self._wills.items() if will.is_told]
        for key in settled:
            del self._wills[key]

    # --- the verdict --------------------------------------------------------------------------

    def missing(self) -> list[tuple[str, Sent]]:
        """Name every acknowledged publish that a subscriber is owed and has not got."""
        owed = [one for one in self._sent.values() if one.acknowledged != _NEVER]
        found: list[tuple[str, Sent]] = []
        for client, subscriber in self._subscribers.items():
            if not subscriber.spans:
                continue
            found += [
                (client, sent)
                for sent in owed
                if self._is_owed(subscriber, sent) and not self._has(subscriber, sent)
            ]
        return found

    @staticmethod
    def _is_owed(subscriber: _Subscriber, sent: Sent) -> bool:
        return any(
            span.subscribed < sent.first_sent and span.unsubscribing >= sent.completed
            for span in subscriber.spans_for(sent.topic)
        )

    @staticmethod
    def _has(subscriber: _Subscriber, sent: Sent) -> bool:
        seen = subscriber.seen.get(sent.publisher, b"")
        return sent.sequence < len(seen) and seen[sent.sequence] == _DELIVERED

    def report_unresponsive(self, client: str, what: str) -> None:
        """Somebody waited for an answer that had to come and did not."""
        self._break(Violation(Property.RECOVERY, what, client))

    def close_round(self) -> list[Violation]:
        """Judge what was to come by now; returns what this round added and forgets the settled."""
        before = len(self.violations)
        self.checked[Property.RECOVERY] += 1
        lost = self.missing()
        self._count_owed()
        for client, sent in lost:
            prop = Property.SUBSCRIPTIONS if sent.is_canary else Property.DELIVERED
            what = (
                "the filter brings nothing any more" if sent.is_canary else f"QoS {sent.qos} lost"
            )
            self._break(Violation(prop, what, client, sent.topic, sent.name, sent.acknowledged_s))
        self._judge_wills()
        self._forget()
        return self.violations[before:]

    def _count_owed(self) -> None:
        for subscriber in self._subscribers.values():
            for sent in self._sent.values():
                if sent.acknowledged != _NEVER and self._is_owed(subscriber, sent):
                    prop = Property.SUBSCRIPTIONS if sent.is_canary else Property.DELIVERED
                    self.checked[prop] += 1

    def _forget(self) -> None:
        """Let go of what was judged; publishes without an answer stay, they may still come."""
        settled = [sent for sent in self._sent.values() if sent.acknowledged != _NEVER]
        if self.account is not None:
            self.account += settled
        self._sent = {key: sent for key, sent in self._sent.items() if sent.acknowledged == _NEVER}
        for subscriber in self._subscribers.values():
            for topic_filter, spans in subscriber.spans.items():
                subscriber.spans[topic_filter] = [
                    span for span in spans if span.unsubscribed == _NEVER
                ] or spans[-1:]


def by_property(violations: Iterable[Violation]) -> dict[Property, list[Violation]]:
    """Sort findings under the properties they break, in the order of the table."""
    sorted_: dict[Property, list[Violation]] = {one: [] for one in Property}
    for violation in violations:
        sorted_[violation.property].append(violation)
    return sorted_
