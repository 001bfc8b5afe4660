"""Making a connection: TCP, TLS, Unix sockets, WebSocket, QUIC, proxies, to one of several URLs.

Theory of operation. `open_transport` makes one transport to one endpoint, in layers: a socket
(straight, or through a proxy), TLS if asked for, WebSocket if asked for; QUIC is all of these in
one. What comes out is an `asyncio.Transport` in any case, and the bytes of MQTT go to the given
link.

`race` tries several endpoints. The first gets a head start; each next one starts when the one
before has failed, or has had its time. The first that is open wins, the others are dropped.
"""

import asyncio
import contextlib
import secrets
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from quantumqtt.client.options import Endpoint, TransportOptions
from quantumqtt.client.proxies import Proxy
from quantumqtt.client.websocket import WebSocket
from quantumqtt.errors import ConnectFailed, ConnectionLost, QuantuMQTTError, TlsFailed

HEAD_START_S: Final = 0.25
_PROXY_READ_BYTES: Final = 4096

Opened = TypeVar("Opened")


class ClientTls(ssl.SSLContext):
    """A TLS context that remembers where its own certificate is, which QUIC has to read again."""

    identity: tuple[str, str | None, str | None] | None = None


def tls_context(
    *,
    ca_file: str | None = None,
    certificate_file: str | None = None,
    key_file: str | None = None,
    key_password: str | None = None,
    alpn: Sequence[str] = (),
) -> ssl.SSLContext:
    """Make a TLS context for `tls=`: our own authority, a client certificate, ALPN names.

    Some hosted brokers take MQTT on port 443 when ALPN says so; which names, their manual says.

    Raises:
        OSError: A file cannot be read, or holds no certificate or key.
    """
    context = ClientTls(ssl.PROTOCOL_TLS_CLIENT)
    if ca_file is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cafile=ca_file)
    if certificate_file is not None:
        context.load_cert_chain(certificate_file, key_file, key_password)
        context.identity = (certificate_file, key_file, key_password)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


async def open_transport(
    endpoint: Endpoint, options: TransportOptions, link: asyncio.Protocol
) -> asyncio.Transport:
    """Make a transport whose bytes of MQTT go to `link`.

    Raises:
        ConnectFailed: It could not be made; `TlsFailed` when TLS said no.
        RemoteProtocolError: What answers does not speak WebSocket.
    """
    if endpoint.is_quic:
        return await _open_quic(endpoint, options, link)
    if not endpoint.is_websocket:
        return await _open_stream(endpoint, options, link)
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    web_socket = WebSocket(
        f"{host}:{endpoint.port}",
        endpoint.path,
        options.websocket_headers,
        nonce=secrets.token_bytes(16),
        new_mask=lambda: secrets.token_bytes(4),
    )
    web_link = _WebSocketLink(web_socket, link)
    under = await _open_stream(endpoint, options, web_link)
    try:
        under.write(web_socket.request())
        await web_link.opened
    except BaseException:
        under.abort()
        raise
    return _WebSocketTransport(under, web_socket)


async def _open_stream(
    endpoint: Endpoint, options: TransportOptions, link: asyncio.Protocol
) -> asyncio.Transport:
    loop = asyncio.get_running_loop()
    context = options.tls
    if context is None and endpoint.is_encrypted:
        context = ssl.create_default_context()
    server_name = (options.tls_server_name or endpoint.host) if context else None
    try:
        if endpoint.scheme == "unix":
            transport, _ = await loop.create_unix_connection(lambda: link, endpoint.host)
            return transport
        if options.proxy is not None:
            through = await _socket_through(options.proxy, endpoint)
            try:
                transport, _ = await loop.create_connection(
                    lambda: link, sock=through, ssl=context, server_hostname=server_name
                )
            except BaseException:
                through.close()
                raise
            return transport
        transport, _ = await loop.create_connection(
            lambda: link,
            endpoint.host,
            endpoint.port,
            ssl=context,
            server_hostname=server_name,
            happy_eyeballs_delay=HEAD_START_S,
        )
        return transport
    except ssl.SSLError as error:
        raise TlsFailed(
            f"TLS with {endpoint}: {error.reason or error}",
            "check the certificates, the authority (tls=) and the server name",
        ) from error
    except OSError as error:
        raise ConnectFailed(
            f"cannot connect to {endpoint}: {error.strerror or error}",
            "is the broker running, and are host and port right?",
        ) from error


async def _open_quic(
    endpoint: Endpoint, options: TransportOptions, link: asyncio.Protocol
) -> asyncio.Transport:
    try:
        from quantumqtt.client.quic import open_quic
    except ImportError as error:
        failed = ConnectFailed(
            f"cannot connect to {endpoint}: MQTT over QUIC needs aioquic ({error})",
            "install it: pip install 'quantumqtt[quic]'",
        )
        failed.retryable = False
        raise failed from error
    try:
        return await open_quic(endpoint, options, link)
    except OSError as error:
        raise ConnectFailed(
            f"cannot connect to {endpoint}: {error.strerror or error}",
            "is the broker running, and are host and port right?",
        ) from error


async def _socket_through(proxy: Proxy, endpoint: Endpoint) -> socket.socket:
    """Make a socket that the proxy has joined to the endpoint."""
    loop = asyncio.get_running_loop()
    way = proxy.way_to(endpoint.host, endpoint.port)
    try:
        found = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        link = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _no_proxy(proxy, error) from error
    try:
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(link, address)
        send = next(way)
        with contextlib.suppress(StopIteration):
            while True:
                if send:
                    await loop.sock_sendall(link, send)
                answer = await loop.sock_recv(link, _PROXY_READ_BYTES)
                if not answer:
                    raise ConnectFailed(
                        f"proxy {proxy} closed the connection",
                        "check the proxy's address, its credentials and its rules",
                    )
                send = way.send(answer)
    except OSError as error:
        link.close()
        raise _no_proxy(proxy, error) from error
    except BaseException:
        link.close()
        raise
    return link


def _no_proxy(proxy: Proxy, error: OSError) -> ConnectFailed:
    return ConnectFailed(
        f"cannot connect to proxy {proxy}: {error.strerror or error}", "is the proxy running?"
    )


# --- several endpoints ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Winner(Generic[Opened]):
    """What came first, and from which place in the row."""

    place: int
    opened: Opened


async def race(
    attempts: Sequence[Callable[[], Coroutine[object, object, Opened]]],
    drop: Callable[[Opened], None],
    *,
    head_start_s: float = HEAD_START_S,
) -> Winner[Opened]:
    """Run attempts, each after the one before failed or had its head start; the first wins.

    `drop` is called with whatever else came open. Cancelling drops everything.

    Raises:
        QuantuMQTTError: All failed; the first attempt's error, which names the others.
    """
    tasks: list[asyncio.Task[Opened]] = []
    winner: asyncio.Task[Opened] | None = None
    try:
        while True:
            running = [task for task in tasks if not task.done()]
            winner = next((one for one in tasks if one.done() and not one.exception()), None)
            if winner is not None:
                return Winner(tasks.index(winner), winner.result())
            may_start = len(tasks) < len(attempts)
            if not running and not may_start:
                raise _all_failed(tasks)
            if may_start:
                tasks.append(asyncio.ensure_future(attempts[len(tasks)]()))
                running.append(tasks[-1])
            waits = head_start_s if len(tasks) < len(attempts) else None
            await asyncio.wait(running, timeout=waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _drop_others(tasks, winner, drop)


async def _drop_others(
    tasks: Sequence[asyncio.Task[Opened]],
    winner: asyncio.Task[Opened] | None,
    drop: Callable[[Opened], None],
) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if task is not winner and not task.cancelled() and task.exception() is None:
            drop(task.result())


def _all_failed(tasks: Sequence[asyncio.Task[Opened]]) -> BaseException:
    errors = [error for task in tasks if (error := task.exception()) is not None]
    first = errors[0]
    if len(errors) == 1 or not isinstance(first, QuantuMQTTError):
        return first
    failed = ConnectFailed("; ".join(map(str, errors)), first.hint)
    failed.retryable = any(getattr(error, "retryable", False) for error in errors)
    return failed


# --- WebSocket as a transport --------------------------------------------------------------------


class _WebSocketLink(asyncio.Protocol):
    """Takes frames from the transport below and hands their payload to the link above."""

    def __init__(self, web_socket: WebSocket, link: asyncio.Protocol) -> None:
        self._web_socket = web_socket
        self._link = link
        self._under: asyncio.Transport | None = None
        self._error: Exception | None = None
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "streams come with transports"
        self._under = transport

    def data_received(self, data: bytes) -> None:
        under = self._under
        assert under is not None, "data comes after the connection"
        try:
            payload = self._web_socket.receive(data)
        except QuantuMQTTError as error:
            self._error = error
            under.write(self._web_socket.take_output())
            under.close()
            return
        answers = self._web_socket.take_output()
        if answers:
            under.write(answers)
        if self._web_socket.is_open and not self.opened.done():
            self.opened.set_result(None)
        if payload:
            self._link.data_received(payload)

    def connection_lost(self, exc: Exception | None) -> None:
        error = self._error or exc
        if not self.opened.done():
            closed = ConnectionLost("the server closed the connection before WebSocket was open")
            self.opened.set_exception(error or closed)
            # Whoever opens may have been cancelled; then nobody asks.
            self.opened.exception()
        self._link.connection_lost(error)

    def pause_writing(self) -> None:
        self._link.pause_writing()

    def resume_writing(self) -> None:
        self._link.resume_writing()


class _WebSocketTransport(asyncio.Transport):
    """What the driver needs of a transport, in frames."""

    def __init__(self, under: asyncio.Transport, web_socket: WebSocket) -> None:
        super().__init__()
        self._under = under
        self._web_socket = web_socket

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._under.write(self._web_socket.frame(bytes(data)))

    def close(self) -> None:
        if not self._under.is_closing():
            self._under.write(self._web_socket.close())
            self._under.close()

    def abort(self) -> None:
        self._under.abort()

    def is_closing(self) -> bool:
        return self._under.is_closing()

    def pause_reading(self) -> None:
        self._under.pause_reading()

    def resume_reading(self) -> None:
        self._under.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._under.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._under.get_extra_info(name, default)
