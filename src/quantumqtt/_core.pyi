"""The native half of QuantuMQTT: one broker node, hand-cranked from Python by tables and batches.

Three crossings exist: tables down (`NodeSpec`, verdicts), batches up (`Node.poll_events`,
`Node.statistics`) and the hand crank of the simulator. None is per message.
"""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Final, Literal, Self, TypeAlias, final

from typing_extensions import disjoint_base

from quantumqtt.errors import RemoteProtocolError

__version__: Final[str]
BUILD: Final[Mapping[str, str]]
"""How this module was built: `profile`, `target`, `apply_version`."""

_EventKind = Literal[
    "admission_wanted",
    "authentication_wanted",
    "session_opened",
    "session_closed",
    "connection_refused",
    "access_denied",
    "overrun",
    "shard_failed",
    "log_damaged",
    "disk_level_changed",
]

_PropertyValue = bool | int | str | bytes | tuple[str, str]

@disjoint_base
class Message:
    """One PUBLISH, frozen; properties are read on demand and absent before MQTT 5."""

    def __new__(
        cls,
        topic: str,
        payload: bytes | None = None,
        *,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int | None = None,
        session: int = 0,
        properties: bytes | None = None,
    ) -> Self:
        """Make a message as a broker would send it; `properties` from `encode_properties`.

        Raises:
            LocalProtocolError: The properties may not stand in a PUBLISH.
        """
    @property
    def topic(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def qos(self) -> int: ...
    @property
    def retain(self) -> bool:
        """Kept by the broker from before the subscription, unless retain-as-published is on."""
    @property
    def dup(self) -> bool:
        """Sent before under the same packet id, says the broker."""
    @property
    def packet_id(self) -> int | None:
        """None at QoS 0."""
    @property
    def session(self) -> int:
        """The number that `decode_packets` was given."""
    @property
    def properties(self) -> bytes:
        """The property block as it came, without its length."""
    @property
    def payload_is_utf8(self) -> bool: ...
    @property
    def message_expiry_s(self) -> int | None: ...
    @property
    def content_type(self) -> str | None: ...
    @property
    def response_topic(self) -> str | None: ...
    @property
    def correlation_data(self) -> bytes | None: ...
    @property
    def topic_alias(self) -> int | None: ...
    @property
    def user_properties(self) -> tuple[tuple[str, str], ...]:
        """In order, repetitions included."""
    @property
    def subscription_ids(self) -> tuple[int, ...]: ...
    def with_topic(self, topic: str) -> Message:
        """The same message under the topic its alias stands for."""

@final
class AckRun:
    """Successive PUBACK, PUBREC, PUBREL or PUBCOMP with one outcome and no properties."""

    @property
    def kind(self) -> int:
        """The packet type, 4 to 7."""
    @property
    def reason_code(self) -> int: ...
    @property
    def packet_ids(self) -> list[int]: ...

@final
class Control:
    """Any other packet a broker sends; fields that do not apply are empty."""

    @property
    def kind(self) -> int:
        """The packet type."""
    @property
    def packet_id(self) -> int: ...
    @property
    def reason_code(self) -> int:
        """3.x return codes come as the MQTT 5 code they mean."""
    @property
    def session_present(self) -> bool: ...
    @property
    def codes(self) -> bytes:
        """One per filter of SUBACK and UNSUBACK."""
    @property
    def properties(self) -> list[tuple[int, _PropertyValue]]: ...

def decode_packets(
    version: int, data: bytes, packet_bytes_max: int, session: int = 0
) -> tuple[list[list[Message] | Message | AckRun | Control | RemoteProtocolError], int, int]:
    """Decode the packets at the start of `data`: the batch, the bytes it took, the bytes wanted.

    QoS 0 messages that follow each other on one topic come as a list. Bytes wanted are the whole
    size of a packet that is still incomplete, 0 when unknown. What is wrong ends the batch as an
    exception in its last place, so that the packets before it are not lost.
    """

def encode_batch(
    version: int, items: list[bytes | int | tuple[str, bytes, int, int, bytes]]
) -> bytes:
    """Write a row of packets.

    An item is whole packets as bytes, a success acknowledgement as packet type times 65536 plus
    packet id, or a PUBLISH as topic, payload, header flags, packet id (0 at QoS 0), properties.

    Raises:
        LocalProtocolError: A PUBLISH breaks MQTT.
    """

def encode_ack(version: int, kind: int, packet_id: int, reason_code: int) -> bytes:
    """Write an acknowledgement with an outcome.

    Raises:
        LocalProtocolError: The packet, or its version, cannot say this outcome.
    """

def encode_connect(
    version: int,
    client_id: str,
    *,
    clean_start: bool,
    keep_alive_s: int,
    user_name: str | None = None,
    password: bytes | None = None,
    will: tuple[str, bytes, int, bool, bytes] | None = None,
    properties: bytes | None = None,
) -> bytes:
    """Write CONNECT; a will is topic, payload, QoS, retain, properties.

    Raises:
        LocalProtocolError: A part breaks MQTT.
    """

def encode_subscribe(
    version: int,
    packet_id: int,
    filters: Sequence[tuple[str, int]],
    properties: bytes | None = None,
) -> bytes:
    """Write SUBSCRIBE; each filter with its options byte as MQTT 5 writes it.

    Raises:
        LocalProtocolError: A filter or its options break MQTT.
    """

def encode_unsubscribe(
    version: int, packet_id: int, filters: Sequence[str], properties: bytes | None = None
) -> bytes:
    """Write UNSUBSCRIBE.

    Raises:
        LocalProtocolError: A filter breaks MQTT.
    """

def encode_disconnect(version: int, reason_code: int = 0, properties: bytes | None = None) -> bytes:
    """Write DISCONNECT.

    Raises:
        LocalProtocolError: The version cannot say this reason.
    """

def encode_auth(reason_code: int, properties: bytes) -> bytes:
    """Write AUTH.

    Raises:
        LocalProtocolError: The method is missing, or the reason is not AUTH's.
    """

def encode_properties(properties: Sequence[tuple[int, _PropertyValue]]) -> bytes:
    """Write a property block, without its length, from pairs of identifier and value.

    Raises:
        LocalProtocolError: A property does not exist, repeats, or is out of range.
        TypeError: A value has the wrong type.
        OverflowError: A number does not fit its property.
    """

def hash64(tenant: str, key: str) -> int:
    """Hash a key of a tenant: XXH3-64, seed 0, over `len(tenant) as u32le ‖ tenant ‖ key`."""

def jump_hash(hash64: int, buckets: int) -> int:
    """Place a 64-bit hash on a ring of `buckets` slots by jump-consistent hashing.

    Raises:
        ValueError: `buckets` is 0.
    """

def validate_filter(text: str) -> None:
    """Check a topic filter, `$share/{group}/` prefix included.

    Raises:
        LocalProtocolError: The filter breaks MQTT; the message names the clause.
    """

def validate_topic(text: str) -> None:
    """Check a topic name as a PUBLISH may carry it.

    Raises:
        LocalProtocolError: The name breaks MQTT; the message names the clause.
    """

@final
class TlsContext:
    """What a listener shows and demands; frozen, shared by all its connections."""

    def __new__(
        cls,
        *,
        certificate: bytes,
        key: bytes,
        client_ca: bytes | None = None,
        crl: bytes | None = None,
        require_client_certificate: bool = False,
        certificate_user: Literal["cn", "san", "dn", "off"] = "cn",
        min_version: Literal["1.2", "1.3"] = "1.3",
        websocket: bool = False,
    ) -> TlsContext:
        """Judge files as PEM.

        Raises:
            ConfigError: One cannot be used; the message begins with its name and a colon.
        """
    @property
    def not_after_s(self) -> int | None:
        """Until when the server's certificate is good, in Unix seconds."""

@final
class ListenerSpec:
    """Where to listen, what lies in between, and who may come in by this door."""

    def __new__(
        cls,
        *,
        name: str,
        host: str,
        port: int,
        allow_anonymous: bool,
        allow_passwords: bool = True,
        socket_mode: int | None = None,
        tls: TlsContext | None = None,
        websocket_path: str | None = None,
        origins: Sequence[str] | None = None,
        proxy_protocol: str | None = None,
        proxies: Sequence[str] | None = None,
        connections_max: int | None = None,
        packet_bytes_max: int | None = None,
    ) -> ListenerSpec:
        """Describe a listener; with `socket_mode` the host is the path of a Unix socket.

        Raises:
            ConfigError: A proxy is no network.
        """
    @property
    def name(self) -> str: ...
    @property
    def allow_anonymous(self) -> bool: ...
    @property
    def allow_passwords(self) -> bool: ...

@final
class NodeLimits:
    """Every bound of the native half; `config/limits.py` says what each one means."""

    def __new__(
        cls,
        *,
        packet_bytes_max: int,
        connect_timeout_ms: int,
        keep_alive_s_max: int,
        receive_maximum: int,
        session_expiry_s_max: int,
        topic_alias_max: int,
        will_grace_s: int,
        subscriptions_max: int,
        offline_bytes_max: int,
        offline_count_max: int,
        out_buffer_bytes_soft: int,
        out_buffer_bytes_max: int,
        connections_max: int,
        event_queue_count_max: int,
        admission_timeout_ms: int,
        log_pending_bytes_max: int,
        connections_per_address_max: int | None = None,
    ) -> NodeLimits: ...

@final
class RuleTable:
    """Compiled access rules; written by `quantumqtt.policy.compile`, walked by shards. Frozen."""

    def __new__(
        cls,
        *,
        symbols: Sequence[str],
        templates: Sequence[Sequence[tuple[int, str]]],
        states: Sequence[tuple[int, int, int]],
        transitions: Sequence[tuple[int, int, int, int]],
        scopes: Sequence[tuple[str, int, int]],
        common: tuple[int, int],
    ) -> RuleTable:
        """Check a table: what its numbers mean stands in `crates/topics/src/rules.rs`.

        Raises:
            InternalError: A number points at nothing, or two transitions contradict each other.
        """
    @property
    def state_count(self) -> int: ...
    def may(self, user: str, client_id: str, action: Literal["read", "write"], topic: str) -> bool:
        """Decide one topic; an empty user is anonymous."""
    def may_subscribe(self, user: str, client_id: str, pattern: str) -> bool:
        """Decide one filter, without its `$share/{group}/`."""
    def steps(self, user: str, client_id: str, action: Literal["read", "write"], topic: str) -> int:
        """Count the look-ups that `may` makes."""

@final
class LogSpec:
    """Where and how a node keeps its log; frozen."""

    def __new__(
        cls,
        *,
        directory: str | PathLike[str],
        key_file: str | PathLike[str],
        group_delay_ms: int | None,
        segment_bytes: int,
        checkpoint_interval_s: int,
        checkpoint_log_bytes: int,
        retention_age_s: int | None = None,
        retention_bytes: int | None = None,
        chunk_bytes: int = ...,
        scrub_bytes_per_s: int = 0,
        scrub_interval_s: int = 21_600,
        disk_bytes_max: int | None = None,
    ) -> LogSpec:
        """Without `group_delay_ms` a sync waits for nothing: durability `strict`.

        Without a retention the message log keeps everything. What is at rest is read again at
        `scrub_bytes_per_s`; 0 never does. `disk_bytes_max` bounds the directory where that is less
        than the disk.
        """

@final
class NodeSpec:
    """All that a node needs to know before it starts; frozen."""

    def __new__(
        cls,
        *,
        node_id: int,
        tenant: str,
        partitions: int,
        shards: int,
        listeners: Sequence[ListenerSpec],
        limits: NodeLimits,
        ask_admission: bool,
        rules: RuleTable | None = None,
        disconnect_denied: bool = True,
        client_id_is_user: bool = False,
        auth_methods: Sequence[str] = ...,
        tolerates_excess: bool = False,
        log: LogSpec | None = None,
    ) -> NodeSpec:
        """Without `log` nothing is on disk: durability `memory`."""

@final
class BoundListener:
    """A listener after binding: port 0 has become a real port; a Unix socket's host is its path."""

    @property
    def name(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...

@final
class Event:
    """Something Python may want to know or decide; fields that do not apply are None."""

    @property
    def kind(self) -> _EventKind: ...
    @property
    def at_ms(self) -> int:
        """Wall clock of the node when it happened, Unix milliseconds."""
    @property
    def tenant(self) -> str: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def connection(self) -> int | None:
        """Unique in the process: (shard, slot, generation) packed."""
    @property
    def peer(self) -> str | None: ...
    @property
    def listener(self) -> str | None: ...
    @property
    def protocol(self) -> Literal["3.1", "3.1.1", "5.0"] | None: ...
    @property
    def ticket(self) -> int | None:
        """For `admission_wanted` and `authentication_wanted`: hand it back in the answer."""
    @property
    def user_name(self) -> str | None: ...
    @property
    def password(self) -> bytes | None:
        """For `admission_wanted` only; never logged, never in `repr`."""
    @property
    def auth_method(self) -> str | None:
        """For `authentication_wanted`: the method CONNECT named."""
    @property
    def auth_data(self) -> bytes | None:
        """For `authentication_wanted`: what the client sent; never logged, never in `repr`."""
    @property
    def session_epoch(self) -> int | None: ...
    @property
    def reason(self) -> str | None:
        """For closes, refusals and denials: a stable short name, the same as the metric label."""
    @property
    def topic(self) -> str | None:
        """For `access_denied`: the topic or filter that was refused."""
    @property
    def count(self) -> int:
        """How many occurrences this event stands for; above 1 when the queue merged them."""

@final
class LogStatistics:
    """What the log says of itself; frozen."""

    @property
    def state(self) -> Literal["ok", "full", "failed"]: ...
    @property
    def reason(self) -> str | None:
        """Why it is not `ok`."""
    @property
    def pending_bytes(self) -> int:
        """Bytes proposed and not yet applied."""
    @property
    def written_bytes_total(self) -> int: ...
    @property
    def syncs_total(self) -> int: ...
    @property
    def sync_ns_total(self) -> int:
        """Time spent in syncs of the disk."""
    @property
    def segments(self) -> int:
        """Files of the log."""
    @property
    def applied_index(self) -> int:
        """The last entry in the state."""
    @property
    def checkpoint_index(self) -> int:
        """The last entry in the latest checkpoint; 0 without one."""
    @property
    def checkpoints_total(self) -> int: ...
    @property
    def checkpoint_failures_total(self) -> int: ...
    @property
    def disk_level(self) -> Literal["roomy", "tight", "full"]: ...
    @property
    def disk_used_bytes(self) -> int: ...
    @property
    def disk_capacity_bytes(self) -> int:
        """What the log has and could have; 0 before the first look."""
    @property
    def scrub_bytes_total(self) -> int:
        """Bytes at rest that were read again."""
    @property
    def scrub_passes_total(self) -> int: ...
    @property
    def scrub_findings_total(self) -> int: ...
    @property
    def scrub_coverage_age_ms(self) -> int:
        """Since the end of the last pass, or since the start."""
    @property
    def scrub_damage(self) -> str | None:
        """What does not check out, until a pass finds everything whole."""
    @property
    def checkpoint_error(self) -> str | None:
        """Why the latest attempt at a checkpoint failed, if it did."""

@final
class Statistics:
    """A frozen snapshot of the node's counters; the only thing exporters read."""

    @property
    def log(self) -> LogStatistics | None:
        """None under durability `memory`."""

    @property
    def uptime_ms(self) -> int: ...
    @property
    def connections(self) -> int: ...
    @property
    def connections_total(self) -> int: ...
    @property
    def connections_refused_full_total(self) -> int:
        """Sockets closed right after accept because `connections_max` was reached."""
    @property
    def sessions_stored(self) -> int:
        """Sessions held by the state machine, connected or not."""
    @property
    def sessions_attached(self) -> int:
        """Those among them whose client is connected."""
    @property
    def sessions_expired_total(self) -> int:
        """Sessions that were away for longer than their expiry."""
    @property
    def retained(self) -> int:
        """Retained messages of clients."""
    @property
    def retained_bytes(self) -> int:
        """Their bytes, topics included."""
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
        """Subscriptions of connected sessions."""
    @property
    def publishes_received_total(self) -> tuple[int, int, int]:
        """By QoS."""
    @property
    def publishes_sent_total(self) -> tuple[int, int, int]:
        """By QoS as delivered."""
    @property
    def bytes_received_total(self) -> int: ...
    @property
    def bytes_sent_total(self) -> int: ...
    @property
    def tls_handshakes_total(self) -> int:
        """Completed, resumptions included."""
    @property
    def tls_resumptions_total(self) -> int: ...
    @property
    def entries_applied_total(self) -> int: ...
    @property
    def commands_applied_total(self) -> int: ...
    @property
    def drops_total(self) -> Mapping[str, int]:
        """Messages not delivered, by reason."""
    @property
    def closes_total(self) -> Mapping[str, int]:
        """Connections closed, by reason (`normal` included)."""
    @property
    def refusals_total(self) -> Mapping[str, int]:
        """CONNECTs refused, by reason."""
    @property
    def denials_total(self) -> Mapping[str, int]:
        """What access rules refused: `publish`, `subscribe`, `will`."""
    @property
    def events_merged_total(self) -> int: ...
    @property
    def shards(self) -> int: ...

@final
class Node:
    """One broker node: shard threads, partitions, listeners. Python only starts and watches it."""

    def __new__(cls, spec: NodeSpec) -> Node: ...
    def start(self) -> Sequence[BoundListener]:
        """Bind every listener, start the shard threads, begin to accept.

        Raises:
            ConfigError: The spec cannot work (no listener, zero shards, a bound out of range).
            TransportError: An address cannot be bound; names it.
        """
    def event_fd(self) -> int:
        """An eventfd, readable while events wait. The node owns it; do not close it."""
    def poll_events(self, count_max: int = 1024) -> Sequence[Event]:
        """Take what happened since the last call, oldest first, without waiting."""
    def tell_sessions(self, *, always: bool) -> None:
        """Say whether `session_opened` and `session_closed` are always wanted; at first they are.

        Otherwise they are told only while some client subscribes below `$SYS/` to more than the
        figures in `$SYS/broker/`.
        """
    def answer_admissions(
        self, verdicts: Sequence[tuple[int, int]], *, may_be_remembered: bool = False
    ) -> None:
        """Answer `admission_wanted`: pairs of ticket and v5 CONNACK reason code, 0 to admit.

        A ticket that is gone (its client left, or it timed out) is ignored. Where it may be
        remembered, the same name and password are admitted without a question from then on, until
        `set_policy`.
        """
    def say(self, messages: Sequence[tuple[str, bytes, bool]]) -> None:
        """Publish under `$SYS/`: topic, payload, and whether later subscribers get it too.

        QoS 0, to whoever is online; kept ones live as long as the node, and an empty payload ends
        them. Topics outside of `$SYS/` are ignored. Never blocks.
        """
    def answer_authentications(self, answers: Sequence[tuple[int, int, bytes | None, str]]) -> None:
        """Answer authentication steps: ticket, reason code, data for the client, user name.

        0x18 asks the client to go on; 0x00 admits it under that user name. Never blocks; a ticket
        that is gone, or that nobody waits for, is ignored.
        """
    def set_policy(self, rules: RuleTable | None, *, revoked_users: Sequence[str]) -> None:
        """Replace the rules, end the clients of some users, forget remembered credentials.

        Every shard follows in its next turn. Clients that are still allowed stay connected.
        """
    def set_tls(self, listener: int, context: TlsContext) -> None:
        """Show and demand something else at a listener, by position; connections stay."""
    def statistics(self) -> Statistics: ...
    def message_log(self, partition: int = 0) -> MessageLog | None:
        """Give what was committed in a partition to read; None under durability `memory`.

        Raises:
            ValueError: There is no such partition.
        """
    def digest(self) -> tuple[int, str]:
        """The last entry in the state, and the digest of all of it. Walks the state."""
    def session(self, client_id: str) -> dict[str, object] | None:
        """A stored session as plain values; None for a client that has none."""
    def drain(self, deadline_ms: int) -> bool:
        """Stop accepting, tell v5 clients 0x8B, flush and close; True when all left in time.

        Blocks without holding the interpreter.
        """
    def stop(self) -> None:
        """End every thread and close every socket. Idempotent; called by the destructor too."""

_LoadScenario = Literal["conn", "pub", "sub", "pairs", "fan-in", "fan-out", "idle", "latency"]

@final
class LoadSpec:
    """One run of the load generator as data; frozen.

    `messages` counts per publisher, `rate` over all of them; 0 and None mean no bound.
    """

    def __new__(
        cls,
        *,
        host: str,
        port: int,
        version: Literal["3.1", "3.1.1", "5.0"],
        scenario: _LoadScenario,
        publishers: int,
        subscribers: int,
        topics: int,
        start_number: int,
        topic: str | None,
        qos: int,
        window: int,
        payload_bytes: int,
        messages: int,
        duration_s: float,
        rate: float | None,
        connect_interval_ms: int,
        one_message_per_write: bool,
        retain: bool,
        clean: bool,
        expiry_s: int,
        keep_alive_s: int,
        user_name: str | None,
        password: str | None,
        client_id_prefix: str,
        source_addresses: Sequence[str],
        broker_pid: int | None,
        threads: int,
        patience_s: float,
        deadline_s: float,
    ) -> LoadSpec:
        """Keep what a run needs to know.

        Raises:
            ValueError: A field has no native counterpart (QoS 3, a negative duration).
        """

@final
class LoadProgress:
    """How far a run is; the counts are those of the whole run."""

    @property
    def stage(self) -> Literal["connecting", "measuring"]: ...
    @property
    def elapsed_s(self) -> float:
        """Since this stage began."""
    @property
    def connected(self) -> int: ...
    @property
    def sent(self) -> int: ...
    @property
    def acknowledged(self) -> int: ...
    @property
    def received(self) -> int: ...

@final
class LoadDurations:
    """Durations of one kind, counted in buckets no wider than 1/64 of their value."""

    @property
    def count(self) -> int: ...
    @property
    def min_ns(self) -> int: ...
    @property
    def mean_ns(self) -> int: ...
    @property
    def max_ns(self) -> int: ...
    def percentile_ns(self, share: float) -> int:
        """Give a duration that `share` (0 to 1) of all do not exceed; errs towards slow."""

@final
class ProcessUsage:
    """What a process used in one part of a run; memory as it was at its end."""

    @property
    def user_seconds(self) -> float: ...
    @property
    def system_seconds(self) -> float: ...
    @property
    def voluntary_switches(self) -> int: ...
    @property
    def involuntary_switches(self) -> int: ...
    @property
    def resident_bytes(self) -> int: ...
    @property
    def anonymous_bytes(self) -> int: ...

@final
class LoadReport:
    """What a run has shown; frozen."""

    @property
    def connected(self) -> int: ...
    @property
    def connect_seconds(self) -> float: ...
    @property
    def seconds(self) -> float:
        """From the start to the last message, acknowledgement or connect."""
    @property
    def units(self) -> int:
        """Deliveries; publishes where nobody here hears them; connects where nobody publishes."""
    @property
    def sent(self) -> int: ...
    @property
    def acknowledged(self) -> int: ...
    @property
    def expected(self) -> int:
        """Deliveries that should have come."""
    @property
    def received(self) -> int:
        """Deliveries that came, duplicates and foreign ones included."""
    @property
    def lost(self) -> int: ...
    @property
    def duplicated(self) -> int: ...
    @property
    def out_of_order(self) -> int: ...
    @property
    def foreign(self) -> int:
        """Messages that are not of this run, or not for the subscriber that got them."""
    @property
    def written_off(self) -> int:
        """Deliveries the window stopped waiting for; lost unless they came later."""
    @property
    def was_cut_short(self) -> bool:
        """The deadline or the caller ended the run early."""
    @property
    def latency(self) -> LoadDurations: ...
    @property
    def acknowledge_latency(self) -> LoadDurations: ...
    @property
    def connect_latency(self) -> LoadDurations: ...
    @property
    def faults(self) -> Mapping[str, int]:
        """What went wrong on connections, by stable short names."""
    @property
    def first_fault(self) -> str | None: ...
    @property
    def violations(self) -> Mapping[str, int]:
        """What the chosen QoS forbids and yet happened, by stable short names."""
    @property
    def generator(self) -> ProcessUsage: ...
    @property
    def broker_before(self) -> ProcessUsage | None: ...
    @property
    def broker_connecting(self) -> ProcessUsage | None: ...
    @property
    def broker_measuring(self) -> ProcessUsage | None: ...
    @property
    def broker_us_per_unit(self) -> float | None: ...
    @property
    def broker_bytes_per_connection(self) -> float | None: ...

def run_load(spec: LoadSpec, on_progress: Callable[[LoadProgress], bool]) -> LoadReport:
    """Make one run; blocks without holding the interpreter.

    `on_progress` is called some ten times per second. Its answer says whether the run goes on;
    an exception in it ends the run and is raised again.

    Raises:
        ConfigError: The spec cannot work; the message begins with the name of the field.
        TransportError: The broker cannot be reached, or the system lacks descriptors.
    """

_NamedRecord = tuple[str, dict[str, object]]

def encode_entry(
    commands: Sequence[object], *, partition: int, now_ms: int, leader: int, batch_seq: int
) -> bytes:
    """Write a log entry; commands are values of `quantumqtt.simulation.commands`.

    Raises:
        ValueError: A command names something that does not exist, or there are too many.
    """

def decode_entry(entry: bytes) -> tuple[dict[str, int], list[_NamedRecord]]:
    """Read a log entry: its header, and each command as its name and fields.

    Raises:
        ValueError: The bytes are no entry this build can read.
    """

def verify_log(
    directory: str | PathLike[str],
    key_file: str | PathLike[str],
    *,
    progress: Callable[[int, int, int], object] | None = None,
) -> dict[str, object]:
    """Check everything in a data directory that nobody uses; changes nothing.

    `progress` is told files done, files in all and bytes read.

    Raises:
        ConfigError: There is no log, it is in use, or not for this key or this version.
        StorageError: It cannot be read.
    """

def count_log(
    directory: str | PathLike[str],
    key_file: str | PathLike[str],
    *,
    progress: Callable[[int, int, int], object] | None = None,
) -> dict[str, object]:
    """Check like `verify_log`, and count entries and commands by kind if all is sound."""

def dump_log(
    directory: str | PathLike[str],
    key_file: str | PathLike[str],
    each: Callable[[list[dict[str, object]]], bool],
    *,
    first_index: int = 0,
    last_index: int | None = None,
) -> None:
    """Hand over records in batches, in order, until `each` says False.

    Raises:
        CorruptLog: From here on it is damaged; what came before was handed over.
    """

def replay_log(
    directory: str | PathLike[str],
    key_file: str | PathLike[str],
    *,
    until: int | None = None,
) -> dict[str, object]:
    """Make the state of a log, as a start would; tells its index, digest and sizes."""

def restore_machine(chunks: Sequence[bytes]) -> Machine:
    """Make a machine from the chunks of a checkpoint.

    Raises:
        ValueError: The chunks are damaged, incomplete or of another release; names the place.
    """

@final
class Machine:
    """One partition's state machine, for `quantumqtt.simulation.Crank`; no broker uses it."""

    def __new__(cls, *, partition: int, limits: object) -> Machine: ...
    def apply(self, entry: bytes) -> list[_NamedRecord]:
        """Apply an entry; each effect comes as its name and fields.

        Raises:
            ValueError: The bytes are no entry; nothing was changed.
            InternalError: A command cannot be applied; this machine must not be used any more.
        """
    def digest(self) -> str: ...
    def broken_invariant(self) -> str | None: ...
    def partition(self) -> int: ...
    def begin_checkpoint(self, index: int) -> None: ...
    def next_chunk(self, bytes_max: int) -> bytes | None: ...
    def next_deadline_ms(self) -> int | None: ...
    def statistics(self) -> dict[str, int]: ...
    def client_ids(self) -> list[str]: ...
    def session(self, client_id: str) -> dict[str, object] | None: ...
    def retained_offsets(self, filter_text: str, now_ms: int) -> list[int]: ...

@final
class SimulatedDisk:
    """A disk in memory that lies like real ones, from a seed; for `quantumqtt.simulation`."""

    def __new__(cls, seed: int) -> SimulatedDisk: ...
    def crash(self, how: str) -> None: ...
    def inject(self, fault: str, after: int) -> None: ...
    def power_off_at(self, operation: int) -> None: ...
    def is_off(self) -> bool: ...
    def set_capacity(self, capacity_bytes: int | None) -> None: ...
    def flip(self, path: str, offset: int, mask: int) -> None: ...
    def erase(self, path: str) -> None: ...
    def read(self, path: str) -> bytes: ...
    def paths(self) -> list[str]: ...
    def used_bytes(self) -> int: ...
    def operations(self) -> int: ...
    def trace_hash(self) -> int: ...

_TurnedRecord: TypeAlias = tuple[int, bytes, list[_NamedRecord]]

@final
class SimulatedNode:
    """One node's durable path, for `quantumqtt.simulation.durable.Life`; no broker uses it."""

    def turn(
        self, entries: Sequence[Sequence[object]], *, now_ms: int, sync: bool
    ) -> tuple[list[_TurnedRecord], str | None]:
        """Propose, write, apply; also why the node stopped, if it did.

        Raises:
            ValueError: A command names something that does not exist, or there are too many.
        """
    def apply_unlogged(self, batch: Sequence[object], now_ms: int) -> list[_NamedRecord]: ...
    def begin_checkpoint_files(self) -> int: ...
    def begin_checkpoint_state(self, index: int) -> None: ...
    def step_checkpoint(self, *, bytes_max: int, floor: int | None) -> int | None: ...
    def status(self) -> dict[str, int]: ...
    def failure(self) -> str | None: ...
    def digest(self) -> str: ...
    def broken_invariant(self) -> str | None: ...
    def next_deadline_ms(self) -> int | None: ...
    def statistics(self) -> dict[str, int]: ...
    def client_ids(self) -> list[str]: ...
    def session(self, client_id: str) -> dict[str, object] | None: ...
    def retained_offsets(self, filter_text: str, now_ms: int) -> list[int]: ...

def open_simulated_node(
    disk: SimulatedDisk,
    *,
    limits: object,
    now_ms: int,
    entropy_seed: int,
    segment_bytes: int,
    acks_early: bool,
    bend: str | None,
) -> tuple[SimulatedNode, list[_TurnedRecord]]:
    """Open a node on a disk; also what the entries it found came to.

    Raises:
        CorruptLog: Something that was durable is damaged.
        StorageError: The disk failed or is full.
        ConfigError: The options or the key do not fit what is there.
    """

@final
class RecordLog:
    """One partition's message log in a folder of its own, for tests and local tools; no broker.

    A broker's log is rebuilt from the replicated log after a crash. This one stands alone: what is
    not sealed is gone with the process.
    """

    def __new__(
        cls, folder: str, *, tenant: str, partition: int, key: bytes, key_epoch: int = 1
    ) -> RecordLog:
        """Open the log in `folder`, or make a new one there; `key` has 32 bytes.

        Raises:
            StorageError: The folder cannot be read or written, or the key is another one's.
            CorruptStore: A file holds what nobody wrote.
            ValueError: The key has another length.
        """
    def append(
        self,
        messages: Sequence[tuple[str, bytes]],
        *,
        now_ms: int,
        qos: int = 1,
        retain: bool = False,
        source: str = "mqtt",
        client_id: str | None = None,
        user_properties: Sequence[tuple[str, str]] | None = None,
        expiry_s: int | None = None,
    ) -> int:
        """Append topics and payloads as one entry; returns the offset that comes next.

        Raises:
            ValueError: There is no such source, or a record is too large.
        """
    def seal(self) -> None:
        """Make what was appended durable, and remove files that are out of use.

        Raises:
            StorageError: The disk refused.
        """
    def merge(self) -> bool:
        """Join small chunks; says whether there was anything to join.

        Raises:
            StorageError: The disk refused.
            CorruptStore: A chunk is damaged.
        """
    def retain(
        self,
        *,
        now_ms: int,
        age_ms: int | None = None,
        bytes_max: int | None = None,
        referenced: Sequence[int] | None = None,
    ) -> bool:
        """Drop what is too old or too much, but for the offsets `referenced`.

        Raises:
            StorageError: The disk refused.
            CorruptStore: A chunk is damaged.
        """
    def hold(self, name: str, offset: int) -> None:
        """Keep everything from `offset` on, until released.

        Raises:
            StorageError: It has expired.
            ValueError: There are too many holds.
        """
    def release(self, name: str) -> bool:
        """End a hold; says whether there was one."""
    def bounds(self) -> tuple[int, int]:
        """Tell the first offset that can be read, and the one that comes next."""
    def offset_for_time(self, ts_ms: int) -> int:
        """Find the first offset whose time is not before `ts_ms`; the end if there is none.

        Raises:
            CorruptStore: The block that would tell is damaged.
        """
    def read(
        self, start: int = 0, end: int | None = None, *, columns: Sequence[str] | None = None
    ) -> RecordStream:
        """Read a range as Arrow; `pyarrow.RecordBatchReader.from_stream` takes what this returns.

        Raises:
            ValueError: There is no such column.
        """
    def payloads(self, offsets: Sequence[int]) -> list[bytes]:
        """Read single payloads by rising offsets, kept ones included.

        Raises:
            StorageError: One has expired, or is not written yet.
            CorruptStore: A block is damaged.
        """
    def statistics(self) -> dict[str, int]: ...

@final
class MessageLog:
    """One partition's message log in a running node, to read; any thread, and nothing waits for it.

    What is read was committed, and synced: no crash takes it back.
    """

    @property
    def tenant(self) -> str: ...
    @property
    def partition(self) -> int: ...
    def bounds(self) -> tuple[int, int]:
        """Tell the first offset that can be read, and the one that comes next.

        What was acknowledged before the call is in between. Waits for a moment, at most for a sync.

        Raises:
            StorageError: The node has stopped, or its disk has failed.
        """
    def offset_for_time(self, ts_ms: int) -> int:
        """Find the first offset whose time is not before `ts_ms`; the end if there is none.

        Raises:
            StorageError: The node has stopped, or its disk has failed.
            CorruptStore: The block that would tell is damaged.
        """
    def read(
        self,
        start: int = 0,
        end: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        topics: Sequence[str] | None = None,
        allowed: Sequence[str] | None = None,
    ) -> RecordStream:
        """Read a range as Arrow, in batches of one block; it ends where the log ends at the call.

        A row passes if one of the filters `topics` matches its topic, and one of `allowed`; None
        lets everything pass.

        Raises:
            StorageError: The start has expired; the node has stopped, or its disk has failed.
            LocalProtocolError: A filter is none.
            ValueError: There is no such column.
        """
    def wait(self, position: int, timeout_ms: int) -> bool:
        """Return True once the log ends behind `position`, False when the time is up.

        Raises:
            StorageError: The node has stopped, or its disk has failed.
        """
    def statistics(self) -> dict[str, int]:
        """Count chunks, bytes and records, with all that was acknowledged before the call."""

@final
class RecordStream:
    """A range of a log through Arrow's C stream interface; it can be taken once.

    Errors of the log arrive as the consumer's own: pyarrow says `ArrowInvalid` or `OSError`, with
    our words.
    """

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hand over the stream as a capsule named `arrow_array_stream`.

        Raises:
            ValueError: It was handed over before.
        """
