"""What the admin endpoint may know of a broker, and its statistics as a JSON document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from quantumqtt.errors import TransportError
from quantumqtt.node import Listener, LogStatistics, NodeState, Statistics
from quantumqtt.policy import Access

Json = Mapping[str, object]


class MessageLogView(Protocol):
    """The face of a partition's message log for figures."""

    def statistics(self) -> Mapping[str, int]:
        """Count chunks, bytes and records."""


class BrokerView(Protocol):
    """The face of a broker that is read from the admin thread."""

    @property
    def state(self) -> NodeState:
        """Where in its life the broker is."""

    @property
    def failure(self) -> str | None:
        """What went wrong, if something did."""

    @property
    def listeners(self) -> Sequence[Listener]:
        """Where it listens."""

    @property
    def access(self) -> Access:
        """Users and rules in force."""

    def statistics(self) -> Statistics:
        """Take a snapshot of the counters; TransportError when it is not running."""

    def message_log(self) -> MessageLogView | None:
        """Give the message log, if there is one; TransportError when it is not running."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What does not change while a node runs."""

    version: str
    durability: str
    build: Mapping[str, str]


def snapshot(broker: BrokerView) -> Statistics | None:
    """Take a snapshot, or None when the broker is not running."""
    try:
        return broker.statistics()
    except TransportError:
        return None


def message_log_figures(broker: BrokerView) -> Mapping[str, int] | None:
    """Count what is in the message log; None without one, or when the broker is not running."""
    try:
        log = broker.message_log()
    except TransportError:
        return None
    return None if log is None else log.statistics()


def statistics_document(broker: BrokerView, facts: NodeFacts) -> Json:
    """Write down the node and its counters; `statistics` is null when it is not running."""
    statistics = snapshot(broker)
    return {
        "version": facts.version,
        "state": str(broker.state),
        "failure": broker.failure,
        "durability": facts.durability,
        "listeners": [
            {
                "name": listener.name,
                "url": listener.url,
                "allow_anonymous": listener.allow_anonymous,
            }
            for listener in broker.listeners
        ],
        "statistics": None if statistics is None else _counters(statistics),
    }


def _counters(statistics: Statistics) -> Json:
    return {
        "uptime_ms": statistics.uptime_ms,
        "shards": statistics.shards,
        "connections": statistics.connections,
        "connections_total": statistics.connections_total,
        "connections_refused_full_total": statistics.connections_refused_full_total,
        "sessions_stored": statistics.sessions_stored,
        "subscriptions": statistics.subscriptions,
        "publishes_received_total": list(statistics.publishes_received_total),
        "publishes_sent_total": list(statistics.publishes_sent_total),
        "bytes_received_total": statistics.bytes_received_total,
        "bytes_sent_total": statistics.bytes_sent_total,
        "tls_handshakes_total": statistics.tls_handshakes_total,
        "tls_resumptions_total": statistics.tls_resumptions_total,
        "entries_applied_total": statistics.entries_applied_total,
        "commands_applied_total": statistics.commands_applied_total,
        "events_merged_total": statistics.events_merged_total,
        "drops_total": dict(statistics.drops_total),
        "closes_total": dict(statistics.closes_total),
        "refusals_total": dict(statistics.refusals_total),
        "denials_total": dict(statistics.denials_total),
        "log": None if statistics.log is None else _log(statistics.log),
    }


def _log(log: LogStatistics) -> Json:
    return {
        "state": log.state,
        "reason": log.reason,
        "pending_bytes": log.pending_bytes,
        "written_bytes_total": log.written_bytes_total,
        "syncs_total": log.syncs_total,
        "sync_seconds_total": log.sync_ns_total / 1e9,
        "segments": log.segments,
        "applied_index": log.applied_index,
        "checkpoint_index": log.checkpoint_index,
        "checkpoints_total": log.checkpoints_total,
        "checkpoint_failures_total": log.checkpoint_failures_total,
        "checkpoint_error": log.checkpoint_error,
    }
