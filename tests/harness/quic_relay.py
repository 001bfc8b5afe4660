"""A door for MQTT over QUIC in front of a broker's TCP port: what comes in a stream goes on by TCP.

It runs on a thread and loop of its own, so tests may block. `cut` ends every connection that is
open, as a server does that goes away.
"""

import asyncio
import contextlib
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import QuicServer, serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

from tests.harness.certificates import Authority
from tests.harness.ports import LOOPBACK

DEADLINE_S = 20.0
_CHUNK_BYTES = 65_536


class QuicRelay:
    """One relay, open while the block lasts."""

    def __init__(self, folder: Path, broker_port: int, *, alpn: str = "mqtt") -> None:
        self.authority = Authority(folder)
        self._configuration = QuicConfiguration(is_client=False, alpn_protocols=[alpn])
        mine = self.authority.server()
        self._configuration.load_cert_chain(mine.certificate, mine.key)
        self._broker_port = broker_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._connections: list[QuicConnectionProtocol] = []
        self._pumps: set[asyncio.Task[None]] = set()
        self._server: QuicServer
        self.port = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"quic://localhost:{self.port}"

    @property
    def connections_total(self) -> int:
        """How many connections there have been."""
        return len(self._connections)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(DEADLINE_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(DEADLINE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    def cut(self) -> None:
        """End every connection."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(DEADLINE_S)

    async def _open(self) -> None:
        self._server = await serve(
            LOOPBACK, 0, configuration=self._configuration, create_protocol=self._protocol
        )
        transport = self._server._transport
        assert transport is not None, "a server that listens has a socket"
        self.port = transport.get_extra_info("sockname")[1]

    def _protocol(self, quic: QuicConnection, stream_handler: object) -> QuicConnectionProtocol:
        protocol = QuicConnectionProtocol(quic, self._on_stream)
        self._connections.append(protocol)
        return protocol

    def _on_stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pump = self._loop.create_task(self._join(reader, writer))
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_broker, to_broker = await asyncio.open_connection(LOOPBACK, self._broker_port)
        ways = [
            asyncio.create_task(_pump(reader, to_broker)),
            asyncio.create_task(_pump(from_broker, writer)),
        ]
        try:
            await asyncio.gather(*ways)
        finally:
            for way in ways:
                way.cancel()
            to_broker.close()

    async def _cut(self) -> None:
        for connection in self._connections:
            connection.close()

    async def _close(self) -> None:
        await self._cut()
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on, then the end."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
