"""A node without threads and sockets: it does what it is told and remembers what it was asked.

Honest in two ways. It satisfies `NativeNode`, which mypy checks at `_seam_fits`; and its event
queue rings a real eventfd by the rule of the real one (readable while events wait), so the pump
under test is the pump in use.
"""

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from quantumqtt._core import RuleTable, TlsContext
from quantumqtt.errors import InternalError, QuantuMQTTError
from quantumqtt.node.native import LogStatistics, NativeNode, NodePlan

PORT_FIRST = 40_001


@dataclass(frozen=True, slots=True)
class FakeListener:
    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class FakeEvent:
    kind: str
    at_ms: int = 1_700_000_000_000
    tenant: str = "default"
    client_id: str | None = None
    connection: int | None = None
    peer: str | None = None
    listener: str | None = None
    protocol: str | None = None
    ticket: int | None = None
    user_name: str | None = None
    password: bytes | None = None
    auth_method: str | None = None
    auth_data: bytes | None = None
    session_epoch: int | None = None
    reason: str | None = None
    topic: str | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class FakeStatistics:
    uptime_ms: int = 0
    connections: int = 0
    connections_total: int = 0
    connections_refused_full_total: int = 0
    sessions_stored: int = 0
    sessions_attached: int = 0
    sessions_expired_total: int = 0
    retained: int = 0
    retained_bytes: int = 0
    queued: int = 0
    queued_bytes: int = 0
    dedupe_keys: int = 0
    publishes_deduplicated_total: int = 0
    dedupe_keys_pressed_out_total: int = 0
    subscriptions: int = 0
    publishes_received_total: tuple[int, int, int] = (0, 0, 0)
    publishes_sent_total: tuple[int, int, int] = (0, 0, 0)
    bytes_received_total: int = 0
    bytes_sent_total: int = 0
    tls_handshakes_total: int = 0
    tls_resumptions_total: int = 0
    entries_applied_total: int = 0
    commands_applied_total: int = 0
    drops_total: Mapping[str, int] = field(default_factory=dict)
    closes_total: Mapping[str, int] = field(default_factory=dict)
    refusals_total: Mapping[str, int] = field(default_factory=dict)
    denials_total: Mapping[str, int] = field(default_factory=dict)
    events_merged_total: int = 0
    shards: int = 1
    log: LogStatistics | None = None


class FakeNode:
    """Plays the native node; `open` is what a broker takes as `open_node`.

    Like the real one it answers only while it runs, and its descriptor dies with it.
    """

    def __init__(self, *, start_error: QuantuMQTTError | None = None) -> None:
        self.plan: NodePlan | None = None
        self.calls: list[str] = []
        self.answers: list[tuple[int, int]] = []
        self.remembered: list[int] = []
        self.auth_answers: list[tuple[int, int, bytes | None, str]] = []
        self.said: list[tuple[str, bytes, bool]] = []
        self.policies: list[tuple[RuleTable | None, list[str]]] = []
        self.contexts: dict[int, TlsContext] = {}
        self.drains_in_time = True
        self.drain_deadlines: list[int] = []
        self.drain_begun = threading.Event()
        self.clients_left = threading.Event()
        self.clients_left.set()
        self.snapshot = FakeStatistics()
        self._start_error = start_error
        self.tells_sessions = True
        self._events: list[FakeEvent] = []
        self._descriptor: int | None = None

    def open(self, plan: NodePlan) -> "FakeNode":
        self.plan = plan
        return self

    def emit(self, *events: FakeEvent) -> None:
        """Let something happen: queue it, ring once if the queue was empty."""
        if events and not self._events:
            os.eventfd_write(self.event_fd(), 1)
        self._events.extend(events)

    def start(self) -> Sequence[FakeListener]:
        self.calls.append("start")
        if self._start_error is not None:
            raise self._start_error
        assert self.plan is not None
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        return [
            FakeListener(listener.name, listener.host, listener.port or PORT_FIRST + number)
            for number, listener in enumerate(self.plan.listeners)
        ]

    def event_fd(self) -> int:
        if self._descriptor is None:
            raise InternalError("the node does not run")
        return self._descriptor

    def poll_events(self, count_max: int = 1024) -> Sequence[FakeEvent]:
        descriptor = self.event_fd()
        taken, self._events = self._events[:count_max], self._events[count_max:]
        if taken and not self._events:
            os.eventfd_read(descriptor)
        return taken

    def digest(self) -> tuple[int, str]:
        return 7, "0" * 32

    def session(self, client_id: str) -> dict[str, object] | None:
        return {"client_id": client_id} if client_id == "stored" else None

    def tell_sessions(self, *, always: bool) -> None:
        self.event_fd()
        self.tells_sessions = always

    def answer_admissions(
        self, verdicts: Sequence[tuple[int, int]], *, may_be_remembered: bool = False
    ) -> None:
        self.event_fd()
        self.answers.extend(verdicts)
        if may_be_remembered:
            self.remembered.extend(ticket for ticket, code in verdicts if code == 0)

    def answer_authentications(self, answers: Sequence[tuple[int, int, bytes | None, str]]) -> None:
        self.auth_answers.extend(answers)

    def say(self, messages: Sequence[tuple[str, bytes, bool]]) -> None:
        self.said.extend(messages)

    def set_policy(self, rules: RuleTable | None, *, revoked_users: Sequence[str]) -> None:
        self.event_fd()
        self.policies.append((rules, list(revoked_users)))

    def set_tls(self, listener: int, context: TlsContext) -> None:
        self.event_fd()
        self.contexts[listener] = context

    def statistics(self) -> FakeStatistics:
        self.event_fd()
        return self.snapshot

    def message_log(self, partition: int = 0) -> None:
        self.event_fd()

    def drain(self, deadline_ms: int) -> bool:
        self.event_fd()
        self.calls.append("drain")
        self.drain_deadlines.append(deadline_ms)
        self.drain_begun.set()
        self.clients_left.wait(deadline_ms / 1000)
        return self.drains_in_time

    def stop(self) -> None:
        self.calls.append("stop")
        # A stop ends a drain early.
        self.clients_left.set()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _seam_fits(node: FakeNode) -> NativeNode:
    return node
