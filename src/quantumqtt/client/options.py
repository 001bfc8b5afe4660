"""What a client is told before it starts: frozen values, checked when they are made."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Final, Literal, Protocol
from urllib.parse import unquote, urlsplit

from quantumqtt import _core
from quantumqtt.client.backoff import Backoff
from quantumqtt.client.proxies import Proxy
from quantumqtt.client.websocket import check_headers
from quantumqtt.errors import LocalProtocolError
from quantumqtt.mqtt import PropertyId, TopicName, encode_properties
from quantumqtt.mqtt.properties import UserProperties

Version = Literal["auto", "5", "3.1.1", "3.1"]
LEVELS: Final[Mapping[str, int]] = {"auto": 5, "5": 5, "3.1.1": 4, "3.1": 3}
_PORTS: Final[Mapping[str, int]] = {
    "mqtt": 1883,
    "tcp": 1883,
    "mqtts": 8883,
    "ssl": 8883,
    "tls": 8883,
    "ws": 80,
    "wss": 443,
    "unix": 0,
    "quic": 14567,
}
_ENCRYPTED: Final = frozenset({"mqtts", "ssl", "tls", "wss", "quic"})
_WEBSOCKET: Final = frozenset({"ws", "wss"})
_WEBSOCKET_PATH: Final = "/mqtt"
KEEP_ALIVE_S_MAX: Final = 65_535
UNLIMITED: Final = 0xFFFF_FFFF
Payload = bytes | bytearray | memoryview | str | None


def payload_bytes(payload: Payload) -> bytes:
    """Take a payload as bytes; text becomes UTF-8, None becomes empty.

    Raises:
        TypeError: It is something else; say what bytes you mean.
    """
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    if payload is None:
        return b""
    raise TypeError(f"payload is bytes or text, not {type(payload).__name__}: encode it first")


def new_client_id() -> str:
    """Make up a client id of at most 23 characters, which is what MQTT 3.1 allows."""
    return f"qmq-{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a broker is.

    Attributes:
        host: Name or address; for a Unix socket its path.
        path: What a WebSocket asks for, with its query.
    """

    scheme: str
    host: str
    port: int
    path: str = ""
    user_name: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def is_encrypted(self) -> bool:
        """Whether TLS is asked for."""
        return self.scheme in _ENCRYPTED

    @property
    def is_websocket(self) -> bool:
        """Whether MQTT travels in WebSocket frames."""
        return self.scheme in _WEBSOCKET

    @property
    def is_quic(self) -> bool:
        """Whether MQTT travels in a stream of QUIC."""
        return self.scheme == "quic"

    @classmethod
    def parse(cls, url: str) -> "Endpoint":
        """Read `mqtt://user:password@host:port`, `mqtts://…`, `ws://…/path` or `unix:///path`.

        `quic://…` is another one, and a bare host works, too.

        Raises:
            ValueError: The URL is none of these; names what is wrong.
        """
        parts = urlsplit(url if "://" in url else f"mqtt://{url}")
        if parts.scheme not in _PORTS:
            known = ", ".join(f"{scheme}://" for scheme in _PORTS)
            raise ValueError(f"{url!r}: unknown scheme {parts.scheme!r}; known are {known}")
        host = parts.path if parts.scheme == "unix" else parts.hostname
        if not host:
            raise ValueError(f"{url!r}: no host")
        path = ""
        if parts.scheme in _WEBSOCKET:
            path = _WEBSOCKET_PATH if parts.path in ("", "/") else parts.path
            path = f"{path}?{parts.query}" if parts.query else path
        return cls(
            scheme=parts.scheme,
            host=host,
            port=parts.port or _PORTS[parts.scheme],
            path=path,
            user_name=unquote(parts.username) if parts.username is not None else None,
            password=unquote(parts.password) if parts.password is not None else None,
        )

    def __str__(self) -> str:
        """The URL without credentials."""
        if self.scheme == "unix":
            return f"unix://{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}" + (self.path if self.is_websocket else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Will:
    """What the broker publishes when this client vanishes.

    Raises:
        LocalProtocolError: The topic or a property breaks MQTT.
    """

    topic: str
    payload: bytes | str = b""
    qos: int = 0
    retain: bool = False
    delay_s: int | None = None
    message_expiry_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user_properties: UserProperties = ()

    def __post_init__(self) -> None:
        """Refuse what a broker would refuse."""
        TopicName(self.topic)
        check_qos(self.qos)
        self.parts(5)

    def parts(self, level: int) -> tuple[str, bytes, int, bool, bytes]:
        """The will as CONNECT of this protocol level takes it."""
        properties = b""
        if level == LEVELS["5"]:
            properties = encode_properties(
                (
                    (PropertyId.WILL_DELAY_INTERVAL, self.delay_s),
                    (PropertyId.MESSAGE_EXPIRY_INTERVAL, self.message_expiry_s),
                    (PropertyId.CONTENT_TYPE, self.content_type),
                    (PropertyId.RESPONSE_TOPIC, self.response_topic),
                    (PropertyId.CORRELATION_DATA, self.correlation_data),
                ),
                self.user_properties,
            )
        return self.topic, payload_bytes(self.payload), self.qos, self.retain, properties


def check_qos(qos: int) -> int:
    """Refuse a QoS that does not exist.

    Raises:
        LocalProtocolError: It is not 0, 1 or 2.
    """
    if qos not in (0, 1, 2):
        raise LocalProtocolError(f"QoS {qos!r} does not exist", "choose 0, 1 or 2")
    return qos


class Authenticator(Protocol):
    """Enhanced authentication of MQTT 5, step by step; see `quantumqtt.client.auth`.

    A connection begins with `start`; `answer` follows for every challenge of the server. They run
    on the client's loop and must not block; `finish` runs under its lock and must not call it.
    """

    method: str

    def start(self) -> bytes | None:
        """The data of CONNECT, or of the AUTH that re-authenticates."""
        ...

    def answer(self, challenge: bytes | None) -> bytes | None:
        """The data that answers a challenge.

        Raises:
            NotAuthorized: The server could not prove what it has to prove.
        """
        ...

    def finish(self, data: bytes | None) -> None:
        """The server's last word with its success.

        Raises:
            NotAuthorized: The server could not prove what it has to prove.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """What the protocol itself has to know; everything a transport needs is elsewhere."""

    client_id: str = ""
    version: Version = "auto"
    user_name: str | None = None
    password: bytes | None = field(default=None, repr=False)
    keep_alive_s: int = 60
    clean_start: bool = True
    session_expiry_s: int | None = None
    will: Will | None = None
    authenticator: Authenticator | None = None
    user_properties: UserProperties = ()
    receive_maximum: int = 1024
    inflight_max: int = 1024
    packet_bytes_max: int = 64 * 1024 * 1024
    queue_bytes_max: int = 64 * 1024 * 1024
    topic_alias_maximum: int = 0
    topic_aliases: bool = False
    request_response_information: bool = False
    is_stored: bool = False

    def __post_init__(self) -> None:
        """Refuse what no connection could ever use."""
        if self.version not in LEVELS:
            raise ValueError(f"version {self.version!r}: one of {', '.join(LEVELS)}")
        if not 0 <= self.keep_alive_s <= KEEP_ALIVE_S_MAX:
            raise ValueError(f"keep_alive_s is 0 to {KEEP_ALIVE_S_MAX}")
        for name in ("receive_maximum", "inflight_max"):
            if not 1 <= getattr(self, name) <= KEEP_ALIVE_S_MAX:
                raise ValueError(f"{name} is 1 to 65535")
        if self.queue_bytes_max <= 0 or self.packet_bytes_max <= 0:
            raise ValueError("queue_bytes_max and packet_bytes_max are positive")
        for name, most in (
            ("session_expiry_s", UNLIMITED),
            ("packet_bytes_max", UNLIMITED),
            ("topic_alias_maximum", KEEP_ALIVE_S_MAX),
        ):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= most:
                raise ValueError(f"{name} is 0 to {most}")
        encode_properties((), self.user_properties)
        # Written once for nothing, so that bad text fails here and not in a background task.
        _core.encode_connect(
            LEVELS[self.version],
            self.client_id,
            clean_start=True,
            keep_alive_s=self.keep_alive_s,
            user_name=self.user_name,
            password=self.password,
            will=self.will.parts(LEVELS[self.version]) if self.will else None,
        )

    @property
    def resumes(self) -> bool:
        """Whether the session is to outlive this client."""
        return not self.clean_start or bool(self.session_expiry_s) or self.is_stored


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportOptions:
    """How a connection is made and made again."""

    endpoints: tuple[Endpoint, ...]
    tls: SSLContext | None = None
    tls_server_name: str | None = None
    proxy: Proxy | None = None
    websocket_headers: Mapping[str, str] = field(default_factory=dict)
    connect_timeout_s: float = 10.0
    reconnect: Backoff | None = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        """Refuse what no connection could ever use."""
        if self.connect_timeout_s <= 0:
            raise ValueError("connect_timeout_s is positive")
        check_headers(self.websocket_headers)
        if self.proxy is not None and any(one.scheme == "unix" for one in self.endpoints):
            raise ValueError("a Unix socket is on this machine: there is no proxy to it")
        if self.proxy is not None and any(one.is_quic for one in self.endpoints):
            raise ValueError("QUIC is made of datagrams, which no proxy here passes on")


def endpoints_of(url: str | Sequence[str]) -> tuple[Endpoint, ...]:
    """Read one URL or several.

    Raises:
        ValueError: One of them names no broker.
    """
    urls = [url] if isinstance(url, str) else url
    if not urls:
        raise ValueError("no URL: name at least one broker")
    return tuple(Endpoint.parse(one) for one in urls)
