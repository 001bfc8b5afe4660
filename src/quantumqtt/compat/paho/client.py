"""paho's `Client` over our `SyncClient`.

Theory of operation. `connect` makes a `SyncClient`, whose own thread moves packets and connects
again; its news become events (`events.py`) that `loop_start`, `loop_forever` or `loop` turn into
callbacks. One sink takes every message, so that a message runs one callback however many filters
it matches, as paho has it. `mid` is a number of ours and not the packet id on the wire.

Different from paho on purpose: `connect` waits for the broker's answer; `loop_stop` stops
callbacks but not the network; publishes at QoS 1 and 2 that were accepted are sent again after a
lost connection whatever the session does. What cannot be offered raises `NotImplementedError` with
the way out.
"""

import logging
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from quantumqtt.client import Backoff, Connected, Message, SyncClient, Token, Will
from quantumqtt.client.filters import options_byte
from quantumqtt.client.receipts import Operation
from quantumqtt.client.routes import matches
from quantumqtt.compat.paho.enums import (
    CallbackAPIVersion,
    LogLevel,
    MQTTErrorCode,
    MQTTProtocolVersion,
)
from quantumqtt.compat.paho.events import Events
from quantumqtt.compat.paho.message import MQTTMessage, MQTTMessageInfo, Outgoing
from quantumqtt.compat.paho.packettypes import PacketTypes
from quantumqtt.compat.paho.properties import Properties, properties_of
from quantumqtt.compat.paho.reasoncodes import ReasonCode
from quantumqtt.compat.paho.subscribeoptions import SubscribeOptions
from quantumqtt.errors import (
    ConnectFailed,
    LocalProtocolError,
    PublishQueueFull,
    QuantuMQTTError,
    Refused,
)
from quantumqtt.mqtt import PropertyId, TopicFilter, TopicName

_LOG: Final = logging.getLogger(__name__)
_MID_MAX: Final = 65_535
_VERSIONS: Final = {3: "3.1", 4: "3.1.1", 5: "5"}
_LEVELS: Final = {
    LogLevel.MQTT_LOG_DEBUG: logging.DEBUG,
    LogLevel.MQTT_LOG_INFO: logging.INFO,
    LogLevel.MQTT_LOG_NOTICE: logging.INFO,
    LogLevel.MQTT_LOG_WARNING: logging.WARNING,
    LogLevel.MQTT_LOG_ERR: logging.ERROR,
}
MQTT_CLEAN_START_FIRST_ONLY: Final = 3

Payload = str | bytes | bytearray | int | float | None
Callback = Callable[..., object]
Filters = Sequence[tuple[str, int]]
_Filter = tuple[str, int | SubscribeOptions]

_OK = MQTTErrorCode.MQTT_ERR_SUCCESS
_NO_CONN = MQTTErrorCode.MQTT_ERR_NO_CONN


class ConnectFlags(NamedTuple):
    """What `on_connect` is told besides the reason code."""

    session_present: bool


class DisconnectFlags(NamedTuple):
    """What `on_disconnect` is told besides the reason code."""

    is_disconnect_packet_from_server: bool


class Client:
    """An MQTT client with paho-mqtt's interface, callbacks of VERSION2.

    Every callback is an attribute: `client.on_connect = f`, or `@client.connect_callback()`.
    """

    def __init__(
        self,
        callback_api_version: CallbackAPIVersion = CallbackAPIVersion.VERSION1,
        client_id: str | None = "",
        clean_session: bool | None = None,
        userdata: Any = None,  # noqa: ANN401 - whatever the application wants back
        protocol: int = MQTTProtocolVersion.MQTTv311,
        transport: str = "tcp",
        reconnect_on_failure: bool = True,
        manual_ack: bool = False,
    ) -> None:
        """Choose who to be and how to speak; nothing is sent yet.

        Raises:
            ValueError: VERSION1 is asked for, or the arguments contradict each other.
        """
        if callback_api_version != CallbackAPIVersion.VERSION2:
            raise ValueError(
                "only CallbackAPIVersion.VERSION2 is supported: pass it as the first argument and "
                "give on_connect(client, userdata, flags, reason_code, properties) and its like "
                "the arguments of VERSION2"
            )
        if protocol not in _VERSIONS:
            raise ValueError("protocol is MQTTv31, MQTTv311 or MQTTv5")
        is_v5 = protocol == MQTTProtocolVersion.MQTTv5
        if is_v5 and clean_session is not None:
            raise ValueError("Clean session is not used for MQTT 5.0")
        if not is_v5 and clean_session is False and not client_id:
            raise ValueError("A client id must be provided if clean session is False.")
        if transport not in ("tcp", "websockets", "unix"):
            raise ValueError(f"transport {transport!r}: tcp, websockets or unix")
        self.suppress_exceptions = False
        self.on_connect: Callback | None = None
        self.on_connect_fail: Callback | None = None
        self.on_disconnect: Callback | None = None
        self.on_log: Callback | None = None
        self.on_message: Callback | None = None
        self.on_pre_connect: Callback | None = None
        self.on_publish: Callback | None = None
        self.on_subscribe: Callback | None = None
        self.on_unsubscribe: Callback | None = None
        self._client_id = client_id or ""
        self._is_clean = clean_session is not False
        self._userdata = userdata
        self._protocol = protocol
        self._is_v5 = is_v5
        self._transport = transport
        self._reconnects = reconnect_on_failure
        self._manual_ack = manual_ack
        self._user: tuple[str | None, str | None] = (None, None)
        self._will: tuple[str, bytes, int, bool, Properties | None] | None = None
        self._tls: ssl.SSLContext | None = None
        self._is_insecure = False
        self._web_path = "/mqtt"
        self._delays_s = (1.0, 120.0)
        self._inflight_max = 20
        self._queue_max = 0
        self.connect_timeout = 5.0
        self._logger: logging.Logger | None = None
        self._place: tuple[str, int, int, Any, Properties | None] | None = None
        self._lock = threading.Lock()
        self._next_mid = 0
        self._outgoing: dict[int, Outgoing] = {}
        self._subscribed: dict[str, int] = {}
        self._filtered: dict[str, Callback] = {}
        self._unacknowledged: dict[int, Message] = {}
        self._events = Events()
        self._events.on_message = self._on_message
        self._client: SyncClient | None = None
        self._is_leaving = False
        self._lost = False
        self._thread: threading.Thread | None = None
        self._stops_loop = False

    # --- settings -----------------------------------------------------------------------------

    def username_pw_set(self, username: str | None, password: str | None = None) -> None:
        """Say who we are; before `connect`."""
        self._user = (username, password)

    def will_set(
        self,
        topic: str,
        payload: Payload = None,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None:
        """Say what the broker publishes when we vanish; before `connect`.

        Raises:
            ValueError: The topic or QoS does not exist.
            TypeError: The payload is of no kind paho takes.
        """
        _check_publish(topic, qos)
        self._will = (topic, _payload_bytes(payload), qos, retain, properties)

    def will_clear(self) -> None:
        """Leave nothing behind after all."""
        self._will = None

    def tls_set(
        self,
        ca_certs: str | None = None,
        certfile: str | None = None,
        keyfile: str | None = None,
        cert_reqs: ssl.VerifyMode | None = None,
        tls_version: int | None = None,
        ciphers: str | None = None,
        keyfile_password: str | None = None,
        alpn_protocols: list[str] | None = None,
    ) -> None:
        """Encrypt; the system's authorities are trusted unless `ca_certs` names others."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if tls_version is None else tls_version)
        if ca_certs is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(ca_certs)
        if certfile is not None:
            context.load_cert_chain(certfile, keyfile, keyfile_password)
        if cert_reqs == ssl.CERT_NONE:
            context.check_hostname = False
        if cert_reqs is not None:
            context.verify_mode = cert_reqs
        if ciphers is not None:
            context.set_ciphers(ciphers)
        if alpn_protocols is not None:
            context.set_alpn_protocols(alpn_protocols)
        self.tls_set_context(context)

    def tls_set_context(self, context: ssl.SSLContext | None = None) -> None:
        """Encrypt as this context says.

        Raises:
            ValueError: There is a context already.
        """
        if self._tls is not None:
            raise ValueError("SSL/TLS has already been configured.")
        self._tls = context or ssl.create_default_context()

    def tls_insecure_set(self, value: bool) -> None:
        """Do not compare the certificate's name with the host; after `tls_set`.

        Raises:
            ValueError: TLS was not asked for.
        """
        if self._tls is None:
            raise ValueError("Must configure SSL context before using tls_insecure_set.")
        self._tls.check_hostname = not value

    def ws_set_options(self, path: str = "/mqtt", headers: object = None) -> None:
        """Choose the path of a WebSocket.

        Raises:
            NotImplementedError: Headers are asked for.
        """
        if headers is not None:
            raise NotImplementedError("WebSocket headers: use quantumqtt.SyncClient instead")
        self._web_path = path

    def proxy_set(self, **_arguments: object) -> None:
        """Refused.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("proxies are set up with quantumqtt.SyncClient")

    def reconnect_delay_set(self, min_delay: int = 1, max_delay: int = 120) -> None:
        """How long to wait before connecting again, at first and at most."""
        self._delays_s = (float(min_delay), float(max_delay))

    def max_inflight_messages_set(self, inflight: int) -> None:
        """How many publishes may be on their way; before `connect`.

        Raises:
            ValueError: It is negative.
        """
        if inflight < 0:
            raise ValueError("Invalid inflight.")
        self._inflight_max = inflight

    def max_queued_messages_set(self, queue_size: int) -> "Client":
        """How many publishes at QoS 1 and 2 may wait; 0 leaves it to their bytes.

        Raises:
            ValueError: It is negative.
        """
        if queue_size < 0:
            raise ValueError("Invalid queue size.")
        self._queue_max = queue_size
        return self

    def manual_ack_set(self, on: bool) -> None:
        """Have messages wait for `ack`."""
        self._manual_ack = on

    def user_data_set(self, userdata: Any) -> None:  # noqa: ANN401 - as in the constructor
        """Give callbacks something of your own."""
        self._userdata = userdata

    def user_data_get(self) -> Any:  # noqa: ANN401 - as in the constructor
        """What callbacks are given."""
        return self._userdata

    def enable_logger(self, logger: logging.Logger | None = None) -> None:
        """Log what happens."""
        self._logger = logger or logging.getLogger("paho.mqtt.client")

    def disable_logger(self) -> None:
        """Log nothing any more."""
        self._logger = None

    # --- connecting ---------------------------------------------------------------------------

    def connect(
        self,
        host: str,
        port: int = 1883,
        keepalive: int = 60,
        bind_address: str = "",
        bind_port: int = 0,
        clean_start: bool | int = MQTT_CLEAN_START_FIRST_ONLY,
        properties: Properties | None = None,
    ) -> MQTTErrorCode:
        """Connect and wait for the broker's answer, which `on_connect` gets.

        Raises:
            OSError: No connection came about.
            ValueError: Host, port or keep alive make no sense.
        """
        self.connect_async(host, port, keepalive, bind_address, bind_port, clean_start, properties)
        return self.reconnect()

    def connect_async(
        self,
        host: str,
        port: int = 1883,
        keepalive: int = 60,
        bind_address: str = "",
        bind_port: int = 0,
        clean_start: bool | int = MQTT_CLEAN_START_FIRST_ONLY,
        properties: Properties | None = None,
    ) -> None:
        """Remember where to connect; the loop does it, and tries until it works.

        Raises:
            ValueError: Host, port or keep alive make no sense.
            NotImplementedError: A local address is asked for.
        """
        if not host:
            raise ValueError("Invalid host.")
        if port <= 0 and self._transport != "unix":
            raise ValueError("Invalid port number.")
        if keepalive < 0:
            raise ValueError("Keepalive must be >=0.")
        if bind_address or bind_port:
            raise NotImplementedError("the local address cannot be chosen")
        if properties is not None and properties.value("AuthenticationMethod") is not None:
            raise NotImplementedError(
                "enhanced authentication: quantumqtt.SyncClient(authenticator=…) does all of it"
            )
        self._place = (host, port, keepalive, clean_start, properties)

    def connect_srv(self, *_arguments: object, **_more: object) -> MQTTErrorCode:
        """Refused.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("look the SRV record up and call connect(host, port)")

    def reconnect(self) -> MQTTErrorCode:
        """Connect to the last place.

        Raises:
            OSError: No connection came about.
            ValueError: No place is known.
        """
        if self._place is None:
            raise ValueError("Invalid host.")
        self._close()
        self._is_leaving = self._lost = False
        self._call(self.on_pre_connect)
        client = self._new_client(self._place)
        self._events.follow(client._driver)
        self._log(LogLevel.MQTT_LOG_DEBUG, f"connecting to {self._place[0]}:{self._place[1]}")
        # Messages of a session that stayed come for filters this process may not know.
        client._driver._session.routes.add("#", self._events)
        self._client = client
        try:
            client.connect()
        except Refused as refusal:
            self._on_refused(refusal)
        except ConnectFailed as error:
            self._client = None
            cause = error.__cause__
            raise (cause if isinstance(cause, OSError) else OSError(str(error))) from error
        return _OK

    def _new_client(self, place: tuple[str, int, int, Any, Properties | None]) -> SyncClient:
        host, port, keep_alive_s, clean_start, properties = place
        given = properties or Properties(PacketTypes.CONNECT)
        secure = self._tls is not None
        if self._transport == "unix":
            url = f"unix://{host}"
        else:
            scheme = {"tcp": ("mqtt", "mqtts"), "websockets": ("ws", "wss")}[self._transport]
            name = f"[{host}]" if ":" in host else host
            path = self._web_path if self._transport == "websockets" else ""
            url = f"{scheme[secure]}://{name}:{port}{path}"
        expiry_s = given.number("SessionExpiryInterval")
        first_s, most_s = self._delays_s
        keywords: dict[str, Any] = {
            "receive_maximum": given.number("ReceiveMaximum"),
            "packet_bytes_max": given.number("MaximumPacketSize"),
            "topic_alias_maximum": given.number("TopicAliasMaximum"),
            "inflight_max": self._inflight_max or None,
        }
        return SyncClient(
            url,
            client_id=self._client_id,
            user_name=self._user[0],
            password=self._user[1],
            version=_VERSIONS[self._protocol],  # type: ignore[arg-type]
            clean_start=bool(clean_start) if self._is_v5 else self._is_clean,
            session_expiry_s=(expiry_s or 0) if self._is_v5 else None,
            keep_alive_s=keep_alive_s,
            will=self._will_of(),
            tls=self._tls,
            connect_timeout_s=self.connect_timeout,
            reconnect=Backoff(first_s=max(first_s, 0.001), most_s=max(most_s, first_s, 0.001))
            if self._reconnects
            else None,
            user_properties=given.pairs(),
            on_connected=self._on_connected,
            on_disconnected=self._on_disconnected,
            **{name: value for name, value in keywords.items() if value is not None},
        )

    def _will_of(self) -> Will | None:
        if self._will is None:
            return None
        topic, payload, qos, retain, properties = self._will
        given = properties or Properties(PacketTypes.WILLMESSAGE)
        return Will(
            topic=topic,
            payload=payload,
            qos=qos,
            retain=retain,
            delay_s=given.number("WillDelayInterval"),
            message_expiry_s=given.number("MessageExpiryInterval"),
            content_type=given.text("ContentType"),
            response_topic=given.text("ResponseTopic"),
            correlation_data=given.bytes("CorrelationData"),
            user_properties=given.pairs(),
        )

    def disconnect(
        self, reasoncode: ReasonCode | None = None, properties: Properties | None = None
    ) -> MQTTErrorCode:
        """Say goodbye; `loop_forever` returns after `on_disconnect`."""
        expiry_s = properties.number("SessionExpiryInterval") if properties is not None else None
        was_connected = self.is_connected()
        self._is_leaving = True
        self._close(session_expiry_s=expiry_s)
        if was_connected:
            self._log(LogLevel.MQTT_LOG_DEBUG, "disconnected")
            code = reasoncode or ReasonCode(PacketTypes.DISCONNECT, identifier=0)
            self._events.post(lambda: self._tell_disconnected(code, from_server=False))
        self._events.wake()
        return _OK if was_connected else _NO_CONN

    def _close(self, *, session_expiry_s: int | None = None) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close(drain_s=0, session_expiry_s=session_expiry_s)

    def is_connected(self) -> bool:
        """Whether a connection is open now."""
        client = self._client
        return client is not None and client.connected

    # --- loops --------------------------------------------------------------------------------

    def loop_start(self) -> MQTTErrorCode:
        """Run callbacks on a thread of their own."""
        if self._thread is not None:
            return MQTTErrorCode.MQTT_ERR_INVAL
        self._stops_loop = False
        self._thread = threading.Thread(target=self._run_thread, name="paho loop", daemon=True)
        self._thread.start()
        return _OK

    def loop_stop(self) -> MQTTErrorCode:
        """End that thread; callbacks that are due wait for the next loop."""
        thread, self._thread = self._thread, None
        if thread is None:
            return MQTTErrorCode.MQTT_ERR_INVAL
        self._stops_loop = True
        self._events.wake()
        if thread is not threading.current_thread():
            thread.join()
        return _OK

    def loop_forever(
        self, timeout: float = 1.0, retry_first_connection: bool = False
    ) -> MQTTErrorCode:
        """Run callbacks here until `disconnect`, or until a lost connection is not made again.

        Raises:
            OSError: The first connection of `connect_async` failed, and nothing says to retry.
        """
        self._stops_loop = False
        return self._run(retry_first_connection=retry_first_connection)

    def loop(self, timeout: float = 1.0) -> MQTTErrorCode:
        """Run the callbacks that come within `timeout`."""
        if self._client is None and not self._is_leaving:
            return _NO_CONN
        if self._events.run_one(timeout):
            self._events.run_ready()
        return MQTTErrorCode.MQTT_ERR_CONN_LOST if self._lost else _OK

    def loop_read(self, *_arguments: object) -> MQTTErrorCode:
        """Refused: the network has a thread of its own.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("in an event loop of your own, use quantumqtt.Client (asyncio)")

    loop_write = loop_misc = socket = want_write = loop_read

    def _run_thread(self) -> None:
        try:
            self._run(retry_first_connection=True)
        except Exception:
            _LOG.exception("a callback of the application failed; no more are called")

    def _run(self, *, retry_first_connection: bool) -> MQTTErrorCode:
        if self._client is None and not self._is_leaving:
            self._connect_first(retry=retry_first_connection)
        while not self._stops_loop:
            self._events.run_one(0.5)
            if (self._is_leaving or self._lost) and not self._stops_loop:
                self._events.run_ready()
                if self._is_leaving:
                    return _NO_CONN  # so says paho's
                if self._lost:
                    return MQTTErrorCode.MQTT_ERR_CONN_LOST
        return _OK

    def _connect_first(self, *, retry: bool) -> None:
        delay_s, most_s = self._delays_s
        stopped = threading.Event()
        while not self._stops_loop and not self._is_leaving and self._place is not None:
            try:
                self.reconnect()
            except OSError:
                self._call(self.on_connect_fail)
                if not retry:
                    raise
                stopped.wait(min(delay_s, 1.0))
                delay_s = min(delay_s * 2, most_s)
            else:
                return

    # --- publishing ---------------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        payload: Payload = None,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> MQTTMessageInfo:
        """Publish; the result tells when the broker has it.

        Raises:
            ValueError: The topic or QoS does not exist, or the payload is too large.
            TypeError: The payload is of no kind paho takes.
        """
        _check_publish(topic, qos)
        data = _payload_bytes(payload)
        with self._lock:
            info = MQTTMessageInfo(self._new_mid())
            waiting = sum(1 for one in self._outgoing.values() if one.qos)
            if qos and self._queue_max and waiting >= self._queue_max:
                info.rc = MQTTErrorCode.MQTT_ERR_QUEUE_SIZE
                return info
            outgoing = Outgoing(info, topic, data, qos, retain, properties)
            if qos:
                self._outgoing[info.mid] = outgoing
        if not self.is_connected():
            info.rc = _NO_CONN
        if qos or info.rc == _OK:
            self._send(outgoing)
        return info

    def _send(self, outgoing: Outgoing) -> None:
        client = self._client
        if client is None:
            return  # kept for the next connection
        given = outgoing.properties or Properties(PacketTypes.PUBLISH)
        is_utf8 = given.number("PayloadFormatIndicator")
        try:
            outgoing.token = client.publish(
                outgoing.topic,
                outgoing.payload,
                qos=outgoing.qos,
                retain=outgoing.retain,
                content_type=given.text("ContentType"),
                response_topic=given.text("ResponseTopic"),
                correlation_data=given.bytes("CorrelationData"),
                message_expiry_s=given.number("MessageExpiryInterval"),
                payload_is_utf8=None if is_utf8 is None else bool(is_utf8),
                user_properties=given.pairs(),
            )
        except PublishQueueFull:
            outgoing.info.rc = MQTTErrorCode.MQTT_ERR_QUEUE_SIZE
        except Refused as refusal:
            self._on_published(outgoing, refusal.reason_code)
            return
        except QuantuMQTTError as error:
            outgoing.info.rc = _NO_CONN
            self._log(LogLevel.MQTT_LOG_WARNING, str(error))
        else:
            outgoing.token.add_done_callback(lambda token: self._on_token(outgoing, token))
            return
        with self._lock:
            self._outgoing.pop(outgoing.info.mid, None)

    def _on_token(self, outgoing: Outgoing, token: Token) -> None:
        error = token.exception()
        if isinstance(error, Refused):
            self._on_published(outgoing, error.reason_code)
        elif error is None:
            self._on_published(outgoing, token.result())
        # Whatever else ended it leaves the publish for the next connection.

    def _on_published(self, outgoing: Outgoing, code: int) -> None:
        with self._lock:
            self._outgoing.pop(outgoing.info.mid, None)
        outgoing.info.settle()
        packet = PacketTypes.PUBCOMP if outgoing.qos == 2 else PacketTypes.PUBACK
        reason = ReasonCode(packet, identifier=code)
        self._events.post(
            lambda: self._call(self.on_publish, outgoing.info.mid, reason, Properties(packet))
        )

    def _new_mid(self) -> int:
        self._next_mid = self._next_mid % _MID_MAX + 1
        return self._next_mid

    # --- subscribing --------------------------------------------------------------------------

    def subscribe(
        self,
        topic: "str | _Filter | Sequence[_Filter]",
        qos: int = 0,
        options: SubscribeOptions | None = None,
        properties: Properties | None = None,
    ) -> tuple[MQTTErrorCode, int | None]:
        """Subscribe to one filter or several; returns the error code and a number.

        Raises:
            ValueError: A filter, a QoS or the combination makes no sense.
            NotImplementedError: Properties of SUBSCRIBE are asked for.
        """
        if properties is not None and not properties.isEmpty():
            raise NotImplementedError("properties of SUBSCRIBE cannot be sent")
        filters = self._filters_of(topic, qos, options)
        client = self._client
        if client is None or not client.connected:
            return _NO_CONN, None
        with self._lock:
            mid = self._new_mid()
            for text, _ in filters:
                self._subscribed[text] = self._subscribed.get(text, 0) + 1
        operation = client._driver.subscribe(filters, self._events)
        self._when_answered(operation, mid, PacketTypes.SUBACK)
        return _OK, mid

    def _filters_of(
        self, topic: object, qos: int, options: SubscribeOptions | None
    ) -> list[tuple[str, int]]:
        one: object = (topic, options or qos) if isinstance(topic, str) else topic
        listed = [one] if isinstance(one, tuple) else one
        if not isinstance(listed, list) or not listed:
            raise ValueError("No topic specified, or incorrect topic type.")
        filters: list[tuple[str, int]] = []
        for text, wanted in listed:
            if not isinstance(text, str) or not text:
                raise ValueError("Invalid topic.")
            if isinstance(wanted, SubscribeOptions):
                byte = wanted.as_byte()
            elif wanted in (0, 1, 2):
                byte = options_byte(wanted)
            else:
                raise ValueError("Invalid QoS level.")
            try:
                TopicFilter(text)
            except LocalProtocolError as error:
                raise ValueError(f"Invalid subscription filter: {error}") from error
            filters.append((text, byte if self._is_v5 else byte & 3))
        return filters

    def unsubscribe(
        self, topic: str | list[str], properties: Properties | None = None
    ) -> tuple[MQTTErrorCode, int | None]:
        """Unsubscribe from one filter or several.

        Raises:
            ValueError: There is no filter.
            NotImplementedError: Properties of UNSUBSCRIBE are asked for.
        """
        if properties is not None and not properties.isEmpty():
            raise NotImplementedError("properties of UNSUBSCRIBE cannot be sent")
        texts = [topic] if isinstance(topic, str) else list(topic or ())
        if not texts or not all(texts):
            raise ValueError("Invalid topic.")
        client = self._client
        if client is None or not client.connected:
            return _NO_CONN, None
        driver = client._driver
        with self._lock:
            mid = self._new_mid()
            times = [self._subscribed.pop(text, 0) for text in texts]
        for text, count in zip(texts, times, strict=True):
            if count == 0:
                driver._session.routes.add(text, self._events)
            for _ in range(count - 1):
                driver._session.routes.remove(text, self._events)
        operation = driver.unsubscribe(texts, self._events)
        if operation is not None:
            self._when_answered(operation, mid, PacketTypes.UNSUBACK)
        return _OK, mid

    def _when_answered(self, operation: Operation, mid: int, packet: int) -> None:
        """Have the codes told, refusals among them."""

        def tell(_future: object) -> None:
            assert operation._outcome is not None, "it is answered"
            codes = operation._outcome[0]
            if codes is None:
                return  # it ended with its client
            reasons = [ReasonCode(packet, identifier=code) for code in codes]
            callback = "on_subscribe" if packet == PacketTypes.SUBACK else "on_unsubscribe"
            self._events.post(
                lambda: self._call(getattr(self, callback), mid, reasons, Properties(packet))
            )

        operation.future().add_done_callback(tell)

    def message_callback_add(self, sub: str, callback: Callback | None) -> None:
        """Have messages that match a filter go to a callback instead of `on_message`.

        Raises:
            ValueError: The callback or the filter is missing.
        """
        if callback is None or not sub:
            raise ValueError("sub and callback must both be defined.")
        with self._lock:
            self._filtered = {**self._filtered, sub: callback}

    def message_callback_remove(self, sub: str) -> None:
        """Have them go to `on_message` again.

        Raises:
            ValueError: The filter is missing.
        """
        if not sub:
            raise ValueError("sub must be defined.")
        with self._lock:
            self._filtered = {text: one for text, one in self._filtered.items() if text != sub}

    def ack(self, mid: int, qos: int) -> MQTTErrorCode:
        """Tell the broker that a message is done; with `manual_ack`."""
        message = self._unacknowledged.pop(mid, None)
        client = self._client
        if message is not None and client is not None:
            client._driver.accept(message)
        return _OK

    # --- what happens ---------------------------------------------------------------------------

    def _on_connected(self, connected: Connected) -> None:
        known = connected.capabilities
        reason = ReasonCode(PacketTypes.CONNACK, identifier=0)
        properties = None
        if self._is_v5:
            pairs = [
                (PropertyId.SESSION_EXPIRY_INTERVAL, known.session_expiry_s or None),
                (PropertyId.SERVER_KEEP_ALIVE, known.keep_alive_s),
                (PropertyId.RECEIVE_MAXIMUM, known.receive_maximum),
                (PropertyId.TOPIC_ALIAS_MAXIMUM, known.topic_alias_maximum or None),
                *((PropertyId.USER_PROPERTY, pair) for pair in known.user_properties),
            ]
            present = [(key, value) for key, value in pairs if value is not None]
            properties = properties_of(PacketTypes.CONNACK, present)
            if not self._client_id:
                properties.AssignedClientIdentifier = known.client_id
        flags = ConnectFlags(connected.session_present)
        self._events.announce(lambda: self._call(self.on_connect, flags, reason, properties))
        with self._lock:
            unsent = [one for one in self._outgoing.values() if one.token is None or (
                one.token.done() and not one.token.acknowledged)]  # fmt: skip
        for one in unsent:
            self._send(one)

    def _on_refused(self, refusal: Refused) -> None:
        self._close()
        reason = ReasonCode(PacketTypes.CONNACK, identifier=refusal.reason_code)
        properties = Properties(PacketTypes.CONNACK) if self._is_v5 else None
        flags = ConnectFlags(False)
        self._events.post(lambda: self._call(self.on_connect, flags, reason, properties))
        self._events.post(lambda: self._tell_disconnected(reason, from_server=False))
        self._events.post(self._note_lost)

    def _on_disconnected(self, error: QuantuMQTTError) -> None:
        self._log(LogLevel.MQTT_LOG_WARNING, str(error))
        reason = ReasonCode(PacketTypes.DISCONNECT, "Unspecified error")
        self._events.post(lambda: self._tell_disconnected(reason, from_server=False))
        if not self._reconnects or not error.retryable:
            self._events.post(self._note_lost)

    def _note_lost(self) -> None:
        self._lost = True

    def _tell_disconnected(self, reason: ReasonCode, *, from_server: bool) -> None:
        properties = Properties(PacketTypes.DISCONNECT) if self._is_v5 else None
        self._call(self.on_disconnect, DisconnectFlags(from_server), reason, properties)

    def _on_message(self, message: Message) -> None:
        shown = MQTTMessage(message, is_v5=self._is_v5)
        if self._manual_ack and message.packet_id is not None:
            self._unacknowledged[message.packet_id] = message
        chosen: list[Callback | None] = [
            one for text, one in self._filtered.items() if matches(text, message.topic)
        ]
        try:
            for callback in chosen if chosen else [self.on_message]:
                self._call(callback, shown)
        finally:
            client = self._client
            if client is not None and not self._manual_ack:
                client._driver.accept(message)

    def _call(self, callback: Callback | None, *arguments: object) -> None:
        """Run a callback of the application."""
        if callback is None:
            return
        try:
            callback(self, self._userdata, *arguments)
        except Exception as error:
            self._log(LogLevel.MQTT_LOG_ERR, f"a callback failed: {error!r}")
            if not self.suppress_exceptions:
                raise

    def _log(self, level: LogLevel, line: str) -> None:
        if self._logger is not None:
            self._logger.log(_LEVELS[level], line)
        if self.on_log is not None:
            self.on_log(self, self._userdata, level, line)

    # --- decorators -----------------------------------------------------------------------------

    @staticmethod
    def _decorator(name: str) -> Callable[["Client"], Callable[[Callback], Callback]]:
        def make(self: "Client") -> Callable[[Callback], Callback]:
            def set_callback(callback: Callback) -> Callback:
                setattr(self, name, callback)
                return callback

            return set_callback

        make.__doc__ = f"Decorate the function that becomes `{name}`."
        return make

    connect_callback = _decorator("on_connect")
    connect_fail_callback = _decorator("on_connect_fail")
    disconnect_callback = _decorator("on_disconnect")
    log_callback = _decorator("on_log")
    message_callback = _decorator("on_message")
    pre_connect_callback = _decorator("on_pre_connect")
    publish_callback = _decorator("on_publish")
    subscribe_callback = _decorator("on_subscribe")
    unsubscribe_callback = _decorator("on_unsubscribe")

    def topic_callback(self, sub: str) -> Callable[[Callback], Callback]:
        """Decorate the function that gets messages behind a filter."""

        def add(callback: Callback) -> Callback:
            self.message_callback_add(sub, callback)
            return callback

        return add


def topic_matches_sub(sub: str, topic: str) -> bool:
    """Whether a topic matches a filter."""
    return matches(sub, topic)


def _check_publish(topic: str, qos: int) -> None:
    if qos not in (0, 1, 2):
        raise ValueError("Invalid QoS level.")
    if not topic:
        raise ValueError("Invalid topic.")
    try:
        TopicName(topic)
    except LocalProtocolError as error:
        raise ValueError(f"Invalid topic: {error}") from error


def _payload_bytes(payload: Payload) -> bytes:
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytes | bytearray):
        return bytes(payload)
    if isinstance(payload, int | float):
        return str(payload).encode()
    if payload is None:
        return b""
    raise TypeError("payload must be a string, bytearray, int, float or None.")
