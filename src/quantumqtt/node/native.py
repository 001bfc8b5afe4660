"""The seam between Python and the native node.

The protocols say what this room needs of the native module and nothing more. The real `_core.Node`
satisfies them (mypy checks it where `open_native_node` returns) and so does the fake node of the
tests, which is how everything above this file is tested without threads and sockets.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from quantumqtt import _core
from quantumqtt.config import Limits, Settings

TENANT_DEFAULT: Final = "default"
NODE_ID_EMBEDDED: Final = 1
PARTITIONS_EMBEDDED: Final = 1
KEY_FILE: Final = "keys"
CHUNK_BYTES_DEFAULT: Final = 8 * 1024 * 1024

MessageLog = _core.MessageLog


class NativeListener(Protocol):
    """A listener after binding."""

    @property
    def name(self) -> str:
        """The name given in the plan."""

    @property
    def host(self) -> str:
        """The address it is bound to."""

    @property
    def port(self) -> int:
        """The real port."""


class NativeEvent(Protocol):
    """Something that happened in the native half; fields that do not apply are None."""

    @property
    def kind(self) -> str:
        """What happened."""

    @property
    def at_ms(self) -> int:
        """When, in Unix milliseconds."""

    @property
    def tenant(self) -> str:
        """Whose client."""

    @property
    def client_id(self) -> str | None:
        """Which client."""

    @property
    def connection(self) -> int | None:
        """Which connection."""

    @property
    def peer(self) -> str | None:
        """From where."""

    @property
    def listener(self) -> str | None:
        """By which door."""

    @property
    def protocol(self) -> str | None:
        """In which version of MQTT."""

    @property
    def ticket(self) -> int | None:
        """What an admission verdict is handed back with."""

    @property
    def user_name(self) -> str | None:
        """The user name of an admission request."""

    @property
    def password(self) -> bytes | None:
        """The password of an admission request; never logged."""

    @property
    def auth_method(self) -> str | None:
        """The method of an authentication step."""

    @property
    def auth_data(self) -> bytes | None:
        """What the client sent with it; never logged."""

    @property
    def session_epoch(self) -> int | None:
        """The epoch of the session."""

    @property
    def reason(self) -> str | None:
        """Why, in the words of the metric label."""

    @property
    def topic(self) -> str | None:
        """The topic or filter that rules refused."""

    @property
    def count(self) -> int:
        """How many occurrences this event stands for."""


class LogStatistics(Protocol):
    """What the log says of itself."""

    @property
    def state(self) -> str:
        """`ok`, `full` or `failed`."""

    @property
    def reason(self) -> str | None:
        """Why it is not `ok`."""

    @property
    def pending_bytes(self) -> int:
        """Bytes proposed and not yet applied."""

    @property
    def written_bytes_total(self) -> int:
        """Bytes written."""

    @property
    def syncs_total(self) -> int:
        """Syncs of the disk."""

    @property
    def sync_ns_total(self) -> int:
        """Time spent in them."""

    @property
    def segments(self) -> int:
        """Files of the log."""

    @property
    def applied_index(self) -> int:
        """The last entry in the state."""

    @property
    def checkpoint_index(self) -> int:
        """The last entry in the latest checkpoint."""

    @property
    def checkpoints_total(self) -> int:
        """Checkpoints made."""

    @property
    def checkpoint_failures_total(self) -> int:
        """Attempts at one that failed."""

    @property
    def checkpoint_error(self) -> str | None:
        """Why the latest attempt failed, if it did."""

    @property
    def disk_level(self) -> str:
        """`roomy`, `tight` or `full`."""

    @property
    def disk_used_bytes(self) -> int:
        """What the log has of its disk."""

    @property
    def disk_capacity_bytes(self) -> int:
        """What it has and could have."""

    @property
    def scrub_bytes_total(self) -> int:
        """Bytes at rest that were read again."""

    @property
    def scrub_passes_total(self) -> int:
        """Times that everything at rest was."""

    @property
    def scrub_findings_total(self) -> int:
        """Files that did not check out."""

    @property
    def scrub_coverage_age_ms(self) -> int:
        """Since the last time that everything was."""

    @property
    def scrub_damage(self) -> str | None:
        """What does not check out now."""


class Statistics(Protocol):
    """A frozen snapshot of the node's counters; the only thing exporters read."""

    @property
    def log(self) -> LogStatistics | None:
        """The log; None under durability `memory`."""

    @property
    def uptime_ms(self) -> int:
        """Time since the start."""

    @property
    def connections(self) -> int:
        """Open connections."""

    @property
    def connections_total(self) -> int:
        """Connections ever accepted."""

    @property
    def connections_refused_full_total(self) -> int:
        """Sockets closed right after accept because `connections_max` was reached."""

    @property
    def sessions_stored(self) -> int:
        """Sessions held by the state machine."""

    @property
    def sessions_attached(self) -> int:
        """Those whose client is connected."""

    @property
    def sessions_expired_total(self) -> int:
        """Sessions whose client was away for too long."""

    @property
    def retained(self) -> int:
        """Retained messages."""

    @property
    def retained_bytes(self) -> int:
        """Their bytes."""

    @property
    def queued(self) -> int:
        """Messages that wait for stored sessions."""

    @property
    def queued_bytes(self) -> int:
        """Their bytes."""

    @property
    def dedupe_keys(self) -> int:
        """De-duplication keys of publishes that are remembered."""

    @property
    def publishes_deduplicated_total(self) -> int:
        """Publishes that were acknowledged only, because their key was known."""

    @property
    def dedupe_keys_pressed_out_total(self) -> int:
        """Keys forgotten before their time because there were too many."""

    @property
    def subscriptions(self) -> int:
        """Subscriptions held."""

    @property
    def publishes_received_total(self) -> tuple[int, int, int]:
        """Publishes that came in, by QoS."""

    @property
    def publishes_sent_total(self) -> tuple[int, int, int]:
        """Publishes that went out, by QoS as delivered."""

    @property
    def bytes_received_total(self) -> int:
        """Bytes that came in."""

    @property
    def bytes_sent_total(self) -> int:
        """Bytes that went out."""

    @property
    def tls_handshakes_total(self) -> int:
        """TLS handshakes completed, resumptions included."""

    @property
    def tls_resumptions_total(self) -> int:
        """TLS handshakes that resumed an older session."""

    @property
    def entries_applied_total(self) -> int:
        """Log entries applied."""

    @property
    def commands_applied_total(self) -> int:
        """Commands applied."""

    @property
    def drops_total(self) -> Mapping[str, int]:
        """Messages not delivered, by reason."""

    @property
    def closes_total(self) -> Mapping[str, int]:
        """Connections closed, by reason."""

    @property
    def refusals_total(self) -> Mapping[str, int]:
        """CONNECTs refused, by reason."""

    @property
    def denials_total(self) -> Mapping[str, int]:
        """What access rules refused, by kind."""

    @property
    def events_merged_total(self) -> int:
        """Events merged because Python was slow."""

    @property
    def shards(self) -> int:
        """Shard threads."""


class NativeNode(Protocol):
    """One running broker node."""

    def start(self) -> Sequence[NativeListener]:
        """Bind, start the threads, accept."""

    def event_fd(self) -> int:
        """A descriptor that is readable while events wait."""

    def poll_events(self, count_max: int = ...) -> Sequence[NativeEvent]:
        """Take what happened, oldest first, without waiting."""

    def tell_sessions(self, *, always: bool) -> None:
        """Tell who comes and goes always, or only while a client subscribes to such news."""

    def answer_admissions(
        self, verdicts: Sequence[tuple[int, int]], *, may_be_remembered: bool = ...
    ) -> None:
        """Answer admission requests: ticket and CONNACK reason code."""

    def answer_authentications(self, answers: Sequence[tuple[int, int, bytes | None, str]]) -> None:
        """Answer authentication steps: ticket, reason code, data, user name."""

    def say(self, messages: Sequence[tuple[str, bytes, bool]]) -> None:
        """Publish what the broker says of itself: topic, payload, whether to keep it."""

    def set_policy(self, rules: _core.RuleTable | None, *, revoked_users: Sequence[str]) -> None:
        """Replace the rules, end clients of revoked users, forget remembered credentials."""

    def set_tls(self, listener: int, context: _core.TlsContext) -> None:
        """Show and demand something else at a listener, by position; connections stay."""

    def statistics(self) -> Statistics:
        """Take a snapshot of the counters."""

    def message_log(self, partition: int = ...) -> MessageLog | None:
        """Give what was committed in a partition to read; None under `memory`."""

    def digest(self) -> tuple[int, str]:
        """Take the last index in the state, and the digest of all of it."""

    def session(self, client_id: str) -> dict[str, object] | None:
        """Take a copy of a stored session."""

    def drain(self, deadline_ms: int) -> bool:
        """Stop accepting and let clients leave; blocks."""

    def stop(self) -> None:
        """End every thread and close every socket."""


@dataclass(frozen=True, slots=True)
class ListenerPlan:
    """One listener with its host resolved to an address; a Unix socket's host is its path."""

    name: str
    host: str
    port: int
    allow_anonymous: bool
    allow_passwords: bool = True
    scheme: str = "tcp"
    path: str = ""
    socket_mode: int | None = None
    tls: _core.TlsContext | None = None
    origins: tuple[str, ...] = ()
    proxy_protocol: str | None = None
    proxies: tuple[str, ...] = ()
    connections_max: int | None = None
    packet_bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class LogPlan:
    """Where and how the node keeps its log; without `group_delay_ms` it is `strict`."""

    directory: Path
    key_file: Path
    group_delay_ms: int | None
    segment_bytes: int
    checkpoint_interval_s: int
    checkpoint_log_bytes: int
    retention_age_s: int | None = None
    retention_bytes: int | None = None
    chunk_bytes: int = CHUNK_BYTES_DEFAULT
    scrub_bytes_per_s: int = 0
    scrub_interval_s: int = 21_600
    disk_bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What a node is started with: settings after everything open was decided."""

    listeners: tuple[ListenerPlan, ...]
    shards: int
    limits: Limits
    connections_max: int
    ask_admission: bool
    rules: _core.RuleTable | None = None
    disconnect_denied: bool = True
    client_id_is_user: bool = False
    auth_methods: tuple[str, ...] = ()
    tolerates_excess: bool = False
    log: LogPlan | None = None


OpenNode = Callable[[NodePlan], NativeNode]


def open_native_node(plan: NodePlan) -> NativeNode:
    """Make the native node of a plan; nothing runs before its `start`.

    Raises:
        ConfigError: The native half refuses a value.
    """
    listeners = [
        _core.ListenerSpec(
            name=listener.name,
            host=listener.host,
            port=listener.port,
            allow_anonymous=listener.allow_anonymous,
            allow_passwords=listener.allow_passwords,
            socket_mode=listener.socket_mode,
            tls=listener.tls,
            websocket_path=listener.path or None,
            origins=listener.origins,
            proxy_protocol=listener.proxy_protocol,
            proxies=listener.proxies,
            connections_max=listener.connections_max,
            packet_bytes_max=listener.packet_bytes_max or plan.limits.packet_bytes_max,
        )
        for listener in plan.listeners
    ]
    spec = _core.NodeSpec(
        node_id=NODE_ID_EMBEDDED,
        tenant=TENANT_DEFAULT,
        partitions=PARTITIONS_EMBEDDED,
        shards=plan.shards,
        listeners=listeners,
        limits=_native_limits(plan.limits, connections_max=plan.connections_max),
        ask_admission=plan.ask_admission,
        rules=plan.rules,
        disconnect_denied=plan.disconnect_denied,
        client_id_is_user=plan.client_id_is_user,
        auth_methods=plan.auth_methods,
        tolerates_excess=plan.tolerates_excess,
        log=None if plan.log is None else _native_log(plan.log),
    )
    return _core.Node(spec)


def build_facts() -> Mapping[str, str]:
    """Tell how the native module was built, its version included."""
    return {"version": _core.__version__, **_core.BUILD}


def plan_log(settings: Settings) -> LogPlan | None:
    """Say where and how a node with these settings keeps its log; None under `memory`."""
    if settings.durability == "memory" or settings.data is None:
        return None
    storage = settings.storage
    directory = settings.data.absolute()
    return LogPlan(
        directory=directory,
        key_file=directory / KEY_FILE if storage.key_file is None else storage.key_file.absolute(),
        group_delay_ms=storage.group_delay_ms if settings.durability == "group" else None,
        segment_bytes=storage.segment_bytes,
        checkpoint_interval_s=storage.checkpoint_interval_s,
        checkpoint_log_bytes=storage.checkpoint_log_bytes,
        retention_age_s=storage.retention_age_s,
        retention_bytes=storage.retention_bytes,
        chunk_bytes=storage.chunk_bytes,
        scrub_bytes_per_s=storage.scrub_bytes_per_s,
        scrub_interval_s=storage.scrub_interval_s,
        disk_bytes_max=storage.disk_bytes_max,
    )


def _native_log(plan: LogPlan) -> _core.LogSpec:
    return _core.LogSpec(
        directory=plan.directory,
        key_file=plan.key_file,
        group_delay_ms=plan.group_delay_ms,
        segment_bytes=plan.segment_bytes,
        checkpoint_interval_s=plan.checkpoint_interval_s,
        checkpoint_log_bytes=plan.checkpoint_log_bytes,
        retention_age_s=plan.retention_age_s,
        retention_bytes=plan.retention_bytes,
        chunk_bytes=plan.chunk_bytes,
        scrub_bytes_per_s=plan.scrub_bytes_per_s,
        scrub_interval_s=plan.scrub_interval_s,
        disk_bytes_max=plan.disk_bytes_max,
    )


def _native_limits(limits: Limits, *, connections_max: int) -> _core.NodeLimits:
    return _core.NodeLimits(
        packet_bytes_max=limits.packet_bytes_max,
        connect_timeout_ms=limits.connect_timeout_ms,
        keep_alive_s_max=limits.keep_alive_s_max,
        receive_maximum=limits.receive_maximum,
        session_expiry_s_max=limits.session_expiry_s_max,
        topic_alias_max=limits.topic_alias_max,
        will_grace_s=limits.will_grace_s,
        subscriptions_max=limits.subscriptions_max,
        offline_bytes_max=limits.offline_bytes_max,
        offline_count_max=limits.offline_count_max,
        out_buffer_bytes_soft=limits.out_buffer_bytes_soft,
        out_buffer_bytes_max=limits.out_buffer_bytes_max,
        connections_max=connections_max,
        connections_per_address_max=limits.connections_per_address_max,
        event_queue_count_max=limits.event_queue_count_max,
        admission_timeout_ms=limits.admission_timeout_ms,
        log_pending_bytes_max=limits.log_pending_bytes_max,
    )
