"""Addresses: where MQTT, the admin endpoint and the log service are served.

A listen URL is `tcp://HOST[:PORT]`, `tls://…`, `ws://HOST[:PORT]/PATH`, `wss://…` or
`unix:///PATH`. HOST is an IPv4 address, an IPv6 address in brackets or a name; PORT 0 asks the
kernel for a free one. Nothing here resolves names or opens sockets: whether a name exists is found
out when the node starts.
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from quantumqtt.errors import ConfigError

MQTT_PORT: Final = 1883
ADMIN_OFF: Final = "off"
FLIGHT_PORT: Final = 8815
FLIGHT_SCHEMES: Final = ("grpc", "grpc+tls")

# Each with the port that is used when none is written.
PORTS: Final = {"tcp": MQTT_PORT, "tls": 8883, "ws": 8083, "wss": 8084}
SCHEMES: Final = (*PORTS, "unix")
# Planned schemes get their own answer, so that nobody hunts for a typing mistake.
SCHEMES_PLANNED: Final = ("quic",)
WEBSOCKET_PATH: Final = "/mqtt"
# The kernel's own bound on the path of a socket, without the zero at its end.
SOCKET_PATH_BYTES_MAX: Final = 107

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9]([A-Za-z0-9_-]{0,62}))*\.?")
_NAME_CHARS_MAX: Final = 253
_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")


@dataclass(frozen=True, slots=True)
class Address:
    """One door: scheme, host and port, already checked.

    A Unix socket has its path for a host and port 0.
    """

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def url(self) -> str:
        """The address as a URL, IPv6 hosts in brackets."""
        if self.scheme == "unix":
            return f"unix://{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine can reach it.

        A name other than `localhost` counts as reachable from outside: it may resolve to anything.
        """
        if self.scheme == "unix" or self.host.lower().rstrip(".") == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_plaintext(self) -> bool:
        """Whether bytes on this door travel unencrypted."""
        return self.scheme in {"tcp", "ws", "http", "grpc"}

    @property
    def is_encrypted(self) -> bool:
        """Whether TLS is spoken here."""
        return self.scheme in {"tls", "wss", "grpc+tls"}

    @property
    def is_websocket(self) -> bool:
        """Whether MQTT comes inside a WebSocket."""
        return self.scheme in {"ws", "wss"}


def parse_listen(text: str) -> Address:
    """Read a listen URL such as `tcp://127.0.0.1:1883` or `tcp://[::1]:0`.

    Raises:
        ConfigError: The URL cannot be understood; the hint shows one that can.
    """
    scheme, separator, _rest = text.partition("://")
    if not separator:
        raise ConfigError("the scheme is missing", hint=f"write tcp://{text or '127.0.0.1:1883'}")
    scheme = scheme.lower()
    if scheme not in SCHEMES:
        raise _unknown_scheme(scheme)
    parts = _split(text)
    if scheme == "unix":
        return _socket_address(parts)
    path = ""
    if scheme in {"ws", "wss"}:
        path = parts.path.rstrip("/") or WEBSOCKET_PATH
        if not _PATH.fullmatch(path) or parts.query or parts.fragment:
            raise ConfigError(
                "the path of a WebSocket is letters, digits and / - . _ ~",
                hint=f"write {scheme}://HOST:PORT{WEBSOCKET_PATH}",
            )
    elif parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ConfigError(
            f"a {scheme} address ends after the port", hint="remove everything after the port"
        )
    host, port = _host_and_port(parts, port_default=PORTS[scheme])
    return Address(scheme, host, port, path)


def _socket_address(parts: SplitResult) -> Address:
    if parts.netloc or not parts.path.startswith("/") or parts.query or parts.fragment:
        raise ConfigError(
            "the path of a Unix socket is absolute and ends the URL",
            hint="write unix:///run/quantumqtt/mqtt.sock, with three slashes",
        )
    if parts.path.endswith("/") or len(parts.path.encode()) > SOCKET_PATH_BYTES_MAX:
        raise ConfigError(
            f"the path of a Unix socket is a file, of at most {SOCKET_PATH_BYTES_MAX} bytes",
            hint="write unix:///run/quantumqtt/mqtt.sock",
        )
    return Address("unix", parts.path, 0)


def parse_admin(text: str) -> Address | None:
    """Read the admin address, `127.0.0.1:8080`; `off` gives None.

    Raises:
        ConfigError: The address cannot be understood.
    """
    if text.lower() == ADMIN_OFF:
        return None
    bare = text.removeprefix("http://").removesuffix("/")
    parts = _split(f"http://{bare}")
    if parts.path or parts.query or parts.fragment:
        raise ConfigError("is not HOST:PORT", hint="write 127.0.0.1:8080, or off")
    host, port = _host_and_port(parts, port_default=None)
    return Address(scheme="http", host=host, port=port)


def parse_flight(text: str) -> Address | None:
    """Read the address of the log service, `[grpc+tls://]127.0.0.1:8815`; `off` gives None.

    Raises:
        ConfigError: The address cannot be understood.
    """
    if text.lower() == ADMIN_OFF:
        return None
    scheme, separator, bare = text.removesuffix("/").rpartition("://")
    if separator and scheme not in FLIGHT_SCHEMES:
        raise ConfigError(
            f"unknown scheme {scheme!r}", hint="write HOST:PORT, grpc+tls://HOST:PORT, or off"
        )
    parts = _split(f"grpc://{bare}")
    if parts.path or parts.query or parts.fragment:
        raise ConfigError("is not HOST:PORT", hint="write 127.0.0.1:8815, or off")
    host, port = _host_and_port(parts, port_default=FLIGHT_PORT)
    return Address(scheme or FLIGHT_SCHEMES[0], host, port)


def _split(text: str) -> SplitResult:
    # urlsplit drops tabs and newlines in silence; an address with such bytes is a mistake.
    if any(character.isspace() or not character.isprintable() for character in text):
        raise ConfigError(
            "spaces and control characters do not belong in an address",
            hint="write tcp://127.0.0.1:1883 or 127.0.0.1:8080",
        )
    try:
        return urlsplit(text)
    except ValueError as error:
        raise ConfigError(
            f"is not an address ({error})", hint="put an IPv6 address in brackets: tcp://[::1]:1883"
        ) from error


def _host_and_port(parts: SplitResult, *, port_default: int | None) -> tuple[str, int]:
    if parts.username is not None:
        raise ConfigError(
            "an address to listen on has no user name", hint="remove the part before @"
        )
    if parts.netloc.count(":") > 1 and "[" not in parts.netloc:
        raise ConfigError(
            "an IPv6 address stands in brackets", hint="write it as in tcp://[::1]:1883"
        )
    host = parts.hostname
    if not host:
        raise ConfigError(
            "the host is missing",
            hint="write 127.0.0.1 for this machine only, 0.0.0.0 or [::] for every interface",
        )
    _check_host(host)
    try:
        port = parts.port
    except ValueError as error:
        raise ConfigError(
            "the port is not a number from 0 to 65535",
            hint=f"write a port such as {MQTT_PORT}; 0 takes a free one",
        ) from error
    if port is None:
        port = port_default
    if port is None:
        raise ConfigError("the port is missing", hint=f"write {host}:8080; 0 takes a free port")
    return host, port


def _check_host(host: str) -> None:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        if "%" not in host:
            return
    looks_numeric = re.fullmatch(r"[0-9.]+", host) is not None
    if looks_numeric or len(host) > _NAME_CHARS_MAX or not _NAME.fullmatch(host):
        raise ConfigError(
            f"the host {host!r} is neither an IP address nor a host name",
            hint="write 127.0.0.1, [::1], 0.0.0.0 or a name",
        )


def _unknown_scheme(scheme: str) -> ConfigError:
    *others, last = (f"{name}://" for name in SCHEMES)
    exist = f"{', '.join(others)} or {last}"
    if scheme.lower() in SCHEMES_PLANNED:
        return ConfigError(
            f"{scheme}:// is not in this release yet", hint=f"use {exist}; it is what exists today"
        )
    if scheme.lower() == "mqtt":
        return ConfigError("mqtt:// is what clients write", hint="to listen, write tcp://")
    return ConfigError(f"unknown scheme {scheme!r}", hint=f"use {exist}; it is what exists today")
