"""`SyncClient`: the same client for threads.

Theory of operation. One thread of our own runs an event loop with the same `Driver` the asyncio
client uses. Publishing, subscribing and acknowledging happen in the caller's thread, under the
session lock, and ring the loop; nothing is passed through a queue of calls. Messages cross to the
application in bounded rows, each with a lock of its own; callbacks run on threads that are neither
the loop's nor the caller's, one per subscription unless more were asked for. Locks and their order:
`docs/internals/locks.md`.
"""

import asyncio
import logging
import os
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Final, Literal, Self, TypeVar

from quantumqtt._core import Message
from quantumqtt.client.backoff import Backoff
from quantumqtt.client.driver import Driver, Lock, Statistics
from quantumqtt.client.filters import RetainHandling, options_byte, with_options
from quantumqtt.client.inbox import QUEUE_COUNT_MAX, Inbox, Overflow
from quantumqtt.client.options import (
    Authenticator,
    Payload,
    SessionOptions,
    TransportOptions,
    Version,
    Will,
    endpoints_of,
    new_client_id,
    payload_bytes,
)
from quantumqtt.client.protocol import Capabilities, Connected
from quantumqtt.client.proxies import Proxy
from quantumqtt.client.publishing import Press, PublishInterceptor
from quantumqtt.client.receipts import Operation, Pending, Receipt
from quantumqtt.client.replies import Replies, timed_out
from quantumqtt.client.store import FileStore, Store
from quantumqtt.client.workers import Worker
from quantumqtt.errors import ClientClosed, PublishQueueFull, QuantuMQTTError
from quantumqtt.mqtt.properties import UserProperties

_LOG: Final = logging.getLogger(__name__)
_JOIN_S: Final = 5.0

Result = TypeVar("Result")
MessageCallback = Callable[[Message], object]


class Token(Receipt):
    """The receipt of a publish from a thread: `wait(timeout)`, `add_done_callback`, `future()`.

    Callbacks run one after the other on a thread that exists for them, never on the protocol's.
    """

    __slots__ = ("_callbacks",)
    _callbacks: Worker

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Have `callback` called with this token once the outcome is known."""
        worker = self._callbacks
        self._add_waiter(lambda: worker.post(lambda: callback(self)))


class Subscription:
    """One subscription of a `SyncClient`: iterate it, `get` from it, or give it a callback.

    A QoS 1 or 2 message is acknowledged when the callback returned, or when the iteration comes
    back for the next one; with manual acknowledgements, by `ack(message)`.

    Attributes:
        ready: The server's answer; `ready.wait(timeout)`.
    """

    def __init__(
        self,
        driver: Driver,
        filters: Sequence[tuple[str, int]],
        *,
        callback: MessageCallback | None,
        parallel: int,
        manual_ack: bool,
        queue_count_max: int,
        overflow: Overflow,
        new_lock: Callable[[str], threading.Lock],
    ) -> None:
        self._driver = driver
        self._filters = tuple(text for text, _ in filters)
        self._name = ", ".join(self._filters)
        self._inbox = Inbox(self._name, count_max=queue_count_max, overflow=overflow)
        self._changed = threading.Condition(new_lock("subscription"))
        self._is_manual = manual_ack
        self._ended = False
        self._is_paused = False
        self._error: QuantuMQTTError | None = None
        self._working_on = threading.local()
        self._threads: list[threading.Thread] = []
        self.ready: Operation = driver.subscribe(filters, self)
        if callback is not None:
            for number in range(parallel):
                thread = threading.Thread(
                    target=self._serve,
                    args=(callback,),
                    name=f"quantumqtt {self._name} {number}",
                    daemon=True,
                )
                self._threads.append(thread)
                thread.start()

    @property
    def filters(self) -> tuple[str, ...]:
        """What this subscription listens to."""
        return self._filters

    @property
    def dropped_total(self) -> int:
        """QoS 0 messages that the overflow policy dropped."""
        return self._inbox.dropped_total

    def get(self, timeout: float | None = None) -> Message:
        """Wait for one message.

        Raises:
            TimeoutError: None came in time.
            ClientClosed: The subscription or its client was closed.
            QuantuMQTTError: The subscription was lost; says why.
        """
        message = self._take(timeout)
        if message is None:
            raise self._error or ClientClosed(f"the subscription {self._name!r} is closed")
        return message

    def __iter__(self) -> Iterator[Message]:
        """Iterate until the subscription is closed; several threads may share one."""
        while (message := self._take(None)) is not None:
            yield message
        if self._error is not None:
            raise self._error

    def ack(self, message: Message) -> None:
        """Tell the broker that this message is done; for manual acknowledgements."""
        self._driver.accept(message)

    def close(self, timeout: float | None = _JOIN_S) -> None:
        """Unsubscribe, unless another subscription listens to the same filter."""
        if self._ended:
            return
        operation = self._driver.unsubscribe(self._filters, self)
        self.end(None)
        with self._changed:
            left = list(self._inbox.row)
            self._inbox.row.clear()
        for message in left:
            self._driver.accept(message)
        if operation is not None and self._driver.connected:
            operation.wait(timeout)

    def _take(self, timeout: float | None) -> Message | None:
        """Take the next message; None when no more will come."""
        self._accept_last()
        row = self._inbox.row
        with self._changed:
            if not self._changed.wait_for(lambda: row or self._ended, timeout):
                raise TimeoutError(f"no message on {self._name!r} within {timeout} s")
            if not row:
                return None
            message = row.popleft()
            resumes = self._is_paused and self._inbox.is_low
            self._is_paused = self._is_paused and not resumes
        if resumes:
            self._driver.resume_reading(self)
        if message.qos and not self._is_manual:
            self._working_on.message = message
        return message

    def _accept_last(self) -> None:
        message: Message | None = getattr(self._working_on, "message", None)
        if message is not None:
            self._working_on.message = None
            self._driver.accept(message)

    def _serve(self, callback: MessageCallback) -> None:
        while (message := self._take(None)) is not None:
            try:
                callback(message)
            except Exception:
                _LOG.exception("a message callback of the application failed")

    def join(self, timeout_s: float) -> bool:
        """Wait for the callback threads; False when one is still at work."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout_s)
        return not any(thread.is_alive() for thread in self._threads)

    # --- for the driver, on the loop's thread -------------------------------------------------

    def offer(self, messages: list[Message]) -> None:
        """Take messages from the driver."""
        with self._changed:
            if not self._ended:
                has_room = self._inbox.put(messages)
                pauses = not has_room and not self._is_paused
                self._is_paused = self._is_paused or pauses
                error = self._inbox.error
                self._changed.notify(len(messages))
                messages = []
            else:
                pauses, error = False, None
        for message in messages:
            self._driver.accept(message)
        if pauses:
            self._driver.pause_reading(self)
        if error is not None:
            self._driver.unsubscribe(self._filters, self)
            self.end(error)

    def end(self, error: QuantuMQTTError | None) -> None:
        """Let those who wait know that no more will come."""
        with self._changed:
            if self._ended:
                return
            self._ended = True
            self._error = error
            was_paused, self._is_paused = self._is_paused, False
            self._changed.notify_all()
        if was_paused:
            self._driver.resume_reading(self)


class SyncClient:
    """An MQTT client for threads; every method may be called from any thread and any callback.

    ```
    with SyncClient("mqtt://localhost") as client:
        client.subscribe("greeting/#", lambda message: print(message.payload), qos=1)
        client.publish("greeting", "hello", qos=1).wait(timeout=5)
    ```

    Arguments are those of `Client`.
    """

    def __init__(
        self,
        url: str | Sequence[str] = "mqtt://localhost",
        *,
        client_id: str = "",
        user_name: str | None = None,
        password: str | bytes | None = None,
        version: Version = "auto",
        clean_start: bool = True,
        session_expiry_s: int | None = None,
        keep_alive_s: int = 60,
        will: Will | None = None,
        tls: ssl.SSLContext | None = None,
        tls_server_name: str | None = None,
        proxy: str | None = None,
        websocket_headers: Mapping[str, str] | None = None,
        store: Store | str | os.PathLike[str] | None = None,
        authenticator: Authenticator | None = None,
        connect_timeout_s: float = 10.0,
        reconnect: Backoff | None = Backoff(),  # noqa: B008 - frozen
        receive_maximum: int = 1024,
        inflight_max: int = 1024,
        packet_bytes_max: int = 64 * 1024 * 1024,
        queue_bytes_max: int = 64 * 1024 * 1024,
        topic_alias_maximum: int = 0,
        topic_aliases: bool = False,
        user_properties: UserProperties = (),
        publish_interceptors: Sequence[PublishInterceptor] = (),
        receive_interceptors: Sequence[Callable[[Message], None]] = (),
        on_connected: Callable[[Connected], object] | None = None,
        on_disconnected: Callable[[QuantuMQTTError], object] | None = None,
        on_redirect: Callable[[str | None], str | None] | None = None,
        new_lock: Callable[[str], threading.Lock] | None = None,
    ) -> None:
        """Say where the broker is and how to behave; nothing is sent yet.

        Raises:
            LocalProtocolError: An argument breaks MQTT.
            ValueError: An argument makes no sense; names it.
        """
        endpoints = endpoints_of(url)
        named = next((one for one in endpoints if one.user_name is not None), endpoints[0])
        secret = password if password is not None else named.password
        self._new_lock = new_lock or _new_lock
        self._connected_worker = Worker("quantumqtt on_connected")
        self._disconnected_worker = Worker("quantumqtt on_disconnected")
        self._token_worker = Worker("quantumqtt tokens")
        driver_lock: Callable[[str], Lock] = self._new_lock
        self._driver = Driver(
            SessionOptions(
                client_id=client_id or new_client_id(),
                version=version,
                user_name=user_name if user_name is not None else named.user_name,
                password=payload_bytes(secret) if secret is not None else None,
                keep_alive_s=keep_alive_s,
                clean_start=clean_start,
                session_expiry_s=session_expiry_s,
                will=will,
                authenticator=authenticator,
                user_properties=user_properties,
                receive_maximum=receive_maximum,
                inflight_max=inflight_max,
                packet_bytes_max=packet_bytes_max,
                queue_bytes_max=queue_bytes_max,
                topic_alias_maximum=topic_alias_maximum,
                topic_aliases=topic_aliases,
                is_stored=store is not None,
            ),
            TransportOptions(
                endpoints=endpoints,
                tls=tls,
                tls_server_name=tls_server_name,
                proxy=Proxy.parse(proxy) if proxy is not None else None,
                websocket_headers=dict(websocket_headers or {}),
                connect_timeout_s=connect_timeout_s,
                reconnect=reconnect,
            ),
            self,
            receive_interceptors=receive_interceptors,
            store=FileStore(store) if isinstance(store, str | os.PathLike) else store,
            is_named=bool(client_id),
            new_lock=driver_lock,
            new_receipt=self._new_token,
        )
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected
        self._on_redirect = on_redirect
        self._make = Press(
            publish_interceptors, self._new_token, self._driver.carries_properties
        ).make
        self._replies = Replies(self._driver)
        self._subscriptions: list[Subscription] = []
        self._state_lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def _new_token(self, topic: str, payload: bytes, flags: int, properties: bytes) -> Token:
        token = Token(topic, payload, flags, properties)
        token._callbacks = self._token_worker
        return token

    # --- life ---------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Connect; see `connect`."""
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        """Close; see `close`."""
        self.close()

    def connect(self) -> Connected:
        """Start the client's thread and wait for the first connection.

        Raises:
            ConnectFailed: No connection came about.
            Refused: The server said no; `NotAuthorized` when it is about who we are.
        """
        with self._state_lock:
            if self._thread is not None or self._is_closed:
                raise ClientClosed("a client connects once", "open another one")
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._run_loop, args=(self._loop,), name="quantumqtt client", daemon=True
            )
            self._thread.start()
        try:
            return self._on_loop(self._start()).wait()
        except BaseException:
            self.close(drain_s=0)
            raise

    async def _start(self) -> Pending[Connected]:
        return self._driver.start()

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()

    def _on_loop(self, work: Coroutine[object, object, Result]) -> Result:
        loop = self._loop
        assert loop is not None, "the loop was started"
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    def close(self, *, drain_s: float = _JOIN_S, session_expiry_s: int | None = None) -> None:
        """Say goodbye. Waits up to `drain_s` for accepted publishes; what remains fails.

        Idempotent, and allowed from a callback. Callback threads that are still busy afterwards
        end with their callback.
        """
        with self._state_lock:
            was_closed, self._is_closed = self._is_closed, True
            loop, thread = self._loop, self._thread
        if was_closed:
            return
        stopping = self._driver.stop(drain_s=drain_s, session_expiry_s=session_expiry_s)
        if loop is None or thread is None:
            # Never connected, but promises may have been made. A loop may run in this thread, so
            # the stop gets a thread of its own.
            stopper = threading.Thread(target=asyncio.run, args=(stopping,), name="quantumqtt stop")
            stopper.start()
            stopper.join()
        else:
            self._on_loop(stopping)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_JOIN_S)
        for subscription in self._subscriptions:
            subscription.end(None)
            subscription.join(_JOIN_S)
        for worker in (self._token_worker, self._connected_worker, self._disconnected_worker):
            worker.close(_JOIN_S)

    @property
    def connected(self) -> bool:
        """Whether a connection is open now."""
        return self._driver.connected

    @property
    def last_disconnect(self) -> QuantuMQTTError | None:
        """Why the last connection ended; kept after the next one opens."""
        return self._driver.last_error

    @property
    def client_id(self) -> str:
        """Our client id, the server's choice included."""
        return self._driver.client_id

    @property
    def capabilities(self) -> Capabilities | None:
        """What the server can do; None before the first connection."""
        return self._driver.capabilities

    @property
    def recovered(self) -> tuple[Receipt, ...]:
        """Publishes an earlier process left in the store, as tokens; see `Client.recovered`."""
        return self._driver.recovered

    def statistics(self) -> Statistics:
        """Take a snapshot of counters."""
        return self._driver.statistics()

    def reauthenticate(self) -> None:
        """Prove again who we are, before a token expires.

        Raises:
            LocalProtocolError: There is no authenticator, or no open connection of MQTT 5.
        """
        self._driver.reauthenticate()

    # --- publish and subscribe ----------------------------------------------------------------

    def publish(
        self,
        topic: str,
        payload: Payload = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        content_type: str | None = None,
        response_topic: str | None = None,
        correlation_data: bytes | None = None,
        message_expiry_s: int | None = None,
        payload_is_utf8: bool | None = None,
        user_properties: UserProperties = (),
        full: Literal["wait", "raise", "drop_oldest"] = "raise",
        full_timeout: float | None = None,
    ) -> Token:
        """Accept a publish and return its token; never waits for the network.

        Args:
            topic: A topic name, without wildcards.
            payload: Bytes, or text which becomes UTF-8.
            qos: 0, 1 or 2.
            retain: Whether the server keeps it for later subscribers.
            content_type: What the payload is; this and all below need MQTT 5.
            response_topic: Where an answer should go.
            correlation_data: Ties an answer to its request.
            message_expiry_s: After how many seconds it is stale.
            payload_is_utf8: Whether the payload is text.
            user_properties: Names and values of your own; a mapping or pairs.
            full: What to do while `queue_bytes_max` is reached; `wait` blocks this thread.
            full_timeout: How long `wait` may block.

        Raises:
            PublishQueueFull: The queue is full, and `full` says not to wait.
            TimeoutError: It stayed full for `full_timeout`; nothing was accepted.
            LocalProtocolError: An argument breaks MQTT.
            Refused: The server said before that it does not take this.
            ClientClosed: The client was closed.
        """
        token = self._make(
            topic, payload, qos, retain, content_type, response_topic, correlation_data,
            message_expiry_s, payload_is_utf8, user_properties,
        )  # fmt: skip
        assert isinstance(token, Token), "the press makes what it was told to make"
        while True:
            try:
                self._driver.publish(token, drop_oldest=full == "drop_oldest")
            except PublishQueueFull:
                if full != "wait" or not self._driver.can_ever_fit(token):
                    raise
                self._driver.progress().wait(full_timeout)
            else:
                return token

    def subscribe(
        self,
        topic_filters: str | Sequence[str],
        callback: MessageCallback | None = None,
        *,
        qos: int = 0,
        parallel: int = 1,
        manual_ack: bool = False,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: RetainHandling = "send",
        queue_count_max: int = QUEUE_COUNT_MAX,
        overflow: Overflow = "drop_oldest",
    ) -> Subscription:
        """Subscribe at once; `subscription.ready.wait()` for the server's answer.

        With a callback, messages come in order on a thread of this subscription's own; `parallel`
        above 1 asks for that many threads and gives up the order. Without one, iterate over the
        subscription or `get` from it.

        Raises:
            LocalProtocolError: A filter breaks MQTT.
            ClientClosed: The client was closed.
        """
        if parallel < 1:
            raise ValueError("parallel is at least 1")
        options = options_byte(
            qos,
            no_local=no_local,
            retain_as_published=retain_as_published,
            retain_handling=retain_handling,
        )
        subscription = Subscription(
            self._driver,
            with_options(topic_filters, options),
            callback=callback,
            parallel=parallel,
            manual_ack=manual_ack,
            queue_count_max=queue_count_max,
            overflow=overflow,
            new_lock=self._new_lock,
        )
        with self._state_lock:
            self._subscriptions = [one for one in self._subscriptions if not one._ended]
            self._subscriptions.append(subscription)
        return subscription

    # --- request and response -----------------------------------------------------------------

    def request(
        self,
        topic: str,
        payload: Payload = b"",
        *,
        timeout: float = 10.0,
        qos: int = 1,
        content_type: str | None = None,
        user_properties: UserProperties = (),
    ) -> Message:
        """Publish a request of MQTT 5 and wait for its response; any number of threads may.

        Raises:
            ResponseTimeout: No response came in time.
            LocalProtocolError: The connection is older than MQTT 5.
        """
        ends_at = time.monotonic() + timeout
        topic_of_ours, ready = self._replies.begin()
        correlation, response = self._replies.expect()
        try:
            ready.wait(ends_at - time.monotonic())
            token = self.publish(
                topic,
                payload,
                qos=qos,
                content_type=content_type,
                response_topic=topic_of_ours,
                correlation_data=correlation,
                user_properties=user_properties,
            )
            token.wait(ends_at - time.monotonic())
            return response.wait(ends_at - time.monotonic())
        except TimeoutError as error:
            raise timed_out(topic, timeout) from error
        finally:
            self._replies.forget(correlation)

    def respond(self, request: Message, payload: Payload = b"", *, qos: int = 1) -> Token:
        """Answer a request where its sender asked for the answer.

        Raises:
            ValueError: The message names no response topic.
        """
        if request.response_topic is None:
            raise ValueError("this message asks for no response")
        return self.publish(
            request.response_topic, payload, qos=qos, correlation_data=request.correlation_data
        )

    # --- for the driver, on the loop's thread -------------------------------------------------

    def on_connected(self, connected: Connected) -> None:
        """Pass a connection on to the application, on a thread of its own."""
        callback = self._on_connected
        if callback is not None:
            self._connected_worker.post(lambda: callback(connected))

    def on_disconnected(self, error: QuantuMQTTError, *, final: bool) -> None:
        """Pass a loss on to the application, on a thread of its own."""
        callback = self._on_disconnected
        if callback is not None:
            self._disconnected_worker.post(lambda: callback(error))

    async def on_redirect(self, server_reference: str | None) -> str | None:
        """Ask the application where to go, on the thread that also tells it of losses."""
        decide = self._on_redirect
        if decide is None:
            return None
        decided: Pending[str | None] = Pending()

        def ask() -> None:
            try:
                url = decide(server_reference)
            except Exception as error:
                decided._settle(None, error)
            else:
                decided._settle(url)

        self._disconnected_worker.post(ask)
        return await decided


def _new_lock(_name: str) -> threading.Lock:
    return threading.Lock()
