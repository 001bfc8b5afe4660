"""Drives a session over real connections: sockets, time, chance, and the two locks.

Theory of operation. One event loop owns the transport; it runs the connection's whole life in one
task and everything else in callbacks. Any thread may call the public methods: they change the
session under the *session lock* and ring the loop, once per turn, to write. What the session has to
tell is fetched under the lock and acted on after releasing it: bytes are written, messages handed
out, promises settled. So nothing that could block, and no code of the application, runs under it.

The *connection lock* guards what other threads read about the connection: whether it is up, and why
the last one ended. Where both are needed, the connection lock comes first; see
`docs/internals/locks.md`.
"""

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from quantumqtt._core import Message
from quantumqtt.client.commits import Commits
from quantumqtt.client.options import (
    LEVELS,
    Authenticator,
    Endpoint,
    SessionOptions,
    TransportOptions,
)
from quantumqtt.client.protocol import (
    Capabilities,
    Challenged,
    Connected,
    Event,
    Failed,
    Session,
    State,
)
from quantumqtt.client.receipts import Operation, Pending, Receipt
from quantumqtt.client.store import Store
from quantumqtt.client.transports import open_transport, race
from quantumqtt.errors import (
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    InternalError,
    QuantuMQTTError,
    Refused,
    ServerRedirect,
    StillStored,
    StorageError,
)
from quantumqtt.mqtt import ReasonCode

_LOG: Final = logging.getLogger(__name__)
_WRITE_BUFFER_BYTES: Final = 256 * 1024
_NO_RECORDS: Final[tuple[list[bytes], list[Receipt]]] = ([], [])
# Redirects in a row, without a connection in between, that we follow when we are told to.
_REDIRECTS_MAX: Final = 8
# How long our last words may take to leave for a peer that may not be reading any more.
_LINGER_S: Final = 1.0
# Refusals that may be over the next time; others need a person.
_TRANSIENT: Final = frozenset(
    {
        ReasonCode.UNSPECIFIED_ERROR,
        ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
        ReasonCode.SERVER_UNAVAILABLE,
        ReasonCode.SERVER_BUSY,
        ReasonCode.QUOTA_EXCEEDED,
        ReasonCode.CONNECTION_RATE_EXCEEDED,
    }
)


class Lock(AbstractContextManager[bool], Protocol):
    """What we need of a lock; tests put one in that checks the order."""


class Sink(Protocol):
    """Who gets messages. Called on the loop's thread, without locks; must not block."""

    def offer(self, messages: list[Message]) -> None:
        """Take messages, oldest first."""
        ...

    def end(self, error: QuantuMQTTError | None) -> None:
        """No more will come."""
        ...


class Observer(Protocol):
    """Who hears of the connection. Called on the loop's thread, without locks."""

    def on_connected(self, connected: Connected) -> None:
        """A connection is open."""
        ...

    def on_disconnected(self, error: QuantuMQTTError, *, final: bool) -> None:
        """A connection ended; `final` when no other will follow."""
        ...

    async def on_redirect(self, server_reference: str | None) -> str | None:
        """The server names another one: the URL to follow, or None to end."""
        ...


@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot of one client."""

    connected: bool
    connections_total: int
    unacknowledged_bytes: int
    unrouted_total: int


class _Link(asyncio.Protocol):
    """One transport's callbacks, passed on to the driver."""

    def __init__(self, driver: "Driver", endpoint: Endpoint) -> None:
        self._driver = driver
        self.endpoint = endpoint
        self.ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        # Set by whoever opens it, before the driver hears of this link.
        self.transport: asyncio.Transport

    def abort(self) -> None:
        """Drop the connection: another one was quicker."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self._driver._on_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(exc)

    def pause_writing(self) -> None:
        self._driver._on_writable(is_writable=False)

    def resume_writing(self) -> None:
        self._driver._on_writable(is_writable=True)


def _new_lock(_name: str) -> Lock:
    return threading.Lock()


class Driver:
    """One client's session on whatever connections it takes."""

    def __init__(
        self,
        session_options: SessionOptions,
        transport_options: TransportOptions,
        observer: Observer,
        *,
        receive_interceptors: Sequence[Callable[[Message], None]] = (),
        new_lock: Callable[[str], Lock] = _new_lock,
        store: Store | None = None,
        is_named: bool = True,
        new_receipt: Callable[[str, bytes, int, bytes], Receipt] = Receipt,
    ) -> None:
        self._connection_lock = new_lock("connection")
        self._lock = new_lock("session")
        self._session: Session[Sink] = Session(session_options)
        self._options = transport_options
        self._endpoints = transport_options.endpoints
        self._authenticator: Authenticator | None = session_options.authenticator
        self._observer = observer
        self._receive_interceptors = tuple(receive_interceptors)
        self._commits = Commits(store, self._on_store_failed) if store is not None else None
        self._is_named = is_named
        self._new_receipt = new_receipt
        self.recovered: tuple[Receipt, ...] = ()
        # Owned by the loop's thread.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] | None = None
        self._end_error: QuantuMQTTError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pausing: set[int] = set()
        self._awake = asyncio.Event()
        self._store_error: QuantuMQTTError | None = None
        self._first: Pending[Connected] = Pending()
        # Under the connection lock.
        self._is_connected = False
        self._last_error: QuantuMQTTError | None = None
        self._connections_total = 0
        # Under the session lock.
        self._flush_due = False
        self._is_closed = False
        self._progress: list[Pending[None]] = []
        self._progress_from = 0
        self._loop_thread = 0

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> Pending[Connected]:
        """Begin to connect, on the running loop; the result is the first connection's news."""
        assert self._loop is None, "a driver starts once"
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._task = self._loop.create_task(self._run(), name="quantumqtt client")
        return self._first

    async def stop(
        self, *, drain_s: float, session_expiry_s: int | None = None, with_will: bool = False
    ) -> None:
        """Say goodbye and end; every promise is kept or fails. Idempotent."""
        if self._is_closed:
            await self._close_store()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                await self._drain()
        task, self._task = self._task, None
        with self._lock:
            self._is_closed = True
            was_open = self._session.state is State.OPEN
            reason = ReasonCode.DISCONNECT_WITH_WILL if with_will else ReasonCode.SUCCESS
            self._session.disconnect(reason, session_expiry_s=session_expiry_s)
        if was_open and self._transport is not None:
            self._flush()
            if self._commits is not None:
                await self._commits.idle()
            self._transport.close()
            if task is not None:
                await asyncio.wait([task], timeout=self._options.connect_timeout_s)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._commits is not None:
            await self._commits.idle()
        self._end(ClientClosed("the client was closed", "open another one"))
        await self._close_store()

    async def _close_store(self) -> None:
        if self._commits is not None:
            await self._commits.close()

    def _on_store_failed(self, error: QuantuMQTTError) -> None:
        """What the broker knows and what a crash would leave must not drift apart: end."""
        self._store_error = error
        self._awake.set()
        if self._transport is not None:
            self._hang_up(error)

    async def _open_store(self) -> None:
        """Go on where an earlier process was.

        Raises:
            StorageError: The store cannot be read, is in use, or is another client's.
        """
        if self._commits is None:
            return
        contents = await self._commits.open(self.client_id, is_fixed=self._is_named)
        with self._lock:
            receipts = self._session.restore(contents, self._new_receipt)
        self.recovered = tuple(receipts)
        for receipt in receipts:
            receipt._add_waiter(partial(_report_recovered, receipt))
        self._act()

    async def _drain(self) -> None:
        while self.connected:
            with self._lock:
                if not self._session.unsettled:
                    return
                progress: Pending[None] = Pending()
                self._progress.append(progress)
                self._progress_from = self._session.unsettled_bytes
            await progress

    def _end(self, error: QuantuMQTTError) -> None:
        """Nothing will happen any more: settle everything."""
        with self._lock:
            self._is_closed = True
            self._session.close(error)
            sinks = self._session.routes.all()
        self._act()
        for sink in sinks:
            sink.end(None if isinstance(error, ClientClosed) else error)

    # --- the loop of connections --------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._open_store()
            error = await self._keep_connected()
        except StorageError as failed:
            error = failed
        except Exception as failure:
            _LOG.exception("the client's own task failed")
            error = InternalError(f"the client failed: {failure!r}", "please report this")
        if self._is_closed:
            return
        self._set_connected(error=error)
        if self._commits is not None:
            await self._commits.idle()
        self._end(error)
        if not self._first.done():
            self._first._settle(None, error)
        await self._close_store()

    async def _keep_connected(self) -> QuantuMQTTError:
        """Connect again and again; returns why there will be no other time."""
        attempt = 0
        while True:
            connections_before = self._connections()
            error = await self._live_once()
            was_open = self._connections() > connections_before
            if self._is_closed:
                self._set_connected(error=error)
                return error
            error = self._store_error or error
            if not was_open and self._may_fall_back(error):
                continue
            attempt = 1 if was_open else attempt + 1
            follows = isinstance(error, ServerRedirect) and attempt <= _REDIRECTS_MAX
            if isinstance(error, ServerRedirect) and follows:
                delay_s = await self._follow(error, attempt)
                follows = delay_s is not None
            else:
                delay_s = self._plan_next(error, attempt)
            self._set_connected(error=error)
            if was_open:
                self._observer.on_disconnected(error, final=delay_s is None)
            if delay_s is None or not (self._first.done() or follows):
                return error
            await self._pause(delay_s)
            if self._store_error is not None:
                return self._store_error

    async def _pause(self, delay_s: float) -> None:
        """Wait before the next attempt; a store that fails ends the wait."""
        self._awake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._awake.wait()

    def _may_fall_back(self, error: QuantuMQTTError) -> bool:
        is_about_version = isinstance(error, ConnectionLost) or (
            isinstance(error, Refused)
            and error.reason_code == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
        )
        with self._lock:
            if is_about_version and self._session.fall_back():
                return True
            self._session.fall_forward()
            return False

    def _plan_next(self, error: QuantuMQTTError, attempt: int) -> float | None:
        backoff = self._options.reconnect
        may_retry = error.retryable or (
            isinstance(error, Refused) and error.reason_code in _TRANSIENT
        )
        if backoff is None or not may_retry:
            return None
        return backoff.delay_s(attempt, random.random())

    async def _follow(self, redirect: ServerRedirect, attempt: int) -> float | None:
        """Ask the application whether to follow a redirect."""
        try:
            url = await self._observer.on_redirect(redirect.server_reference)
            if url is None:
                return None
            self._endpoints = (Endpoint.parse(url),)
        except Exception:
            _LOG.exception("on_redirect of the application failed, the redirect is not followed")
            return None
        # A pause from the second on: two servers may send us to each other.
        if attempt <= 1:
            return 0.0
        return self._plan_next(ConnectionLost("redirected"), attempt) or 0.0

    async def _live_once(self) -> QuantuMQTTError:
        """Connect and stay until it ends; returns why it did."""
        self._end_error = None
        loop = asyncio.get_running_loop()
        where: object = " or ".join(map(str, self._endpoints))
        opened = self._opened = loop.create_future()
        try:
            async with asyncio.timeout(self._options.connect_timeout_s):
                link = await self._connect()
                where = link.endpoint
                self._transport = link.transport
                self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
                auth_data = self._start_authentication()
                with self._lock:
                    self._session.begin(loop.time(), auth_data)
                self._flush()
                await asyncio.wait([opened, link.ended], return_when=asyncio.FIRST_COMPLETED)
            reason = await link.ended
        except TimeoutError:
            return self._after_end(
                ConnectFailed(
                    f"no connection to {where} within {self._options.connect_timeout_s:g} s",
                    "is the address right, and does an MQTT broker answer there?",
                )
            )
        except QuantuMQTTError as error:
            return self._after_end(error)
        except asyncio.CancelledError:
            self._after_end(ClientClosed("the client was closed"))
            raise
        words = f"connection to {where} lost" + (f": {reason}" if reason else "")
        return self._after_end(ConnectionLost(words))

    def _after_end(self, error: QuantuMQTTError) -> QuantuMQTTError:
        """Clean up behind a connection, whatever state it was in."""
        error = self._end_error or error
        if self._timer is not None:
            self._timer.cancel()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        with self._lock:
            self._session.lost(error)
        self._act()
        return error

    def _start_authentication(self) -> bytes | None:
        """Ask the application's authenticator to begin.

        Raises:
            ConnectFailed: It raised something that is no error of ours.
        """
        try:
            return self._authenticator.start() if self._authenticator is not None else None
        except QuantuMQTTError:
            raise
        except Exception as error:
            raise ConnectFailed(
                f"the authenticator failed: {error!r}", "it is the application's; see its error"
            ) from error

    async def _connect(self) -> _Link:
        """Make a transport to the first endpoint that answers, beginning where it was our turn.

        Raises:
            ConnectFailed: None could be made; `TlsFailed` when TLS said no.
        """
        endpoints = self._endpoints

        def attempt(endpoint: Endpoint) -> Callable[[], Coroutine[object, object, _Link]]:
            async def connect() -> _Link:
                link = _Link(self, endpoint)
                link.transport = await open_transport(endpoint, self._options, link)
                return link

            return connect

        won = await race([attempt(one) for one in endpoints], _Link.abort)
        # Should this server refuse us, the next one is asked first.
        after = won.place + 1
        self._endpoints = (*endpoints[after:], *endpoints[:after])
        return won.opened

    # --- callbacks of the loop ----------------------------------------------------------------

    def _on_data(self, data: bytes) -> None:
        with self._lock:
            self._session.receive(data)
        self._act()

    def _on_writable(self, *, is_writable: bool) -> None:
        with self._lock:
            if is_writable:
                self._session.resume_writing()
            else:
                self._session.pause_writing()
        if is_writable:
            self._act()

    def _flush(self) -> None:
        self._act()

    def _act(self) -> None:
        """Fetch under the lock what the session has to say, and do it without."""
        loop, commits = self._loop, self._commits
        session = self._session
        with self._lock:
            self._flush_due = False
            output = session.take_output(loop.time() if loop is not None else 0.0)
            events = session.take_events()
            deliveries = session.take_deliveries()
            settled = session.take_settled()
            records, accepted = session.take_records() if commits is not None else _NO_RECORDS
            progress: list[Pending[None]] = []
            if self._progress and session.unsettled_bytes < self._progress_from:
                progress, self._progress = self._progress, progress
            if self._is_closed and self._progress:
                progress, self._progress = [*progress, *self._progress], []
        transport = self._transport
        if commits is not None:
            leaving = (transport, output) if output and transport is not None else None
            commits.put(records, accepted, leaving)
            if commits.wants_rewrite(session.unsettled_bytes):
                self._rewrite_store(commits)
        elif output and transport is not None:
            transport.write(output)
        for sinks, messages in deliveries:
            if self._receive_interceptors:
                self._intercept(messages)
            for sink in sinks:
                sink.offer(messages)
        for promise in settled:
            promise._call_waiters()
        for waiting in progress:
            waiting._settle(None)
        for event in events:
            self._on_event(event)

    def _rewrite_store(self, commits: Commits) -> None:
        with self._lock:
            records, accepted = self._session.snapshot()
        commits.replace(records, accepted)

    def _intercept(self, messages: list[Message]) -> None:
        for message in messages:
            for intercept in self._receive_interceptors:
                try:
                    intercept(message)
                except Exception:
                    _LOG.exception("a receive interceptor of the application failed")

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Connected):
            self._set_connected(error=None)
            if self._pausing and self._transport is not None:
                self._transport.pause_reading()
            if self._opened is not None and not self._opened.done():
                self._opened.set_result(None)
            if event.session_lost:
                _LOG.warning("the server has lost the session of client %r", self.client_id)
            self._tick()
            if not self._first.done():
                self._first._settle(event)
            self._observer.on_connected(event)
        elif isinstance(event, Failed):
            self._hang_up(event.error)
        elif isinstance(event, Challenged):
            self._on_challenge(event)
        else:
            with self._lock:
                sinks = self._session.routes.behind(event.topic_filter)
            for sink in sinks:
                sink.end(event.error)

    def _on_challenge(self, challenge: Challenged) -> None:
        authenticator = self._authenticator
        assert authenticator is not None, "the session only asks an authenticator"
        try:
            answer = authenticator.answer(challenge.data)
        except QuantuMQTTError as error:
            self._hang_up(error)
            return
        except Exception as error:
            _LOG.exception("the authenticator of the application failed")
            self._hang_up(ConnectFailed(f"the authenticator failed: {error!r}"))
            return
        with self._lock:
            self._session.answer_challenge(answer)
        self._flush()

    def _hang_up(self, error: QuantuMQTTError) -> None:
        """End this connection from our side; a peer that does not read cannot hold us up."""
        self._end_error = error
        transport = self._transport
        if transport is not None:
            transport.close()
            assert self._loop is not None, "who has a transport has a loop"
            self._loop.call_later(_LINGER_S, transport.abort)

    def _tick(self) -> None:
        loop = self._loop
        assert loop is not None, "only a started driver ticks"
        with self._lock:
            if self._pausing:
                self._session.excuse_silence()
            deadline = self._session.tick(loop.time())
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(deadline, self._tick) if deadline is not None else None
        self._act()

    def _set_connected(self, *, error: QuantuMQTTError | None) -> None:
        with self._connection_lock:
            self._is_connected = error is None
            if error is None:
                self._connections_total += 1
            else:
                self._last_error = error

    # --- for any thread -----------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether a connection is open now."""
        with self._connection_lock:
            return self._is_connected

    @property
    def last_error(self) -> QuantuMQTTError | None:
        """Why the last connection ended; kept after the next one opens."""
        with self._connection_lock:
            return self._last_error

    @property
    def capabilities(self) -> Capabilities | None:
        """What the server can do, as of the last CONNACK."""
        with self._lock:
            return self._session.capabilities

    def carries_properties(self) -> bool:
        """Whether the connection is one of MQTT 5, or the next one shall be."""
        with self._lock:
            return self._session.level == LEVELS["5"]

    @property
    def client_id(self) -> str:
        """Our client id, the server's choice included."""
        with self._lock:
            return self._session.client_id

    def _connections(self) -> int:
        with self._connection_lock:
            return self._connections_total

    def statistics(self) -> Statistics:
        """Take a snapshot."""
        with self._connection_lock:
            connected, connections = self._is_connected, self._connections_total
            with self._lock:
                session = self._session
                return Statistics(
                    connected, connections, session.unsettled_bytes, session.unrouted_total
                )

    def publish(self, receipt: Receipt, drop_oldest: bool = False) -> None:
        """Accept a publish and see to it that it leaves.

        Raises:
            PublishQueueFull: The bound on unacknowledged bytes is reached.
            ClientClosed: The client was closed.
            LocalProtocolError: The connection's version cannot carry this.
            Refused: The server said before that it does not take this.
        """
        with self._lock:
            if self._is_closed:
                raise _closed()
            self._session.publish(receipt, drop_oldest)
            if self._flush_due:
                return
            self._flush_due = True
        self._ring()

    def can_ever_fit(self, receipt: Receipt) -> bool:
        """Whether waiting could make room for this publish."""
        with self._lock:
            return self._session.can_ever_fit(receipt.bytes_count)

    def progress(self) -> Pending[None]:
        """Something to wait for before a refused publish is tried again."""
        progress: Pending[None] = Pending()
        with self._lock:
            if self._is_closed:
                raise _closed()
            if self._session.unsettled_bytes:
                self._progress.append(progress)
                self._progress_from = self._session.unsettled_bytes
                return progress
        progress._settle(None)
        return progress

    def subscribe(self, filters: Sequence[tuple[str, int]], sink: Sink) -> Operation:
        """Let `sink` listen behind filters, and ask the server for them."""
        with self._lock:
            if self._is_closed:
                raise _closed()
            operation = self._session.subscribe(filters)
            for text, _ in filters:
                self._session.routes.add(text, sink)
            self._flush_due = True
        self._ring()
        return operation

    def unsubscribe(self, filters: Sequence[str], sink: Sink) -> Operation | None:
        """Take a listener away; ask the server when a filter has none left."""
        with self._lock:
            routes = self._session.routes
            unheard = [text for text in filters if routes.remove(text, sink)]
            if not unheard or self._is_closed:
                return None
            operation = self._session.unsubscribe(unheard)
            self._flush_due = True
        self._ring()
        return operation

    def accept(self, message: Message) -> None:
        """One subscriber is done with a message; QoS 0 needs nothing."""
        packet_id = message.packet_id
        if packet_id is None:
            return
        with self._lock:
            if self._is_closed:
                return
            self._session.accept(packet_id, message.session)
            if self._flush_due:
                return
            self._flush_due = True
        self._ring()

    def reauthenticate(self) -> None:
        """Prove again who we are.

        Raises:
            LocalProtocolError: There is no authenticator, or no open connection of MQTT 5.
        """
        data = self._authenticator.start() if self._authenticator is not None else None
        with self._lock:
            self._session.reauthenticate(data)
            self._flush_due = True
        self._ring()

    def pause_reading(self, sink: Sink) -> None:
        """Stop reading until every sink that asked has room; on the loop's thread."""
        self._pausing.add(id(sink))
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self, sink: Sink) -> None:
        """This sink has room again; from any thread."""
        if threading.get_ident() == self._loop_thread:
            self._resume(id(sink))
        elif self._loop is not None:
            self._loop.call_soon_threadsafe(self._resume, id(sink))

    def _resume(self, sink_id: int) -> None:
        self._pausing.discard(sink_id)
        if not self._pausing and self._transport is not None:
            self._transport.resume_reading()

    def _ring(self) -> None:
        """Have the loop write in its next turn."""
        loop = self._loop
        if loop is None:
            return  # not started: the first connection sends what waits
        if threading.get_ident() == self._loop_thread:
            loop.call_soon(self._flush)
            return
        try:
            loop.call_soon_threadsafe(self._flush)
        except RuntimeError as error:
            raise _closed() from error


def _report_recovered(receipt: Receipt) -> None:
    """Nobody may be there to ask what became of a publish of an earlier process."""
    error = receipt.exception()
    if error is not None and not isinstance(error, StillStored):
        _LOG.warning("a publish of an earlier process failed: %s", error)


def _closed() -> ClientClosed:
    return ClientClosed("the client is closed", "open another one")
