"""The connection under `pub`, `sub` and `rr`: TCP or a Unix socket, a proxy, TLS; never waits.

Connecting waits, up to a deadline; afterwards the socket does not block. Bytes that it does not
take at once are kept and go out before anything newer.
"""

import os
import select
import socket
import stat
from typing import TYPE_CHECKING, Final

from quantumqtt.cli.mosquitto.options import PORT, PORT_TLS, Options, Proxy
from quantumqtt.cli.mosquitto.usage import refuse
from quantumqtt.errors import ConnectFailed, ConnectionLost, TlsFailed

if TYPE_CHECKING:
    import ssl

CONNECT_S_MAX: Final = 30.0
READ_BYTES: Final = 256 * 1024
_SOCKS_VERSION: Final = b"\5"
_SOCKS_ANSWERS: Final = {
    1: "it failed",
    2: "its rules forbid it",
    3: "the network is unreachable",
    4: "the host is unreachable or unknown",
    5: "the broker refused the connection",
    6: "it took too long",
}


class Link:
    """One open connection."""

    def __init__(self, options: Options) -> None:
        """Connect.

        Raises:
            ConnectFailed: No connection came about; `TlsFailed` when TLS said no.
            UsageError: A certificate, key or cipher list cannot be used.
        """
        self._rest = bytearray()
        self._wants_write = False
        self._socket = _connect(options)
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """What to wait on."""
        return self._socket.fileno()

    @property
    def wanted(self) -> int:
        """The events of poll worth waking for."""
        writes = self._rest or self._wants_write
        return select.POLLIN | select.POLLOUT if writes else select.POLLIN

    def send(self, data: bytes = b"") -> None:
        """Write what can be written, and keep the rest.

        Raises:
            ConnectionLost: The peer is gone.
        """
        self._rest += data
        self._wants_write = False
        try:
            while self._rest:
                del self._rest[: self._socket.send(self._rest)]
        except OSError as error:
            self._judge(error)

    def receive(self) -> bytes:
        """Take what has come; nothing when nothing has.

        Raises:
            ConnectionLost: The peer is gone.
        """
        parts: list[bytes] = []
        try:
            # TLS may hold more than one read returns, and poll would not tell.
            while part := self._socket.recv(READ_BYTES):
                parts.append(part)
                if not hasattr(self._socket, "pending"):
                    return part
        except OSError as error:
            self._judge(error)
            return b"".join(parts)
        if parts:
            return b"".join(parts)
        raise ConnectionLost("the broker closed the connection")

    @property
    def has_unsent(self) -> bool:
        """Whether bytes wait to be written."""
        return bool(self._rest)

    def close(self) -> None:
        """Let go; what could not be written is lost."""
        self._socket.close()

    def _judge(self, error: OSError) -> None:
        if isinstance(error, BlockingIOError | InterruptedError):
            return
        name = type(error).__name__
        if name in ("SSLWantReadError", "SSLWantWriteError"):
            self._wants_write = name == "SSLWantWriteError"
            return
        raise ConnectionLost(f"the connection was lost: {error.strerror or error}") from error


def _connect(options: Options) -> socket.socket:
    if options.unix is not None:
        return _connect_unix(options.unix)
    host = options.host or "localhost"
    port = options.port
    if port is None:
        port = PORT_TLS if options.is_encrypted else PORT
    context = _tls_context(options) if options.is_encrypted else None
    proxy = options.proxy
    source = (options.bind, 0) if options.bind else None
    first = (host, port) if proxy is None else (proxy.host, proxy.port)
    where = f"{first[0]}:{first[1]}"
    try:
        link = socket.create_connection(first, CONNECT_S_MAX, source)
    except OSError as error:
        what = "proxy" if proxy is not None else "broker"
        raise ConnectFailed(
            f"cannot connect to {where}: {error.strerror or error}",
            f"is the {what} running, and are host and port right?",
        ) from error
    try:
        # Without it the second small packet of an exchange waits for an acknowledgement of TCP.
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if proxy is not None:
            _ask_proxy(link, proxy, host, port)
        return link if context is None else _encrypt(link, context, host)
    except BaseException:
        link.close()
        raise


def _connect_unix(path: str) -> socket.socket:
    link = socket.socket(socket.AF_UNIX)
    try:
        if os.path.exists(path) and not stat.S_ISSOCK(os.stat(path).st_mode):
            refuse(f"--unix {path}: not a socket")
        link.connect(path)
    except OSError as error:
        link.close()
        raise ConnectFailed(
            f"cannot connect to {path}: {error.strerror or error}",
            "is the broker running, and is the path right?",
        ) from error
    return link


def _ask_proxy(link: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Have a SOCKS5 proxy connect (RFC 1928, RFC 1929); it looks the name up."""
    try:
        link.sendall(_SOCKS_VERSION + (b"\1\0" if proxy.user_name is None else b"\2\0\2"))
        method = _exactly(link, 2)[1]
        if method == 2 and proxy.user_name is not None:
            name, password = proxy.user_name.encode(), (proxy.password or "").encode()
            if max(len(name), len(password)) > 255:
                refuse("--proxy: user name and password are at most 255 bytes each")
            link.sendall(b"\1" + bytes([len(name)]) + name + bytes([len(password)]) + password)
            if _exactly(link, 2)[1] != 0:
                raise ConnectFailed("the proxy refused user name and password")
        elif method != 0:
            raise ConnectFailed(
                "the proxy wants another kind of authentication",
                "put the user into the URL: socks5h://user:password@host",
            )
        name = host.encode("idna") if not host.isascii() else host.encode()
        link.sendall(b"\5\1\0\3" + bytes([len(name)]) + name + port.to_bytes(2, "big"))
        answer = _exactly(link, 4)
        length = {1: 4, 3: -1, 4: 16}.get(answer[3], 0)
        _exactly(link, (_exactly(link, 1)[0] if length < 0 else length) + 2)
    except OSError as error:
        raise ConnectFailed(f"the proxy did not answer: {error}") from error
    if answer[1]:
        why = _SOCKS_ANSWERS.get(answer[1], f"code {answer[1]}")
        raise ConnectFailed(f"the proxy cannot connect to {host}:{port}: {why}")


def _exactly(link: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        part = link.recv(count - len(got))
        if not part:
            raise ConnectionResetError("it closed the connection")
        got += part
    return got


def _tls_context(options: Options) -> "ssl.SSLContext":
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    versions = {
        None: ssl.TLSVersion.TLSv1_2,
        "tlsv1.1": ssl.TLSVersion.TLSv1_1,
        "tlsv1.2": ssl.TLSVersion.TLSv1_2,
        "tlsv1.3": ssl.TLSVersion.TLSv1_3,
    }
    if options.tls_version not in versions:
        refuse(f"--tls-version {options.tls_version!r}", "one of tlsv1.3, tlsv1.2, tlsv1.1")
    context.minimum_version = versions[options.tls_version]
    context.check_hostname = not options.insecure
    try:
        if options.cafile or options.capath:
            context.load_verify_locations(options.cafile, options.capath)
        if options.tls_use_os_certs or not (options.cafile or options.capath):
            context.load_default_certs()
        if options.cert is not None:
            context.load_cert_chain(options.cert, options.key)
        if options.ciphers is not None:
            context.set_ciphers(options.ciphers)
    except OSError as error:
        refuse(f"TLS: {error.strerror or error}", "are the files there, and are they PEM?")
    if options.tls_alpn is not None:
        context.set_alpn_protocols([options.tls_alpn])
    if options.psk is not None:
        _use_psk(context, options.psk, options.psk_identity)
    return context


def _use_psk(context: "ssl.SSLContext", key: str, identity: str | None) -> None:
    import ssl

    use = getattr(context, "set_psk_client_callback", None)
    if use is None:
        refuse(
            "--psk: this Python cannot use pre-shared keys",
            "run it with Python 3.13 or newer, or use certificates",
        )
    try:
        secret = bytes.fromhex(key)
    except ValueError:
        refuse("--psk: not hexadecimal")
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("PSK")
    use(lambda _hint: (identity, secret))


def _encrypt(link: socket.socket, context: "ssl.SSLContext", host: str) -> socket.socket:
    import ssl

    try:
        return context.wrap_socket(link, server_hostname=host)
    except ssl.SSLError as error:
        raise TlsFailed(
            f"TLS with {host}: {error.reason or error}",
            "check --cafile, --cert and --key, and the name in the broker's certificate",
        ) from error
    except OSError as error:
        raise ConnectFailed(
            f"TLS with {host}: {error.strerror or error}", "does the broker speak TLS on this port?"
        ) from error
