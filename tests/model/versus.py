"""The native machine and the model side by side: told the same, they must do the same.

What is compared after each command, and how strictly: the standards order what one connection
receives of a kind, and the log orders records. Nothing orders one connection against another, nor
PUBLISH against PUBREL, so those are compared separately. On top of that, three promises of this
broker: CONNACK is the first thing a connection is sent (X-12), SUBACK stands before the retained
messages it causes, and a publisher's answer stands behind the record it answers for (X-14).

Determinism is compared as well: a second machine gets the same commands in larger entries, and must
have the same digest wherever an entry of it ends.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from quantumqtt.simulation import Crank, encode_entry
from quantumqtt.simulation.commands import Command, Limits, Origin, Publish, Subscribe
from quantumqtt.simulation.effects import (
    Acknowledge,
    Append,
    Deliver,
    Effect,
    SessionEnded,
    SessionOpened,
    Subscribed,
)
from tests.model.broker import Broker, is_guest
from tests.model.session import Session

CHUNK_BYTES: Final = 256
"""The smallest there is: a checkpoint takes many commands, and items are cut."""

Stream: TypeAlias = tuple[str, Origin | str | None]


class Difference(AssertionError):
    """Machine and model do not agree."""


class Versus:
    """One machine, its twin, and the model."""

    def __init__(self, limits: Limits, *, batch_count: int = 7) -> None:
        """Begin with nothing; the twin's entries hold up to `batch_count` commands."""
        self.crank = Crank(limits)
        self.model = Broker(limits)
        self._twin = Crank(limits)
        self._batch_count = batch_count
        self._batch: list[Command] = []
        self._batch_now_ms = 0
        self._chunks: list[bytes] | None = None
        self._digest_at_beginning = ""

    def tell(self, command: Command, *, now_ms: int) -> list[Effect]:
        """Have both do one thing and compare; returns what the machine did.

        Raises:
            Difference: They did not do the same, or an invariant is broken.
        """
        self._feed_twin(command, now_ms)
        found = self.crank.apply(encode_entry([command], now_ms=now_ms))
        expected = self.model.apply(command, now_ms=now_ms)
        _compare("effects", _streams(found), _streams(expected))
        _check_order(command, found)
        _compare("broken invariant", self.crank.broken_invariant(), None)
        _compare("statistics", self.crank.statistics(), _statistics(self.model))
        due = self.model.deadlines()
        _compare("next deadline", self.crank.next_deadline_ms(), due[0].at_ms if due else None)
        if len(self._batch) >= self._batch_count:
            self._turn_twin()
        self._go_on_checkpointing()
        return found

    def check_states(self) -> None:
        """Compare every session and every retained message, and the twin's digest.

        Raises:
            Difference: They are not the same.
        """
        self._turn_twin()
        stored = sorted(one for one in self.model.sessions if not is_guest(one))
        _compare("client ids", list(self.crank.client_ids()), stored)
        for client_id, session in self.model.sessions.items():
            self.check_session(client_id)
            _compare("packet ids in use", len(_ids(session)), len(set(_ids(session))))
        for pattern in ("#", "$SYS/#"):
            offsets = [message.offset for message in self.model.retained_matching(pattern)]
            found = list(self.crank.retained_offsets(pattern, now_ms=self.model.now_ms))
            _compare("retained messages", found, offsets)

    def check_session(self, client_id: str) -> None:
        """Compare one session.

        Raises:
            Difference: It is not the same.
        """
        view = self.crank.session(client_id)
        session = self.model.sessions.get(client_id)
        if view is None or session is None:
            _compare("session", view, session)
            return
        for what, found, expected in (
            ("client id", view.client_id, session.client_id),
            ("identity", view.identity, session.identity),
            ("incarnation", view.incarnation, session.incarnation),
            ("epoch", view.session_epoch, session.epoch),
            ("origin", view.origin, session.connection and session.connection.origin),
            ("expiry", view.expiry_s, session.expiry_s),
            ("end", view.expires_at_ms, session.expires_at_ms),
            ("will", view.has_will, session.will is not None),
            ("will's time", view.will_due_ms, session.will_due_ms),
            ("received ids", view.received, tuple(sorted(session.received))),
            ("replays", view.replays, tuple(replay.filter for replay in session.replays)),
            ("waiting", view.waiting, tuple(d.message.offset for d in session.waiting)),
            (
                "released",
                [packet_id for packet_id, stage in view.in_flight if stage == "released"],
                session.released,
            ),
            (
                "published",
                [(packet_id, stage) for packet_id, stage in view.in_flight if stage != "released"],
                [(e.packet_id, "sent" if e.is_sent else "unsent") for e in session.published],
            ),
            (
                "subscriptions",
                view.subscriptions,
                tuple(session.subscriptions[text] for text in sorted(session.subscriptions)),
            ),
        ):
            _compare(f"{client_id}: {what}", found, expected)

    def _go_on_checkpointing(self) -> None:
        """Take one more chunk of a checkpoint that began some commands ago, or begin another."""
        if self._chunks is None:
            self._digest_at_beginning = self.crank.digest()
            self.crank.begin_checkpoint(self.model.next_offset)
            self._chunks = []
        chunk = self.crank.next_chunk(CHUNK_BYTES)
        if chunk is not None:
            self._chunks.append(chunk)
            return
        then, self._chunks = Crank.restore(self._chunks), None
        _compare("digest of a checkpoint", then.digest(), self._digest_at_beginning)
        self.crank = restart(self.crank)

    def _feed_twin(self, command: Command, now_ms: int) -> None:
        if self._batch and self._batch_now_ms != now_ms:
            self._turn_twin()
        self._batch.append(command)
        self._batch_now_ms = now_ms

    def _turn_twin(self) -> None:
        if not self._batch:
            return
        self._twin.apply(encode_entry(self._batch, now_ms=self._batch_now_ms))
        self._batch = []
        _compare("digest in larger entries", self._twin.digest(), self.crank.digest())


def restart(crank: Crank) -> Crank:
    """Store a machine and read it back."""
    crank.begin_checkpoint(0)
    chunks: list[bytes] = []
    while (chunk := crank.next_chunk(CHUNK_BYTES)) is not None:
        chunks.append(chunk)
    again = Crank.restore(chunks)
    _compare("digest after a restart", again.digest(), crank.digest())
    return again


def _compare(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Difference(f"{what}\n  machine: {found}\n  model:   {expected}")


def _streams(effects: Sequence[Effect]) -> dict[Stream, list[Effect]]:
    """Sort effects into what has an order of its own."""
    streams: dict[Stream, list[Effect]] = defaultdict(list)
    for effect in effects:
        match effect:
            case Append():
                streams["Append", None].append(effect)
            case SessionEnded():
                streams["SessionEnded", effect.client_id].append(effect)
            case Deliver(origin=origin, subscription_ids=numbers) if len(numbers) > 1:
                # The order of Subscription Identifiers is not significant [MQTT-3.3.4-4].
                effect = replace(effect, subscription_ids=tuple(sorted(numbers)))
                streams["Deliver", origin].append(effect)
            case _:
                streams[type(effect).__name__, effect.origin].append(effect)
    return dict(streams)


def _check_order(command: Command, effects: Sequence[Effect]) -> None:
    """Check what is promised across kinds."""
    kinds = [type(effect) for effect in effects]
    if SessionOpened in kinds:
        # Only the end of the session before it may precede a CONNACK, and what that end hands on
        # to other members of its share groups.
        at = kinds.index(SessionOpened)
        opened = effects[at]
        assert isinstance(opened, SessionOpened)
        before = [
            effect
            for effect in effects[:at]
            if not isinstance(effect, SessionEnded)
            and not (isinstance(effect, Deliver) and effect.origin != opened.origin)
        ]
        _compare("before CONNACK", before, [])
    if isinstance(command, Subscribe) and effects:
        _compare("first effect of SUBSCRIBE", kinds[0], Subscribed)
    if isinstance(command, Publish) and Acknowledge in kinds and Append in kinds:
        is_recorded = kinds.index(Append) < kinds.index(Acknowledge)
        _compare("a record stands before its answer", is_recorded, True)


def _statistics(model: Broker) -> dict[str, int]:
    sessions = model.sessions.values()
    return {
        "sessions": sum(not is_guest(session.client_id) for session in sessions),
        "sessions_attached": sum(session.connection is not None for session in sessions),
        "subscriptions": sum(len(session.subscriptions) for session in sessions),
        "share_groups": len(model.groups),
        "retained": len(model.retained),
        "retained_bytes": model.retained_bytes(),
        "queued": sum(len(session.waiting) for session in sessions),
        "queued_bytes": sum(session.waiting_bytes for session in sessions),
        "in_flight": sum(len(_ids(session)) for session in sessions),
        "deadlines": len(model.deadlines()),
        "next_offset": model.next_offset,
        "now_ms": model.now_ms,
    }


def _ids(session: Session) -> list[int]:
    return [exchange.packet_id for exchange in session.published] + session.released
