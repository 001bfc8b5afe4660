"""A broker inside a Python program: start, watch, drain, stop.

The object owns everything that lives with it: the native node, the lock of the data directory, the
event pump and the tasks of the admission desk; `stop` waits for all of them. Several brokers may
run in one process, each on its own ports. Nothing here touches a packet.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Final, Self, TypeVar

from quantumqtt.config import Address, FlagLayer, Settings, settings_from
from quantumqtt.errors import ConfigError, TransportError
from quantumqtt.node.addresses import plan_listeners
from quantumqtt.node.admissions import AdmissionDesk
from quantumqtt.node.auth_desk import AuthDesk
from quantumqtt.node.certificates import load_contexts
from quantumqtt.node.data_directory import DataDirectory
from quantumqtt.node.descriptors import plan_connections, raise_descriptor_limit
from quantumqtt.node.events import (
    BUFFER_COUNT_MAX_DEFAULT,
    BrokerEvent,
    EventPump,
    EventStream,
)
from quantumqtt.node.lifecycle import Lifecycle, NodeState
from quantumqtt.node.narrator import Narrator
from quantumqtt.node.native import (
    NODE_ID_EMBEDDED,
    MessageLog,
    NativeEvent,
    NativeNode,
    NodePlan,
    OpenNode,
    Statistics,
    build_facts,
    open_native_node,
    plan_log,
)
from quantumqtt.node.news import NewsDesk, news_of
from quantumqtt.node.password_desk import PasswordDesk
from quantumqtt.node.storage_probe import enforce_storage, probe_storage
from quantumqtt.node.system_topics import SystemTopics
from quantumqtt.policy import Access, Authenticate, Hooks, Mechanism, overrides
from quantumqtt.policy.mechanisms import method_names
from quantumqtt.policy.scram import ScramMechanism

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_QUESTIONS: Final = frozenset({"admission_wanted", "authentication_wanted"})
_GOODBYES: Final = frozenset({"session_closed", "connection_refused"})

# Leaving an `async with` block is not an orderly shutdown of a service: clients get a moment.
EXIT_DRAIN_MS: Final = 500


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener as it is bound: port 0 has become a real port.

    The host of a Unix socket is its path.
    """

    name: str
    host: str
    port: int
    allow_anonymous: bool
    scheme: str = "tcp"
    path: str = ""

    @property
    def url(self) -> str:
        """What a person writes to reach it."""
        return Address(self.scheme, self.host, self.port, self.path).url


class Broker:
    """An MQTT broker in this process.

    Use it as an asynchronous context manager::

        async with Broker(listen=["tcp://127.0.0.1:0"]) as broker:
            port = broker.listeners[0].port

    Arguments mean what the configuration keys of the same name mean. The environment and files are
    not read; pass `settings=load_settings(...)` for that.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        listen: Sequence[str] | None = None,
        listener: Sequence[Mapping[str, object]] | None = None,
        tls: Mapping[str, object] | None = None,
        shards: int | None = None,
        data: str | PathLike[str] | None = None,
        durability: str | None = None,
        allow_anonymous: bool | None = None,
        limits: Mapping[str, int] | None = None,
        authenticate: Authenticate | None = None,
        hooks: Hooks | None = None,
        open_node: OpenNode = open_native_node,
    ) -> None:
        """Judge the arguments; nothing starts yet.

        `authenticate` is asked, in batches, about every CONNECT that the broker cannot judge by
        itself. Without it, and where anonymous clients are not allowed, everybody is refused who
        is not in `password_file`. `hooks` may ask and hear more; see `Hooks`.
        `open_node` is the seam for tests.

        Raises:
            ConfigError: An argument cannot be accepted, or `settings` and others are both given.
        """
        asked: dict[str, object] = {
            "listen": None if listen is None else tuple(listen),
            "listener": None if listener is None else tuple(dict(one) for one in listener),
            "tls": None if tls is None else dict(tls),
            "shards": shards,
            "data": data,
            "durability": durability,
            "allow_anonymous": allow_anonymous,
            "limits": None if limits is None else dict(limits),
        }
        self.settings: Settings = _settings_of(
            settings, {k: v for k, v in asked.items() if v is not None}
        )
        self._hooks = hooks
        self._authenticate = _authenticate_of(authenticate, hooks)
        self._access = Access()
        self._passwords: PasswordDesk | None = None
        self._mechanisms: tuple[Mechanism, ...] = ()
        self._authentications: AuthDesk | None = None
        self._system: SystemTopics | None = None
        self._came: NewsDesk | None = None
        self._left: NewsDesk | None = None
        self._open_node = open_node
        self._lifecycle = Lifecycle()
        self._node: NativeNode | None = None
        self._data: DataDirectory | None = None
        self._storage_findings: tuple[str, ...] = ()
        self._desk: AdmissionDesk | None = None
        self._pump: EventPump | None = None
        self._narrator = Narrator()
        self._streams: list[EventStream] = []
        self._callbacks: list[Callable[[BrokerEvent], None]] = []
        self._listeners: tuple[Listener, ...] = ()

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Where the broker listens; empty before it is ready."""
        return self._listeners

    @property
    def state(self) -> NodeState:
        """Where in its life the broker is."""
        return self._lifecycle.state

    @property
    def failure(self) -> str | None:
        """What went wrong, if a shard failed."""
        return self._lifecycle.failure

    def statistics(self) -> Statistics:
        """Take a frozen snapshot of the counters; callable from any thread.

        Raises:
            TransportError: The broker is not running.
        """
        return self._running_node().statistics()

    def message_log(self, partition: int = 0) -> MessageLog | None:
        """Give what was committed in a partition to read; None under durability `memory`.

        It may be used from any thread, for as long as the broker runs.

        Raises:
            TransportError: The broker is not running.
            ValueError: There is no such partition.
        """
        return self._running_node().message_log(partition)

    @property
    def storage_findings(self) -> tuple[str, ...]:
        """What is suspicious about the disk below the log."""
        return self._storage_findings

    def digest(self) -> tuple[int, str]:
        """Take the last index in the state and the digest of all of it; walks the state.

        Blocks until the state's owner answers, so not for an event loop.

        Raises:
            TransportError: The broker is not running.
        """
        return self._running_node().digest()

    def session(self, client_id: str) -> dict[str, object] | None:
        """Take a copy of a client's stored session, None when it has none; blocks like `digest`.

        Raises:
            TransportError: The broker is not running.
        """
        return self._running_node().session(client_id)

    def _running_node(self) -> NativeNode:
        node = self._node
        if node is None:
            raise TransportError(
                "the broker is not running", hint="ask inside `async with Broker(...)`"
            )
        return node

    def tell(self, values: Mapping[str, object]) -> None:
        """Say under `$SYS/broker/…` what a companion of this broker has to say, kept for later.

        An empty value ends what was said. A broker that does not report (`sys_interval_s = 0`) or
        does not run says nothing.
        """
        node = self._node
        if node is None or not self.settings.sys_interval_s:
            return
        node.say(
            [(f"$SYS/broker/{name}", str(said).encode(), True) for name, said in values.items()]
        )

    def events(self, *, buffer_count_max: int = BUFFER_COUNT_MAX_DEFAULT) -> EventStream:
        """Watch what happens from now on; the stream ends when the broker stops.

        Raises:
            ConfigError: The buffer is empty by definition.
        """
        if buffer_count_max < 1:
            raise ConfigError(
                f"buffer_count_max = {buffer_count_max}: must be at least 1",
                hint="choose 1 or more",
            )
        stream = EventStream(buffer_count_max=buffer_count_max)
        if self.state is NodeState.STOPPED:
            stream.close()
        else:
            self._streams.append(stream)
            self._choose_news()
        return stream

    def on_event(self, callback: Callable[[BrokerEvent], None]) -> None:
        """Call `callback` for every event, in the event loop; it must return quickly."""
        self._callbacks.append(callback)
        self._choose_news()

    def note_log_level(self) -> None:
        """Look again whether the log names who comes and goes, after its level has changed."""
        self._choose_news()

    async def start(self) -> None:
        """Claim, bind and begin to accept.

        Cancelling leaves the broker stopped and everything released.

        Raises:
            ConfigError: Data directory, descriptor limit or a host name stand in the way, or the
                broker was started before.
            TransportError: An address cannot be bound; names it and the remedy.
        """
        if self.state is not NodeState.NEW:
            raise ConfigError(
                f"this broker is {self.state}; a broker starts once", hint="make a new Broker"
            )
        self._lifecycle.advance(NodeState.STARTING)
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        self._lifecycle.advance(NodeState.READY)

    async def drain(self, *, deadline_ms: int | None = None) -> bool:
        """Stop accepting and let clients leave; True when all left in time.

        A broker that is not ready has nothing to drain. `stop` must still follow; it also ends a
        drain early, so cancelling this call and stopping takes no longer than stopping.
        """
        if self.state is not NodeState.READY or self._node is None:
            return True
        self._lifecycle.advance(NodeState.DRAINING)
        deadline_ms = self.settings.limits.drain_timeout_ms if deadline_ms is None else deadline_ms
        return await asyncio.to_thread(self._node.drain, deadline_ms)

    async def stop(self) -> None:
        """End every thread and task and release everything. Idempotent, from every state."""
        if self.state is NodeState.STOPPED:
            return
        self._lifecycle.advance(NodeState.STOPPED)
        # Before the node: its descriptor is gone when it is, and the number may be reused.
        if self._pump is not None:
            self._pump.stop()
        try:
            answering = (self._desk, self._passwords, self._authentications)
            for desk in (*answering, self._system, self._came, self._left):
                if desk is not None:
                    await desk.stop()
        finally:
            await self._stop_node()
            for stream in self._streams:
                stream.close()

    async def wait_ended(self) -> None:
        """Wait until the broker failed or was stopped."""
        await self._lifecycle.wait_ended()

    async def __aenter__(self) -> Self:
        """Start, and be ready inside the block."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Give clients a moment, then stop."""
        try:
            await self.drain(deadline_ms=EXIT_DRAIN_MS)
        finally:
            await self.stop()

    async def _stop_node(self) -> None:
        """End the native half, then let others have the data directory."""
        node, self._node = self._node, None
        try:
            if node is not None:
                await _in_thread(node.stop)
        finally:
            if self._data is not None:
                self._data.release()

    async def _probe_storage(self, settings: Settings) -> None:
        """Look whether the disk below the log can be trusted (LOG-36)."""
        log = plan_log(settings)
        if log is None:
            return
        findings = await _in_thread(lambda: probe_storage(log.directory))
        enforce_storage(
            log.directory,
            findings,
            is_production=settings.profile == "production",
            is_accepted=settings.storage.accept_unsafe,
        )
        self._storage_findings = findings
        for finding in findings:
            _log.warning("storage may lose what was acknowledged", extra={"reason": finding})

    async def _start(self) -> None:
        settings = self.settings
        if settings.data is not None:
            self._data = DataDirectory.claim(settings.data)
        await self._probe_storage(settings)
        # Files are read and names resolved away from the loop: both may block.
        access = self._access = await _in_thread(lambda: Access.load(settings))
        listeners = await _in_thread(lambda: plan_listeners(settings))
        self._mechanisms = self._known_mechanisms()
        plan = NodePlan(
            listeners=listeners,
            shards=settings.shards,
            limits=settings.limits,
            connections_max=plan_connections(
                descriptors=raise_descriptor_limit(),
                wanted=settings.limits.connections_max,
                listeners=len(listeners),
                shards=settings.shards,
            ),
            ask_admission=self._authenticate is not None or access.users is not None,
            rules=access.table,
            disconnect_denied=settings.denied_publish == "disconnect",
            client_id_is_user=settings.client_id_rule == "user_name",
            auth_methods=method_names(self._mechanisms),
            tolerates_excess=settings.receive_maximum_exceeded == "tolerate",
            log=plan_log(settings),
        )
        node = self._node = self._open_node(plan)
        bound = await _in_thread(node.start)
        by_name = {listener.name: listener for listener in listeners}
        self._listeners = tuple(
            Listener(
                one.name,
                one.host,
                one.port,
                by_name[one.name].allow_anonymous,
                by_name[one.name].scheme,
                by_name[one.name].path,
            )
            for one in bound
        )
        self._start_desks(node)
        self._pump = EventPump(node, on_batch=self._on_batch)
        self._pump.start()
        self._choose_news()

    def _start_desks(self, node: NativeNode) -> None:
        """Start whoever answers clients and tells hooks."""
        limits = self.settings.limits
        timeout_ms, count_max = limits.admission_timeout_ms, limits.event_queue_count_max
        if self._authenticate is not None:
            self._desk = AdmissionDesk(
                node, self._authenticate, timeout_ms=timeout_ms, queue_count_max=count_max
            )
            self._desk.start()
        if self._access.users is not None:
            self._passwords = PasswordDesk(
                node, self._access.users, timeout_ms=timeout_ms, queue_count_max=count_max
            )
            self._passwords.start()
        if self._mechanisms:
            self._authentications = AuthDesk(
                node, self._mechanisms, timeout_ms=timeout_ms, queue_count_max=count_max
            )
            self._authentications.start()
        if self.settings.sys_interval_s:
            self._system = SystemTopics(
                node,
                interval_s=self.settings.sys_interval_s,
                version=build_facts()["version"],
                node_name=str(NODE_ID_EMBEDDED),
            )
            self._system.start()
        hooks = self._hooks
        if hooks is not None and overrides(hooks, "connected"):
            self._came = NewsDesk("connected", hooks.connected, timeout_ms=timeout_ms)
            self._came.start()
        if hooks is not None and overrides(hooks, "disconnected"):
            self._left = NewsDesk("disconnected", hooks.disconnected, timeout_ms=timeout_ms)
            self._left.start()

    def _known_mechanisms(self) -> tuple[Mechanism, ...]:
        """SCRAM for the users of the password file, and what the program adds."""
        added = () if self._hooks is None else tuple(self._hooks.mechanisms())
        if self._access.users is None:
            return added
        return (*added, ScramMechanism(lambda: self._access.users or {}))

    @property
    def access(self) -> Access:
        """Users and rules in force; safe to read from any thread."""
        return self._access

    async def reload_access(self, settings: Settings | None = None) -> None:
        """Read users, rules and certificates again; live clients follow at once.

        Allowed ones stay connected; new certificates are for new connections.

        `settings` may name other files than those the broker started with. When a file is broken
        nothing changes. Cancelling may leave the new state in force, never half of it.

        Raises:
            ConfigError: A file is broken, or passwords would be asked for that were not before.
            TransportError: The broker is not running.
        """
        settings = settings or self.settings
        if (settings.password_file is None) != (self._passwords is None):
            raise ConfigError(
                "password_file: whether there is one is settled at the start",
                hint="restart the broker",
            )
        access = await _in_thread(lambda: Access.load(settings))
        contexts = await _in_thread(lambda: load_contexts(self._with_listeners_kept(settings)))
        node = self._node
        if node is None:
            raise TransportError(
                "the broker is not running", hint="ask inside `async with Broker(...)`"
            )
        # Verdicts first: from here on none is found with the old users, and all that were are in
        # the shards' inboxes before the new policy, which ends whoever they let in wrongly.
        if self._passwords is not None and access.users is not None:
            self._passwords.replace(access.users)
        revoked = self._access.revoked_by(access)
        self._access = access
        node.set_policy(access.table, revoked_users=revoked)
        for number, context in enumerate(contexts):
            if context is not None:
                node.set_tls(number, context)

    def _with_listeners_kept(self, settings: Settings) -> Settings:
        """Take new certificates where the listeners are still the same, else only new files."""
        old, new = self.settings.listeners, settings.listeners
        return settings if [one.url for one in old] == [one.url for one in new] else self.settings

    def _choose_news(self) -> None:
        """Have the shards tell who comes and goes if anybody in Python listens.

        Most brokers have nobody, and then a connect wakes no interpreter. `$SYS` needs no word from
        here: shards see who subscribes.
        """
        listeners = (self._came, self._left, self._authentications)
        always = (
            any(one is not None for one in listeners)
            or bool(self._streams or self._callbacks)
            or self._narrator.wants_sessions
        )
        # A node is there before it runs; the pump is not.
        if self._node is not None and self._pump is not None:
            self._node.tell_sessions(always=always)

    def _on_batch(self, batch: Sequence[NativeEvent]) -> None:
        """Hand one batch to everybody concerned, those that clients wait for first."""
        self._on_requests([event for event in batch if event.kind == "admission_wanted"])
        if self._came is not None:
            self._came.on_news([news_of(e) for e in batch if e.kind == "session_opened"])
        if self._left is not None:
            self._left.on_news([news_of(e) for e in batch if e.kind == "session_closed"])
        if self._authentications is not None:
            desk = self._authentications
            desk.on_requests([e for e in batch if e.kind == "authentication_wanted"])
            gone = (e.connection for e in batch if e.kind in _GOODBYES)
            desk.forget(one for one in gone if one is not None)
        told = [event for event in batch if event.kind not in _QUESTIONS]
        if self._system is not None:
            self._system.on_events(told)
        self._narrator.on_events(told)
        for event in told:
            if event.kind == "shard_failed":
                self._lifecycle.fail(event.reason or "a shard thread failed")
        if self._streams or self._callbacks:
            self._publish([BrokerEvent.of(event) for event in told])

    def _on_requests(self, requests: Sequence[NativeEvent]) -> None:
        """Users of the password file are checked there; about all others the hook is asked."""
        passwords, desk = self._passwords, self._desk
        if not requests:
            return
        if passwords is None or desk is None:
            one = passwords or desk
            if one is not None:
                one.on_requests(requests)
            return
        known = passwords.users
        passwords.on_requests(one for one in requests if one.user_name in known)
        desk.on_requests(one for one in requests if one.user_name not in known)

    def _publish(self, events: Sequence[BrokerEvent]) -> None:
        listening = [stream for stream in self._streams if not stream.closed]
        if len(listening) < len(self._streams):
            self._streams = listening
            self._choose_news()
        for stream in self._streams:
            stream.feed(events)
        for callback in self._callbacks:
            for event in events:
                try:
                    callback(event)
                except Exception:
                    # Foreign code; its failure must not take the pump down.
                    _log.exception("an event callback failed", extra={"kind": event.kind})


async def _in_thread(blocking: Callable[[], _Result]) -> _Result:
    """Run a blocking call away from the loop, and never leave while it still runs.

    A cancelled caller goes on to `stop`; the native node must not be starting meanwhile.
    """
    running = asyncio.ensure_future(asyncio.to_thread(blocking))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


def _authenticate_of(given: Authenticate | None, hooks: Hooks | None) -> Authenticate | None:
    if hooks is None or not overrides(hooks, "authenticate"):
        return given
    if given is not None:
        raise ConfigError("authenticate and hooks both authenticate", hint="keep one of them")
    return hooks.authenticate


def _settings_of(settings: Settings | None, asked: dict[str, object]) -> Settings:
    if settings is None:
        return settings_from([FlagLayer(asked, spoken_by_caller=True)])
    if asked:
        raise ConfigError(
            f"settings and {', '.join(asked)} are both given",
            hint="pass either settings or single arguments",
        )
    return settings
