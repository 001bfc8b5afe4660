"""Prometheus metrics, read from a statistics snapshot at the moment of the scrape.

Nothing is counted in Python: the collector turns one frozen snapshot into metric families, so the
numbers of one scrape belong together and cost nothing between scrapes. Names are `quantumqtt_*` in
base units; every drop, close and refusal carries its `reason`.
"""

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from quantumqtt.api.view import (
    BrokerView,
    Jobs,
    JobView,
    NodeFacts,
    message_log_figures,
    no_jobs,
    snapshot,
)
from quantumqtt.node import LogStatistics, NodeState, Statistics


class BrokerCollector(Collector):
    """Yields the metric families of one broker."""

    def __init__(self, broker: BrokerView, facts: NodeFacts, jobs: Jobs = no_jobs) -> None:
        self._broker = broker
        self._facts = facts
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        """Take one snapshot and yield everything in it."""
        yield from self._facts_families()
        if jobs := self._jobs():
            yield from _job_families(jobs)
        statistics = snapshot(self._broker)
        if statistics is None:
            return
        yield from _gauges(statistics)
        yield from _counters(statistics)
        if statistics.log is not None:
            yield from _log_families(statistics.log)
        yield from _message_log_families(message_log_figures(self._broker))

    def describe(self) -> Iterator[Metric]:
        """Name no family before the first scrape: the broker may not run yet."""
        return iter(())

    def _facts_families(self) -> Iterator[Metric]:
        build = {"version": self._facts.version}
        build |= {f"native_{key}": value for key, value in self._facts.build.items()}
        yield InfoMetricFamily("quantumqtt_build", "How this node was built.", value=build)
        durability = GaugeMetricFamily(
            "quantumqtt_durability",
            "Durability level of the node, 1 for the one in force.",
            labels=["durability"],
        )
        durability.add_metric([self._facts.durability], 1)
        yield durability
        yield GaugeMetricFamily(
            "quantumqtt_ready",
            "Whether the node accepts clients.",
            value=float(self._broker.state is NodeState.READY),
        )


def metrics_registry(
    broker: BrokerView, facts: NodeFacts, jobs: Jobs = no_jobs
) -> CollectorRegistry:
    """Gather the broker's metrics and those of the process around it."""
    registry = CollectorRegistry()
    registry.register(BrokerCollector(broker, facts, jobs))
    ProcessCollector(registry=registry)
    return registry


def render_metrics(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Write the metrics in the format the scraper asks for; gives body and content type."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _gauges(statistics: Statistics) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "quantumqtt_uptime_seconds", "Time since the start.", value=statistics.uptime_ms / 1000
    )
    yield GaugeMetricFamily("quantumqtt_shards", "Shard threads.", value=statistics.shards)
    yield GaugeMetricFamily(
        "quantumqtt_connections", "Open connections.", value=statistics.connections
    )
    yield GaugeMetricFamily(
        "quantumqtt_sessions_stored",
        "Sessions held by the state machine, connected or not.",
        value=statistics.sessions_stored,
    )
    yield GaugeMetricFamily(
        "quantumqtt_dedupe_keys",
        "De-duplication keys of publishes that are remembered.",
        value=statistics.dedupe_keys,
    )
    yield GaugeMetricFamily(
        "quantumqtt_subscriptions",
        "Subscriptions of connected sessions.",
        value=statistics.subscriptions,
    )


def _counters(statistics: Statistics) -> Iterator[Metric]:
    plain = {
        "connections_opened": ("Connections accepted.", statistics.connections_total),
        "connections_refused_full": (
            "Connections closed at once because connections_max was reached.",
            statistics.connections_refused_full_total,
        ),
        "publishes_deduplicated": (
            "Publishes acknowledged only, because their key was known.",
            statistics.publishes_deduplicated_total,
        ),
        "dedupe_keys_pressed_out": (
            "Keys forgotten before their time because there were too many.",
            statistics.dedupe_keys_pressed_out_total,
        ),
        "network_received_bytes": ("Bytes read.", statistics.bytes_received_total),
        "network_sent_bytes": ("Bytes written.", statistics.bytes_sent_total),
        "tls_handshakes": (
            "TLS handshakes completed, resumptions included.",
            statistics.tls_handshakes_total,
        ),
        "tls_resumptions": (
            "TLS handshakes that resumed an older session.",
            statistics.tls_resumptions_total,
        ),
        "sessions_expired": (
            "Sessions whose client was away for longer than their expiry.",
            statistics.sessions_expired_total,
        ),
        "entries_applied": ("Log entries applied.", statistics.entries_applied_total),
        "commands_applied": ("Commands applied.", statistics.commands_applied_total),
        "events_merged": (
            "Events merged because Python was slow.",
            statistics.events_merged_total,
        ),
    }
    for name, (meaning, value) in plain.items():
        yield CounterMetricFamily(f"quantumqtt_{name}", meaning, value=value)
    yield _by_label(
        "publishes_received",
        "Publishes received from clients.",
        "qos",
        _by_qos(statistics.publishes_received_total),
    )
    yield _by_label(
        "publishes_sent",
        "Publishes sent to clients.",
        "qos",
        _by_qos(statistics.publishes_sent_total),
    )
    yield _by_label("drops", "Messages not delivered.", "reason", statistics.drops_total)
    yield _by_label("closes", "Connections closed.", "reason", statistics.closes_total)
    yield _by_label("refusals", "CONNECTs refused.", "reason", statistics.refusals_total)
    yield _by_label("denials", "Refused by access rules.", "kind", statistics.denials_total)


def _log_families(log: LogStatistics) -> Iterator[Metric]:
    state = GaugeMetricFamily(
        "quantumqtt_log_state", "State of the log, 1 for the one it is in.", labels=["state"]
    )
    for name in ("ok", "full", "failed"):
        state.add_metric([name], float(name == log.state))
    yield state
    level = GaugeMetricFamily(
        "quantumqtt_log_disk_level", "How full the disk is, 1 for what it is.", labels=["level"]
    )
    for name in ("roomy", "tight", "full"):
        level.add_metric([name], float(name == log.disk_level))
    yield level
    gauges = {
        "pending_bytes": ("Bytes proposed and not yet applied.", log.pending_bytes),
        "segments": ("Files of the log.", log.segments),
        "applied_index": ("The last entry in the state.", log.applied_index),
        "checkpoint_index": ("The last entry in the latest checkpoint.", log.checkpoint_index),
        "disk_used_bytes": ("Bytes the log has of its disk.", log.disk_used_bytes),
        "disk_capacity_bytes": ("Bytes it has and could have.", log.disk_capacity_bytes),
        "scrub_coverage_age_seconds": (
            "Since everything at rest was last read again.",
            log.scrub_coverage_age_ms / 1000,
        ),
    }
    for name, (meaning, gauge) in gauges.items():
        yield GaugeMetricFamily(f"quantumqtt_log_{name}", meaning, value=gauge)
    counters = {
        "written_bytes": ("Bytes written to the log.", float(log.written_bytes_total)),
        "syncs": ("Syncs of the disk.", float(log.syncs_total)),
        "sync_seconds": ("Time spent in syncs of the disk.", log.sync_ns_total / 1e9),
        "checkpoints": ("Checkpoints made.", float(log.checkpoints_total)),
        "checkpoint_failures": (
            "Attempts at a checkpoint that failed.",
            float(log.checkpoint_failures_total),
        ),
        "scrub_bytes": ("Bytes at rest that were read again.", float(log.scrub_bytes_total)),
        "scrub_passes": ("Times that everything at rest was.", float(log.scrub_passes_total)),
        "scrub_findings": ("Files found damaged.", float(log.scrub_findings_total)),
    }
    for name, (meaning, count) in counters.items():
        yield CounterMetricFamily(f"quantumqtt_log_{name}", meaning, value=count)


def _job_families(jobs: Sequence[JobView]) -> Iterator[Metric]:
    state = GaugeMetricFamily(
        "quantumqtt_pipeline_state",
        "State of a job beside the broker, 1 for the one it is in.",
        labels=["job", "state"],
    )
    for job in jobs:
        for name in ("starting", "working", "pausing", "stopped"):
            state.add_metric([job.name, name], float(name == job.state))
    yield state
    known = {job.name: float(job.lag) for job in jobs if job.lag is not None}
    gauges: dict[str, tuple[str, Mapping[str, float]]] = {
        "lag_rows": ("Committed rows that a job had not done after its latest batch.", known),
        "rows_per_second": (
            "Rows per second of a job's latest batch.",
            {job.name: job.rows_per_s for job in jobs},
        ),
        "batch_seconds": (
            "How long a job's latest batch took.",
            {job.name: job.batch_s for job in jobs},
        ),
    }
    for name, (meaning, values) in gauges.items():
        gauge = GaugeMetricFamily(f"quantumqtt_pipeline_{name}", meaning, labels=["job"])
        for of, value in values.items():
            gauge.add_metric([of], value)
        yield gauge
    counters = {
        "rows": ("Rows that a job has done.", {job.name: job.rows_total for job in jobs}),
        "batches": ("Batches that a job has done.", {job.name: job.batches_total for job in jobs}),
        "restarts": ("How often a job has died.", {job.name: job.restarts_total for job in jobs}),
    }
    for name, (meaning, counts) in counters.items():
        yield _by_label(f"pipeline_{name}", meaning, "job", counts)


def _message_log_families(figures: Mapping[str, int] | None) -> Iterator[Metric]:
    if figures is None:
        return
    gauges = {
        "earliest_offset": ("The first offset that can be read.", figures["earliest"]),
        "end_offset": ("The offset that comes next.", figures["end"]),
        "chunks": ("Files.", figures["chunk_count"]),
        "chunk_bytes": ("What the files take.", figures["chunk_bytes"]),
        "tail_bytes": ("Bytes in memory that are in no file yet.", figures["tail_bytes"]),
        "damaged_chunks": ("Files found damaged, left as they are.", figures["suspect_count"]),
    }
    for name, (meaning, gauge) in gauges.items():
        yield GaugeMetricFamily(f"quantumqtt_message_log_{name}", meaning, value=gauge)


def _by_qos(counts: tuple[int, int, int]) -> Mapping[str, int]:
    return {str(qos): count for qos, count in enumerate(counts)}


def _by_label(name: str, meaning: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"quantumqtt_{name}", meaning, labels=[label])
    for value, count in sorted(values.items()):
        family.add_metric([value], count)
    return family
