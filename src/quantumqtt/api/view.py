"""What the admin endpoint may know of a broker, and its statistics as a JSON document."""

from collections.abc import Callable, Mapping, Sequence
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

    @property
    def storage_findings(self) -> Sequence[str]:
        """What is suspicious about the disk below the log."""

    def statistics(self) -> Statistics:
        """Take a snapshot of the counters; TransportError when it is not running."""

    def digest(self) -> tuple[int, str]:
        """Take the index and the digest of the state; blocks, TransportError when not running."""

    def session(self, client_id: str) -> dict[str, object] | None:
        """Take a copy of a stored session; blocks, TransportError when not running."""

    def message_log(self) -> MessageLogView | None:
        """Give the message log, if there is one; TransportError when it is not running."""


class JobView(Protocol):
    """What a job beside the broker has last said."""

    @property
    def name(self) -> str:
        """Which job."""

    @property
    def state(self) -> str:
        """What it does: starting, working, pausing before the next try, or stopped."""

    @property
    def lag(self) -> int | None:
        """Committed rows that it had not done; None before it has said anything."""

    @property
    def rows_per_s(self) -> float:
        """Of its latest batch."""

    @property
    def batch_s(self) -> float:
        """How long its latest batch took."""

    @property
    def rows_total(self) -> int:
        """Rows it has done."""

    @property
    def batches_total(self) -> int:
        """Batches it has done."""

    @property
    def restarts_total(self) -> int:
        """How often it has died."""

    @property
    def why(self) -> str | None:
        """Why it died last."""


Jobs = Callable[[], Sequence[JobView]]


def no_jobs() -> Sequence[JobView]:
    """There are none: what `quantumqtt serve` runs."""
    return ()


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


def statistics_document(broker: BrokerView, facts: NodeFacts, jobs: Jobs = no_jobs) -> Json:
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
        "jobs": {job.name: _job(job) for job in jobs()},
    }


def _job(job: JobView) -> Json:
    return {
        "state": job.state,
        "lag": job.lag,
        "rows_per_s": job.rows_per_s,
        "batch_s": job.batch_s,
        "rows_total": job.rows_total,
        "batches_total": job.batches_total,
        "restarts_total": job.restarts_total,
        "why": job.why,
    }


def _counters(statistics: Statistics) -> Json:
    return {
        "uptime_ms": statistics.uptime_ms,
        "shards": statistics.shards,
        "connections": statistics.connections,
        "connections_total": statistics.connections_total,
        "connections_refused_full_total": statistics.connections_refused_full_total,
        "sessions_stored": statistics.sessions_stored,
        "sessions_expired_total": statistics.sessions_expired_total,
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
        "disk_level": log.disk_level,
        "disk_used_bytes": log.disk_used_bytes,
        "disk_capacity_bytes": log.disk_capacity_bytes,
        "scrub_bytes_total": log.scrub_bytes_total,
        "scrub_passes_total": log.scrub_passes_total,
        "scrub_findings_total": log.scrub_findings_total,
        "scrub_coverage_age_seconds": log.scrub_coverage_age_ms / 1000,
        "scrub_damage": log.scrub_damage,
    }
