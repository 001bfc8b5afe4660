"""MQTT over QUIC: one stream in both directions, alone in a connection of its own, by aioquic.

Theory of operation. aioquic turns datagrams into events and back; `_Connection` feeds it and is
itself the `asyncio.Transport` that the driver writes to. The stream is opened by us when the
handshake is over; a link that is attached hears of its bytes, and of its end exactly once.

Rules:
- Nothing grows without bound. Towards the server, `pause_writing` is said when more bytes are
  unacknowledged than the driver allows. From it, what arrives while reading is paused is held up to
  `HELD_BYTES_MAX`; further datagrams are dropped, as a full socket would, and the server repeats
  them. aioquic has no way to keep a window shut.
- `close` lets the server acknowledge everything, then ends the connection; `abort` does so at once.
- QUIC's own idle timeout is left to the server: MQTT's keep-alive notices here who is gone.

Imported only where a `quic://` URL is opened: aioquic is the extra `quantumqtt[quic]`.
"""

import asyncio
import functools
import socket
import ssl
from typing import Final, cast

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import NetworkAddress, QuicConnection
from aioquic.quic.events import (
    ConnectionTerminated,
    HandshakeCompleted,
    QuicEvent,
    StopSendingReceived,
    StreamDataReceived,
    StreamReset,
)

from quantumqtt.client.options import KEEP_ALIVE_S_MAX, Endpoint, TransportOptions
from quantumqtt.client.transports import ClientTls, race
from quantumqtt.errors import ConnectFailed, QuantuMQTTError, TlsFailed

ALPN: Final = "mqtt"
HELD_BYTES_MAX: Final = 1024 * 1024
_HIGH_WATER_BYTES: Final = 64 * 1024
# One and a half of the longest keep-alive there is; the shorter timeout of the two ends counts.
_IDLE_S: Final = 1.5 * KEEP_ALIVE_S_MAX
# Errors of TLS are its alerts, above this; RFC 9001, section 4.8.
_TLS_ALERTS: Final = range(0x100, 0x200)
_NO_APPLICATION_PROTOCOL: Final = 0x178


async def open_quic(
    endpoint: Endpoint, options: TransportOptions, link: asyncio.Protocol
) -> asyncio.Transport:
    """Make a QUIC connection with one stream whose bytes go to `link`.

    Raises:
        ConnectFailed: It could not be made; `TlsFailed` when TLS said no.
        OSError: The name has no address, or a certificate cannot be read.
    """
    # Before anything is sent: files may be missing.
    _configuration(endpoint, options)
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_DGRAM)
    attempts = [
        functools.partial(_open_at, family, address, endpoint, options)
        for family, _, _, _, address in found
    ]
    connection = (await race(attempts, _Connection.abort)).opened
    connection.attach(link)
    return connection


async def _open_at(
    family: int, address: NetworkAddress, endpoint: Endpoint, options: TransportOptions
) -> "_Connection":
    """Shake hands with one address."""
    loop = asyncio.get_running_loop()
    quic = QuicConnection(configuration=_configuration(endpoint, options))
    # A connected socket hears at once when nobody listens there.
    datagrams = socket.socket(family, socket.SOCK_DGRAM)
    try:
        datagrams.setblocking(False)
        datagrams.connect(address)
        _, connection = await loop.create_datagram_endpoint(
            lambda: _Connection(quic, endpoint), sock=datagrams
        )
    except OSError as error:
        datagrams.close()
        raise _no_answer(endpoint, error) from error
    try:
        connection.connect(address)
        await connection.opened
    except BaseException:
        connection.abort()
        raise
    return connection


def _configuration(endpoint: Endpoint, options: TransportOptions) -> QuicConfiguration:
    """Say in aioquic's words whom to trust and who we are.

    Raises:
        ConnectFailed: The context asks for something that only TLS over TCP can do.
        OSError: The client's certificate cannot be read.
    """
    configuration = QuicConfiguration(
        is_client=True,
        alpn_protocols=[ALPN],
        idle_timeout=_IDLE_S,
        server_name=options.tls_server_name or endpoint.host,
        verify_mode=ssl.CERT_REQUIRED,
    )
    context = options.tls
    if context is None:
        paths = ssl.get_default_verify_paths()
        configuration.cafile, configuration.capath = paths.cafile, paths.capath
        return configuration
    if isinstance(context, ClientTls) and context.identity is not None:
        configuration.load_cert_chain(*context.identity)
    if context.verify_mode == ssl.CERT_NONE:
        configuration.verify_mode = ssl.CERT_NONE
        return configuration
    if not context.check_hostname:
        raise ConnectFailed(
            f"{endpoint}: QUIC checks the server's name, which this tls= does not want",
            "leave check_hostname on and name the server with tls_server_name=",
        )
    authorities = context.get_ca_certs(binary_form=True)
    if not authorities:
        raise ConnectFailed(
            f"{endpoint}: tls= holds no authorities that QUIC could use",
            "name a file of authorities: tls=tls_context(ca_file=…); a directory will not do",
        )
    configuration.cadata = "".join(map(ssl.DER_cert_to_PEM_cert, authorities)).encode()
    return configuration


def _no_answer(endpoint: Endpoint, error: OSError) -> ConnectFailed:
    return ConnectFailed(
        f"cannot connect to {endpoint}: {error.strerror or error}",
        "does a broker listen for QUIC there, and may UDP pass?",
    )


class _Connection(QuicConnectionProtocol, asyncio.Transport):
    """A connection, and the transport of its only stream."""

    def __init__(self, quic: QuicConnection, endpoint: Endpoint) -> None:
        QuicConnectionProtocol.__init__(self, quic)
        asyncio.Transport.__init__(self)
        self._endpoint = endpoint
        self._link: asyncio.Protocol | None = None
        self._datagrams: asyncio.DatagramTransport | None = None
        self._stream_id: int | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._is_reading = True
        self._is_writable = True
        self._high, self._low = _HIGH_WATER_BYTES, _HIGH_WATER_BYTES // 4
        self._is_flushing = False
        self._is_closing = False
        self._is_over = False
        self._end_error: Exception | None = None
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def attach(self, link: asyncio.Protocol) -> None:
        """Hand the stream to its link; what came before follows."""
        self._link = link
        self._hand_out()

    # --- what the driver asks of a transport --------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_over or self._is_closing or self._stream_id is None:
            return
        self._quic.send_stream_data(self._stream_id, bytes(data))
        self._flush_soon()
        if self._is_writable and self._link is not None and self._unacknowledged() > self._high:
            self._is_writable = False
            self._link.pause_writing()

    def close(self, error_code: int = 0, reason_phrase: str = "") -> None:
        if self._is_over or self._is_closing or self._stream_id is None:
            return
        self._is_closing = True
        self._quic.send_stream_data(self._stream_id, b"", end_stream=True)
        self._flush_soon()

    def abort(self) -> None:
        self._held.clear()
        self._end(None)

    def is_closing(self) -> bool:
        return self._is_closing or self._is_over

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._hand_out()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_extra_info(self, name: str, default: object = None) -> object:
        if self._datagrams is None:
            return default
        return self._datagrams.get_extra_info(name, default)

    # --- what aioquic and the socket tell us --------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio's own does not inherit from the class that says so.
        self._datagrams = cast("asyncio.DatagramTransport", transport)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)

    def error_received(self, exc: Exception) -> None:
        self._end(exc)

    def datagram_received(self, data: bytes | str, addr: NetworkAddress) -> None:
        if self._is_over or self._held_bytes > HELD_BYTES_MAX:
            return
        super().datagram_received(data, addr)
        self._after_progress()

    def transmit(self) -> None:
        # The timer of a connection that is over may still ring once.
        if not self._is_over:
            super().transmit()

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, HandshakeCompleted):
            self._stream_id = self._quic.get_next_available_stream_id()
            if not self.opened.done():
                self.opened.set_result(None)
        elif isinstance(event, ConnectionTerminated):
            self._end(_reason(event, self._endpoint, is_open=self._stream_id is not None))
        elif isinstance(event, StreamDataReceived) and event.stream_id == self._stream_id:
            if event.data:
                self._held.append(event.data)
                self._held_bytes += len(event.data)
                self._hand_out()
            if event.end_stream:
                self._end(None)
        elif isinstance(event, StreamReset | StopSendingReceived) and (
            event.stream_id == self._stream_id
        ):
            self._end(ConnectionResetError("the server has reset the stream"))

    # --- inside -------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        """Send in the loop's next turn, with what else is written until then."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        self.transmit()

    def _unacknowledged(self) -> int:
        # aioquic counts these bytes and has no public word for them.
        stream = self._quic._streams.get(-1 if self._stream_id is None else self._stream_id)
        return stream.sender._buffer_stop - stream.sender._buffer_start if stream else 0

    def _after_progress(self) -> None:
        """See what the server's acknowledgements have made possible."""
        if self._is_over or self._stream_id is None:
            return
        if not self._is_writable and self._unacknowledged() <= self._low:
            self._is_writable = True
            if self._link is not None:
                self._link.resume_writing()
        stream = self._quic._streams.get(self._stream_id)
        if self._is_closing and (stream is None or stream.sender.is_finished):
            self._end(None)

    def _hand_out(self) -> None:
        """Give the link what it can take; after the last byte, the end."""
        link = self._link
        while self._held and self._is_reading and link is not None:
            data = self._held.pop(0)
            self._held_bytes -= len(data)
            link.data_received(data)
        if self._is_over and not self._held and link is not None:
            self._link = None
            link.connection_lost(self._end_error)

    def _end(self, error: Exception | None) -> None:
        """End the connection, whoever wished it; the link hears of it after the last byte."""
        if not self._is_over:
            self._end_error = error
            super().close()
            self._is_over = True
            if self._datagrams is not None:
                self._datagrams.close()
            if not self.opened.done():
                self.opened.set_exception(self._why_not_opened(error))
                # Whoever opens may have been cancelled; then nobody asks.
                self.opened.exception()
        self._hand_out()

    def _why_not_opened(self, error: Exception | None) -> Exception:
        if isinstance(error, QuantuMQTTError):
            return error
        refused = error if isinstance(error, OSError) else OSError("the connection was dropped")
        return _no_answer(self._endpoint, refused)


def _reason(event: ConnectionTerminated, endpoint: Endpoint, *, is_open: bool) -> Exception | None:
    """Turn the end that QUIC tells of into an error; None is an orderly one."""
    words = event.reason_phrase or f"QUIC error {event.error_code:#x}"
    if event.error_code == _NO_APPLICATION_PROTOCOL:
        return TlsFailed(
            f"{endpoint} speaks QUIC, but not MQTT over it (ALPN {ALPN!r})", "is it a broker?"
        )
    if event.error_code in _TLS_ALERTS:
        return TlsFailed(
            f"TLS with {endpoint}: {words}",
            "check the certificates, the authority (tls=) and the server name",
        )
    if not is_open:
        return ConnectFailed(
            f"cannot connect to {endpoint}: {words}",
            "does a broker listen for QUIC there, and may UDP pass?",
        )
    return None if event.error_code == 0 else ConnectionResetError(words)
