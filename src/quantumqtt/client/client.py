"""`Client`: MQTT for asyncio."""

import asyncio
import inspect
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, Self, overload

from quantumqtt._core import Message
from quantumqtt.client.backoff import Backoff
from quantumqtt.client.driver import Driver, Statistics
from quantumqtt.client.filters import RetainHandling, options_byte, with_options
from quantumqtt.client.inbox import QUEUE_COUNT_MAX, Overflow
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
from quantumqtt.client.receipts import Receipt
from quantumqtt.client.replies import Replies, timed_out
from quantumqtt.client.store import FileStore, Store
from quantumqtt.client.streams import Delivery, Stream
from quantumqtt.errors import PublishQueueFull, QuantuMQTTError
from quantumqtt.mqtt.properties import UserProperties

RedirectHook = Callable[[str | None], Awaitable[str | None] | str | None]
Handler = Callable[[Message], Awaitable[object] | object]
Full = Literal["wait", "raise", "drop_oldest"]
_LOG = logging.getLogger(__name__)
_DRAIN_S = 5.0


class Client:
    """An MQTT client for asyncio: 5.0, 3.1.1 and 3.1, reconnecting, with receipts that mean it.

    ```
    async with Client("mqtt://localhost") as client:
        await client.publish("greeting", "hello", qos=1)
        async for message in client.subscribe("greeting/#", qos=1):
            print(message.topic, message.payload)
    ```

    Entering the context waits for the first connection; leaving it waits for what is accepted,
    says goodbye and fails whatever could not be finished. In between, lost connections are made
    again. Every argument is checked here, before anything is sent.
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
        on_redirect: RedirectHook | None = None,
    ) -> None:
        """Say where the broker is and how to behave; nothing is sent yet.

        Args:
            url: `mqtt://host:port`, `mqtts://…` for TLS, `ws://…/path` and `wss://…` for
                WebSocket, or `unix:///path`; credentials may stand in it. Of several, the first
                that answers is taken, each next one asked when those before it are slow.
            client_id: Empty makes one up, new for every client.
            user_name: Who we are.
            password: And how we prove it.
            version: `auto` speaks 5.0 and falls back to 3.1.1 when the server refuses.
            clean_start: Whether the first connection starts without what an earlier client of
                this id left behind.
            session_expiry_s: How long the server keeps the session after a connection. By default
                it survives broken connections and ends when the client is closed.
            keep_alive_s: Ping when idle; 0 never. A missing answer counts as a lost connection.
            will: What the server publishes when we vanish.
            tls: A context with your own authorities or certificates, see
                `quantumqtt.client.tls_context`; the system's by default.
            tls_server_name: The name in the server's certificate, if not the host.
            proxy: `socks5://host:1080` or `http://host:3128` (CONNECT), with credentials if needed.
            websocket_headers: Go with the request of a WebSocket: cookies, tokens.
            store: A file (or a store of your own) in which accepted QoS 1 and 2 publishes, received
                QoS 2 ids and subscriptions survive a crash; the session is then kept for good, and
                the client id is the store's, unless you give one.
            authenticator: Enhanced authentication, see `quantumqtt.client.auth`.
            connect_timeout_s: How long one attempt may take, until the server's answer.
            reconnect: When to try again; None never does.
            receive_maximum: Unacknowledged QoS 1 and 2 messages the server may send us.
            inflight_max: Unacknowledged publishes we send at once, if the server allows as many.
            packet_bytes_max: The largest packet we take.
            queue_bytes_max: Bytes of publishes that are accepted and not acknowledged.
            topic_alias_maximum: Topic aliases we let the server use.
            topic_aliases: Whether we use those the server offers.
            user_properties: Go with CONNECT.
            publish_interceptors: See every publish first; may change it, or refuse by raising.
            receive_interceptors: See every message before its stream hands it out.
            on_connected: Called (or awaited in a task) for every connection.
            on_disconnected: Called (or awaited in a task) with the reason.
            on_redirect: Asked (or awaited) when a server names another one; returns the URL to
                follow, or None.

        Raises:
            LocalProtocolError: An argument breaks MQTT.
            ValueError: An argument makes no sense; names it.
        """
        endpoints = endpoints_of(url)
        named = next((one for one in endpoints if one.user_name is not None), endpoints[0])
        secret = password if password is not None else named.password
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
                request_response_information=False,
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
        )
        self._make = Press(
            publish_interceptors, carries_properties=self._driver.carries_properties
        ).make
        self._accept = self._driver.publish
        self._hooks = (on_connected, on_disconnected)
        self._on_redirect = on_redirect
        self._tasks: set[asyncio.Task[object]] = set()
        self._replies = Replies(self._driver)

    # --- life ---------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Connect; see `connect`."""
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close; see `close`."""
        await self.close()

    async def connect(self) -> Connected:
        """Wait for the first connection. A client connects once and then keeps itself connected.

        Raises:
            ConnectFailed: No connection came about.
            Refused: The server said no; `NotAuthorized` when it is about who we are.
        """
        try:
            return await self._driver.start()
        except BaseException:
            await self._driver.stop(drain_s=0)
            raise

    async def close(
        self,
        *,
        drain_s: float = _DRAIN_S,
        session_expiry_s: int | None = None,
        with_will: bool = False,
    ) -> None:
        """Say goodbye. Waits up to `drain_s` for accepted publishes; what remains fails.

        `with_will` asks the server to publish the will all the same (MQTT 5; before it, a goodbye
        always ends the will). Idempotent. After it no task, thread or socket of this client is
        left.
        """
        await self._driver.stop(
            drain_s=drain_s, session_expiry_s=session_expiry_s, with_will=with_will
        )
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def connected(self) -> bool:
        """Whether a connection is open now."""
        return self._driver.connected

    @property
    def last_disconnect(self) -> QuantuMQTTError | None:
        """Why the last connection ended."""
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
        """Publishes that an earlier process left in the store; known once we are connected.

        They are sent by themselves; ask them, or await them, for what became of them.
        """
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

    # --- publish ------------------------------------------------------------------------------

    def publish_nowait(
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
    ) -> Receipt:
        """Accept a publish and return its receipt; await the receipt for the acknowledgement.

        While there is no connection, accepted publishes wait for the next one.

        Raises:
            PublishQueueFull: `queue_bytes_max` is reached; nothing was accepted.
            LocalProtocolError: An argument breaks MQTT.
            Refused: The server said before that it does not take this.
            ClientClosed: The client was closed.
        """
        receipt = self._make(
            topic, payload, qos, retain, content_type, response_topic, correlation_data,
            message_expiry_s, payload_is_utf8, user_properties,
        )  # fmt: skip
        self._accept(receipt)
        return receipt

    async def publish(
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
        full: Full = "wait",
    ) -> int:
        """Publish and wait for the acknowledgement (QoS 0: until the bytes left).

        Returns the server's reason code: 0, or 16 when nobody subscribes to this.

        Cancelling stops the wait; an accepted publish goes on.

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
            full: What to do while `queue_bytes_max` is reached.

        Raises:
            PublishQueueFull: The queue is full, and `full` says not to wait.
            LocalProtocolError: An argument breaks MQTT.
            Refused: The server refused it, with its reason code.
            SessionLost: At QoS 2, whether it arrived cannot be known any more.
            ClientClosed: The client was closed before the acknowledgement.
        """
        receipt = self._make(
            topic, payload, qos, retain, content_type, response_topic, correlation_data,
            message_expiry_s, payload_is_utf8, user_properties,
        )  # fmt: skip
        while True:
            try:
                self._driver.publish(receipt, drop_oldest=full == "drop_oldest")
                break
            except PublishQueueFull:
                if full != "wait" or not self._driver.can_ever_fit(receipt):
                    raise
                await self._driver.progress()
        return await receipt

    # --- subscribe ----------------------------------------------------------------------------

    @overload
    def subscribe(
        self,
        topic_filters: str | Sequence[str],
        *,
        qos: int = ...,
        manual_ack: Literal[False] = ...,
        no_local: bool = ...,
        retain_as_published: bool = ...,
        retain_handling: RetainHandling = ...,
        queue_count_max: int = ...,
        overflow: Overflow = ...,
    ) -> Stream[Message]: ...

    @overload
    def subscribe(
        self,
        topic_filters: str | Sequence[str],
        *,
        qos: int = ...,
        manual_ack: Literal[True],
        no_local: bool = ...,
        retain_as_published: bool = ...,
        retain_handling: RetainHandling = ...,
        queue_count_max: int = ...,
        overflow: Overflow = ...,
    ) -> Stream[Delivery]: ...

    def subscribe(
        self,
        topic_filters: str | Sequence[str],
        *,
        qos: int = 0,
        manual_ack: bool = False,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: RetainHandling = "send",
        queue_count_max: int = QUEUE_COUNT_MAX,
        overflow: Overflow = "drop_oldest",
    ) -> Stream[Message] | Stream[Delivery]:
        """Subscribe at once and return the stream; `await stream.ready` for the server's answer.

        Works before `connect`, too: a resumed session then finds its listeners in place. The
        subscription is made again whenever the server has forgotten it.

        Args:
            topic_filters: One filter or several; `$share/{group}/…` shares the messages.
            qos: The highest QoS of messages for us.
            manual_ack: Whether messages wait for `await message.ack()`.
            no_local: Whether our own publishes stay away (MQTT 5).
            retain_as_published: Whether `retain` shows how it was published (MQTT 5).
            retain_handling: Which retained messages come first (MQTT 5).
            queue_count_max: How many messages may wait in this stream.
            overflow: What happens to QoS 0 beyond that; see `quantumqtt.client.inbox`.

        Raises:
            LocalProtocolError: A filter breaks MQTT.
            ClientClosed: The client was closed.
        """
        options = options_byte(
            qos,
            no_local=no_local,
            retain_as_published=retain_as_published,
            retain_handling=retain_handling,
        )
        filters = with_options(topic_filters, options)
        if manual_ack:
            return Stream(
                self._driver,
                filters,
                kind=Delivery,
                queue_count_max=queue_count_max,
                overflow=overflow,
            )
        return Stream(
            self._driver,
            filters,
            kind=Message,
            queue_count_max=queue_count_max,
            overflow=overflow,
        )

    def handle(
        self,
        topic_filters: str | Sequence[str],
        handler: Handler,
        *,
        qos: int = 0,
        parallel: int = 1,
        queue_count_max: int = QUEUE_COUNT_MAX,
        overflow: Overflow = "drop_oldest",
    ) -> Stream[Message]:
        """Call (or await) `handler` for every message, in order unless `parallel` is above 1.

        A handler that raises is logged and goes on with the next message, which is acknowledged
        all the same. Close the returned stream to stop.

        Raises:
            LocalProtocolError: A filter breaks MQTT.
            ClientClosed: The client was closed.
        """
        if parallel < 1:
            raise ValueError("parallel is at least 1")
        stream = self.subscribe(
            topic_filters, qos=qos, queue_count_max=queue_count_max, overflow=overflow,
            manual_ack=True,
        )  # fmt: skip
        for _ in range(parallel):
            self._spawn(_feed(stream, handler))
        return stream  # type: ignore[return-value]

    # --- request and response -----------------------------------------------------------------

    async def request(
        self,
        topic: str,
        payload: Payload = b"",
        *,
        timeout: float = 10.0,  # noqa: ASYNC109 - the answer's deadline is part of the request
        qos: int = 1,
        content_type: str | None = None,
        user_properties: UserProperties = (),
    ) -> Message:
        """Publish a request of MQTT 5 and wait for its response.

        Raises:
            ResponseTimeout: No response came in time.
            LocalProtocolError: The connection is older than MQTT 5.
        """
        topic_of_ours, ready = self._replies.begin()
        correlation, response = self._replies.expect()
        try:
            async with asyncio.timeout(timeout):
                await ready
                await self.publish(
                    topic,
                    payload,
                    qos=qos,
                    content_type=content_type,
                    response_topic=topic_of_ours,
                    correlation_data=correlation,
                    user_properties=user_properties,
                )
                return await response
        except TimeoutError as error:
            raise timed_out(topic, timeout) from error
        finally:
            self._replies.forget(correlation)

    async def respond(self, request: Message, payload: Payload = b"", *, qos: int = 1) -> int:
        """Answer a request where its sender asked for the answer.

        Raises:
            ValueError: The message names no response topic.
        """
        if request.response_topic is None:
            raise ValueError("this message asks for no response")
        return await self.publish(
            request.response_topic, payload, qos=qos, correlation_data=request.correlation_data
        )

    # --- for the driver -----------------------------------------------------------------------

    def on_connected(self, connected: Connected) -> None:
        """Pass a connection on to the application."""
        self._call(self._hooks[0], connected)

    def on_disconnected(self, error: QuantuMQTTError, *, final: bool) -> None:
        """Pass a loss on to the application."""
        self._call(self._hooks[1], error)

    async def on_redirect(self, server_reference: str | None) -> str | None:
        """Ask the application where to go; without its word we follow nobody."""
        if self._on_redirect is None:
            return None
        answer = self._on_redirect(server_reference)
        return await answer if inspect.isawaitable(answer) else answer

    def _call(self, hook: Callable[..., object] | None, argument: object) -> None:
        if hook is not None:
            self._spawn(_run_hook(hook, argument))

    def _spawn(self, work: Awaitable[object]) -> None:
        task: asyncio.Task[object] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _run_hook(hook: Callable[..., object], argument: object) -> None:
    try:
        result = hook(argument)
        if inspect.isawaitable(result):
            await result
    except Exception:
        _LOG.exception("a callback of the application failed")


async def _feed(stream: Stream[Delivery], handler: Handler) -> None:
    try:
        async for message in stream:
            try:
                result = handler(message)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                _LOG.exception("a message handler of the application failed")
            await message.ack()
    except QuantuMQTTError:
        _LOG.exception("a subscription ended")
