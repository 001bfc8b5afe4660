"""aiomqtt's names over our client: `import quantumqtt.compat.aiomqtt as aiomqtt`.

Programs written for aiomqtt 2.x run as they are, their loop around the context included: a lost
connection raises `MqttError` as it does there, and entering the context again connects again.
Messages wait in a bounded row, and QoS 1 and 2 are acknowledged when the loop comes back for the
next one. What is not there (`queue_type`, socket options, paho's own proxies) is no argument here.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal, Self

from quantumqtt import client as ours
from quantumqtt.client.filters import options_byte, with_options
from quantumqtt.client.inbox import QUEUE_COUNT_MAX, Inbox
from quantumqtt.client.options import Version
from quantumqtt.client.routes import matches
from quantumqtt.compat.paho.packettypes import PacketTypes
from quantumqtt.compat.paho.properties import Properties, message_properties
from quantumqtt.compat.paho.subscribeoptions import SubscribeOptions
from quantumqtt.errors import LocalProtocolError, QuantuMQTTError, Refused
from quantumqtt.mqtt import TopicFilter, TopicName

__all__ = [
    "Client",
    "Message",
    "MqttCodeError",
    "MqttError",
    "MqttReentrantError",
    "ProtocolVersion",
    "TLSParameters",
    "Topic",
    "Wildcard",
    "Will",
]

PayloadType = str | bytes | bytearray | int | float | None
SubscribeTopic = (
    str
    | tuple[str, int]
    | tuple[str, SubscribeOptions]
    | Sequence[tuple[str, int]]
    | Sequence[tuple[str, SubscribeOptions]]
)


class MqttError(Exception):
    """What went wrong; the error of ours is its cause."""


class MqttCodeError(MqttError):
    """The broker said no, and with which code.

    Attributes:
        rc: The reason code.
    """

    def __init__(self, rc: int | None, *arguments: object) -> None:
        """Keep the code beside the words."""
        super().__init__(*arguments)
        self.rc = rc


class MqttReentrantError(MqttError):
    """The context was entered while it was entered."""


class ProtocolVersion(IntEnum):
    """Versions of MQTT, by the names of aiomqtt."""

    V31 = 3
    V311 = 4
    V5 = 5


_VERSIONS: Final[dict[int, Version]] = {3: "3.1", 4: "3.1.1", 5: "5"}


@dataclass(frozen=True)
class Wildcard:
    """A filter that was checked.

    Raises:
        ValueError: It breaks MQTT.
    """

    value: str

    def __post_init__(self) -> None:
        """Refuse a filter that MQTT forbids."""
        _check(TopicFilter, self.value)

    def __str__(self) -> str:
        """The filter itself."""
        return self.value


@dataclass(frozen=True)
class Topic(Wildcard):
    """A topic that was checked; `topic.matches("a/+")` asks about a filter."""

    def __post_init__(self) -> None:
        """Refuse a name that MQTT forbids."""
        _check(TopicName, self.value)

    def matches(self, wildcard: "str | Wildcard") -> bool:
        """Whether a filter sees this topic; the group of a shared one does not matter."""
        text = wildcard if isinstance(wildcard, str) else wildcard.value
        _check(TopicFilter, text)
        return matches(TopicFilter(text).pattern, self.value)


@dataclass(frozen=True)
class Message:
    """A message as aiomqtt's programs know it."""

    topic: Topic
    payload: bytes
    qos: int
    retain: bool
    mid: int
    properties: Properties | None

    def __lt__(self, other: "Message") -> bool:
        """Older ones come first."""
        return self.mid < other.mid


@dataclass(frozen=True)
class Will:
    """What the broker publishes when the program vanishes."""

    topic: str
    payload: PayloadType = None
    qos: int = 0
    retain: bool = False
    properties: Properties | None = None


@dataclass(frozen=True)
class TLSParameters:
    """Files for TLS; a context of your own goes to `tls_context`."""

    ca_certs: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    keyfile_password: str | None = None
    cert_reqs: ssl.VerifyMode | None = None
    ciphers: str | None = None


class _Row:
    """All messages of one connection, whatever filter they came by."""

    def __init__(self, count_max: int) -> None:
        self.inbox = Inbox("messages", count_max=count_max, overflow="drop_newest")
        self.arrived = asyncio.Event()
        self.ended = False
        self.error: QuantuMQTTError | None = None
        # Handed out, and not acknowledged before the program comes back for the next one.
        self.working_on: ours.Message | None = None

    def offer(self, messages: list[ours.Message]) -> None:
        self.inbox.put(messages)
        self.arrived.set()

    def end(self, error: QuantuMQTTError | None) -> None:
        self.ended, self.error = True, error
        self.arrived.set()


class Client:
    """`async with Client("host") as client:`, `async for message in client.messages:`."""

    def __init__(
        self,
        hostname: str,
        port: int = 1883,
        *,
        username: str | None = None,
        password: str | None = None,
        identifier: str | None = None,
        protocol: ProtocolVersion | None = None,
        will: Will | None = None,
        clean_session: bool | None = None,
        transport: Literal["tcp", "websockets", "unix"] = "tcp",
        timeout: float | None = None,
        keepalive: int = 60,
        clean_start: bool | int = True,
        max_queued_incoming_messages: int | None = None,
        max_inflight_messages: int | None = None,
        properties: Properties | None = None,
        tls_context: ssl.SSLContext | None = None,
        tls_params: TLSParameters | None = None,
        tls_insecure: bool | None = None,
        websocket_path: str | None = None,
        websocket_headers: dict[str, str] | None = None,
    ) -> None:
        """Take aiomqtt's arguments; nothing is sent yet."""
        level = protocol or ProtocolVersion.V311
        tls = tls_context if tls_params is None else _context_of(tls_params)
        if tls is not None and tls_insecure:
            tls.check_hostname = False
        is_clean = bool(clean_start) if level == ProtocolVersion.V5 else clean_session is not False
        expiry_s = properties.number("SessionExpiryInterval") if properties is not None else None
        self._timeout_s = 10.0 if timeout is None else timeout
        self._count_max = max_queued_incoming_messages or QUEUE_COUNT_MAX
        self._url = _url_of(hostname, port, transport, websocket_path, is_encrypted=tls is not None)
        self._new_client: Callable[[], ours.Client] = lambda: ours.Client(
            self._url,
            client_id=identifier or "",
            user_name=username,
            password=password,
            version=_VERSIONS[level],
            clean_start=is_clean,
            session_expiry_s=(expiry_s or 0) if level == ProtocolVersion.V5 else None,
            keep_alive_s=keepalive,
            will=_will_of(will) if will is not None else None,
            tls=tls,
            websocket_headers=websocket_headers,
            connect_timeout_s=self._timeout_s,
            reconnect=None,
            inflight_max=max_inflight_messages or 20,
            user_properties=properties.pairs() if properties is not None else (),
        )
        # Made now, so that wrong arguments fail here; each context gets one of its own.
        self._inner: ours.Client | None = self._new_client()
        self._identifier = self._inner.client_id
        self._is_entered = False
        self._row = _Row(self._count_max)

    @property
    def identifier(self) -> str:
        """Our client id."""
        return self._identifier

    @property
    def messages(self) -> "MessagesIterator":
        """What came, by whatever subscription."""
        return MessagesIterator(self)

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            MqttReentrantError: It is entered already.
            MqttError: No connection came about, or the broker refused.
        """
        if self._is_entered:
            raise MqttReentrantError("a client is entered once at a time: leave it first")
        self._is_entered = True
        if self._inner is None:
            self._inner = self._new_client()
        self._row = _Row(self._count_max)
        # A session that is resumed may send before the program has subscribed again.
        driver = self._inner._driver
        with driver._lock:
            driver._session.routes.add("#", self._row)
        try:
            await self._inner.connect()
        except QuantuMQTTError as error:
            self._inner, self._is_entered = None, False
            raise _error_of(error) from error
        self._identifier = self._inner.client_id
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Say goodbye; the context may be entered again.

        A message whose handling failed is not acknowledged, so that it comes again.
        """
        if kind is None:
            self._accept_last()
        inner, self._inner, self._is_entered = self._inner, None, False
        if inner is not None:
            await inner.close()

    async def publish(
        self,
        topic: str,
        payload: PayloadType = None,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - aiomqtt's name
    ) -> None:
        """Publish and wait for the acknowledgement.

        Raises:
            ValueError: An argument breaks MQTT.
            MqttError: It was refused, or not acknowledged in time.
        """
        given = properties if properties is not None else Properties(PacketTypes.PUBLISH)
        try:
            async with asyncio.timeout(self._timeout_s if timeout is None else timeout):
                await self._connected().publish(
                    topic,
                    _payload_of(payload),
                    qos=qos,
                    retain=retain,
                    content_type=given.text("ContentType"),
                    response_topic=given.text("ResponseTopic"),
                    correlation_data=given.bytes("CorrelationData"),
                    message_expiry_s=given.number("MessageExpiryInterval"),
                    payload_is_utf8=bool(given.number("PayloadFormatIndicator")) or None,
                    user_properties=given.pairs(),
                )
        except LocalProtocolError as error:
            raise ValueError(str(error)) from error
        except (QuantuMQTTError, TimeoutError) as error:
            raise _error_of(error) from error

    async def subscribe(
        self,
        topic: SubscribeTopic,
        qos: int = 0,
        options: SubscribeOptions | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - aiomqtt's name
    ) -> tuple[int, ...]:
        """Subscribe and wait for the answer; gives the granted QoS of each filter.

        Raises:
            ValueError: A filter breaks MQTT.
            MqttError: A filter was refused, or there was no answer in time.
        """
        try:
            filters = [one for asked in _listed(topic, qos, options) for one in asked]
            driver = self._connected()._driver
            async with asyncio.timeout(self._timeout_s if timeout is None else timeout):
                return await driver.subscribe(filters, self._row)
        except LocalProtocolError as error:
            raise ValueError(str(error)) from error
        except (QuantuMQTTError, TimeoutError) as error:
            raise _error_of(error) from error

    async def unsubscribe(
        self,
        topic: str | Sequence[str],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - aiomqtt's name
    ) -> None:
        """Unsubscribe and wait for the answer.

        Raises:
            MqttError: It was refused, or there was no answer in time.
        """
        texts = [topic] if isinstance(topic, str) else list(topic)
        driver = self._connected()._driver
        routes = driver._session.routes
        try:
            with driver._lock:
                # Ours, for messages of a resumed session, must not pass for the program's own.
                routes.remove("#", self._row)
            operation = driver.unsubscribe(texts, self._row)
            with driver._lock:
                routes.add("#", self._row)
            if operation is not None:
                async with asyncio.timeout(self._timeout_s if timeout is None else timeout):
                    await operation
        except (QuantuMQTTError, TimeoutError) as error:
            raise _error_of(error) from error

    def _connected(self) -> ours.Client:
        if self._inner is None or not self._is_entered:
            raise MqttError("the client is not connected: enter its context first")
        return self._inner

    def _accept_last(self) -> None:
        message, self._row.working_on = self._row.working_on, None
        if message is not None and self._inner is not None:
            self._inner._driver.accept(message)


class MessagesIterator:
    """`async for message in client.messages`, `len(client.messages)`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._row = client._row

    def __len__(self) -> int:
        """How many wait."""
        return len(self._row.inbox.row)

    def __aiter__(self) -> AsyncIterator[Message]:
        """Iterate over what came and will come."""
        return self

    async def __anext__(self) -> Message:
        """Wait for the next message.

        Raises:
            MqttError: The connection is gone.
        """
        self._client._accept_last()
        row = self._row
        while not row.inbox.row:
            if row.ended:
                raise MqttError("Disconnected during message iteration") from row.error
            row.arrived.clear()
            await row.arrived.wait()
        message = row.working_on = row.inbox.row.popleft()
        return Message(
            topic=Topic(message.topic),
            payload=message.payload,
            qos=message.qos,
            retain=message.retain,
            mid=message.packet_id or 0,
            properties=message_properties(message) if message.properties else None,
        )


def _check(kind: type[TopicName] | type[TopicFilter], text: str) -> None:
    try:
        kind(text)
    except LocalProtocolError as error:
        raise ValueError(str(error)) from error


def _error_of(error: QuantuMQTTError | TimeoutError) -> MqttError:
    if isinstance(error, Refused):
        return MqttCodeError(error.reason_code, str(error))
    return MqttError("Operation timed out" if isinstance(error, TimeoutError) else str(error))


def _payload_of(payload: PayloadType) -> str | bytes | bytearray | None:
    return str(payload) if isinstance(payload, int | float) else payload


def _will_of(will: Will) -> ours.Will:
    payload = _payload_of(will.payload)
    given = will.properties if will.properties is not None else Properties(PacketTypes.WILLMESSAGE)
    return ours.Will(
        topic=will.topic,
        payload=payload if isinstance(payload, str) else bytes(payload or b""),
        qos=will.qos,
        retain=will.retain,
        delay_s=given.number("WillDelayInterval"),
        message_expiry_s=given.number("MessageExpiryInterval"),
        content_type=given.text("ContentType"),
        response_topic=given.text("ResponseTopic"),
        correlation_data=given.bytes("CorrelationData"),
        user_properties=given.pairs(),
    )


def _listed(
    topic: SubscribeTopic, qos: int, options: SubscribeOptions | None
) -> list[list[tuple[str, int]]]:
    if isinstance(topic, str):
        return [with_options(topic, _options_of(options if options is not None else qos))]
    if isinstance(topic, tuple) and len(topic) == 2 and isinstance(topic[0], str):
        pairs = [topic]
    else:
        pairs = list(topic)
    return [with_options(str(text), _options_of(wanted)) for text, wanted in pairs]


def _options_of(wanted: int | SubscribeOptions) -> int:
    return wanted.as_byte() if isinstance(wanted, SubscribeOptions) else options_byte(wanted)


def _context_of(given: TLSParameters) -> ssl.SSLContext:
    context = ours.tls_context(
        ca_file=given.ca_certs,
        certificate_file=given.certfile,
        key_file=given.keyfile,
        key_password=given.keyfile_password,
    )
    if given.ciphers is not None:
        context.set_ciphers(given.ciphers)
    if given.cert_reqs is not None:
        context.check_hostname = context.check_hostname and given.cert_reqs != ssl.CERT_NONE
        context.verify_mode = given.cert_reqs
    return context


def _url_of(host: str, port: int, transport: str, path: str | None, *, is_encrypted: bool) -> str:
    if transport == "unix":
        return f"unix://{host}"
    host = f"[{host}]" if ":" in host else host
    if transport == "websockets":
        scheme = "wss" if is_encrypted else "ws"
        return f"{scheme}://{host}:{port}/{(path or '/mqtt').lstrip('/')}"
    return f"{'mqtts' if is_encrypted else 'mqtt'}://{host}:{port}"
