"""Ways through a proxy: SOCKS5 (RFC 1928, RFC 1929) and HTTP CONNECT.

Each way is a generator that yields bytes to send and is sent the bytes that came; it ends when the
way is open. So nothing here has a socket, and `transports.py` walks both in the same manner. Names
are resolved by the proxy, never here: behind a proxy our own name service may know nothing.
"""

import base64
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from quantumqtt.errors import ConnectFailed

ANSWER_BYTES_MAX: Final = 16 * 1024
_PORTS: Final[Mapping[str, int]] = {"socks5": 1080, "socks5h": 1080, "http": 3128}
_SOCKS: Final = 5
_NO_AUTH: Final = 0
_PASSWORD: Final = 2
_NAME_BYTES_MAX: Final = 255
_REFUSALS: Final[Mapping[int, str]] = {
    1: "general failure",
    2: "not allowed by its rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "timed out",
    7: "command not supported",
    8: "address type not supported",
}

# What to send (may be empty), answered with what came since.
Way = Generator[bytes, bytes, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """Where a proxy is, and who we are to it."""

    scheme: str
    host: str
    port: int
    user_name: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> "Proxy":
        """Read `socks5://user:password@host:1080` or `http://host:3128`.

        Raises:
            ValueError: The URL is none of these; names what is wrong.
        """
        parts = urlsplit(url)
        if parts.scheme not in _PORTS:
            known = ", ".join(f"{scheme}://" for scheme in _PORTS)
            raise ValueError(f"proxy {url!r}: unknown scheme {parts.scheme!r}; known are {known}")
        if not parts.hostname:
            raise ValueError(f"proxy {url!r}: no host")
        proxy = cls(
            scheme=parts.scheme,
            host=parts.hostname,
            port=parts.port or _PORTS[parts.scheme],
            user_name=unquote(parts.username) if parts.username is not None else None,
            password=unquote(parts.password) if parts.password is not None else None,
        )
        for secret in (proxy.user_name, proxy.password):
            if secret is not None and len(secret.encode()) > _NAME_BYTES_MAX:
                raise ValueError("proxy: user name and password have at most 255 bytes")
        return proxy

    def __str__(self) -> str:
        """The URL without credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def way_to(self, host: str, port: int) -> Way:
        """What to say to get to a server."""
        if self.scheme == "http":
            return _http_connect(self, host, port)
        return _socks5(self, host, port)


def _socks5(proxy: Proxy, host: str, port: int) -> Way:
    name = host.encode("idna" if not host.isascii() else "ascii")
    if len(name) > _NAME_BYTES_MAX:
        raise _refused(proxy, f"{host!r} is longer than SOCKS5 can say")
    has_secret = proxy.user_name is not None
    methods = bytes((_NO_AUTH, _PASSWORD)) if has_secret else bytes((_NO_AUTH,))
    answer = bytearray((yield bytes((_SOCKS, len(methods))) + methods))
    yield from _fill(proxy, answer, 2)
    version, method = answer[0], answer[1]
    del answer[:2]
    if version != _SOCKS:
        raise _refused(proxy, "it does not speak SOCKS5")
    if method == _PASSWORD and has_secret:
        user, secret = (proxy.user_name or "").encode(), (proxy.password or "").encode()
        answer += yield b"\x01" + bytes((len(user),)) + user + bytes((len(secret),)) + secret
        yield from _fill(proxy, answer, 2)
        if answer[1] != 0:
            raise _refused(proxy, "it does not take our user name and password")
        del answer[:2]
    elif method != _NO_AUTH:
        raise _refused(proxy, "it wants another way to say who we are")
    answer += yield b"\x05\x01\x00\x03" + bytes((len(name),)) + name + port.to_bytes(2, "big")
    yield from _fill(proxy, answer, 5)
    if answer[1] != 0:
        why = _REFUSALS.get(answer[1], f"code {answer[1]}")
        raise _refused(proxy, f"no way to {host}:{port}: {why}")
    lengths = {1: 4, 3: 1 + answer[4], 4: 16}
    if answer[3] not in lengths:
        raise _refused(proxy, "it does not speak SOCKS5")
    yield from _fill(proxy, answer, 4 + lengths[answer[3]] + 2)
    if len(answer) > 4 + lengths[answer[3]] + 2:
        raise _refused(proxy, "something spoke before we did")


def _http_connect(proxy: Proxy, host: str, port: int) -> Way:
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.user_name is not None:
        secret = f"{proxy.user_name}:{proxy.password or ''}".encode()
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(secret).decode()}")
    answer = bytearray((yield ("\r\n".join(lines) + "\r\n\r\n").encode()))
    while (end := answer.find(b"\r\n\r\n")) < 0:
        if len(answer) > ANSWER_BYTES_MAX:
            raise _refused(proxy, "its answer has no end")
        answer += yield b""
    first = bytes(answer).split(b"\r\n", 1)[0].decode("latin-1")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1."):
        raise _refused(proxy, f"it answers {first[:60]!r}")
    if not words[1].startswith("2"):
        raise _refused(proxy, f"no way to {target}: {' '.join(words[1:])[:80]}")
    if len(answer) > end + 4:
        raise _refused(proxy, "something spoke before we did")


def _fill(proxy: Proxy, answer: bytearray, count: int) -> Way:
    while len(answer) < count:
        answer += yield b""


def _refused(proxy: Proxy, why: str) -> ConnectFailed:
    return ConnectFailed(
        f"proxy {proxy}: {why}", "check the proxy's address, its credentials and its rules"
    )
