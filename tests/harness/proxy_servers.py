"""A SOCKS5 and an HTTP proxy of a few lines each, which remember who asked for what."""

import asyncio
import base64
import contextlib
import threading
from types import TracebackType
from typing import Final, Self

from tests.harness.ports import LOOPBACK

_START_S: Final = 10.0


class ProxyServer:
    """Speaks both: the first byte tells. Names are not resolved, all leads to loopback."""

    def __init__(self, *, user_name: str = "", password: str = "", refuse: bool = False) -> None:
        self.asked_for: list[str] = []
        self._secret = (user_name.encode(), password.encode())
        self._refuse = refuse
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(_START_S), "the proxy did not start"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_START_S)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._client, LOOPBACK, 0)
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self._stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            first = await reader.readexactly(1)
            target = await (
                self._socks5(reader, writer)
                if first == b"\x05"
                else self._http(first + await reader.readuntil(b"\r\n\r\n"), writer)
            )
            if target is not None:
                self.asked_for.append(target)
                await _join(reader, writer, int(target.rpartition(":")[2]))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _socks5(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> str | None:
        methods = await reader.readexactly((await reader.readexactly(1))[0])
        wanted = 2 if self._secret[0] else 0
        writer.write(bytes((5, wanted if wanted in methods else 255)))
        if wanted not in methods:
            return None
        if wanted:
            await reader.readexactly(1)
            user = await reader.readexactly((await reader.readexactly(1))[0])
            secret = await reader.readexactly((await reader.readexactly(1))[0])
            is_right = (user, secret) == self._secret
            writer.write(b"\x01\x00" if is_right else b"\x01\x01")
            if not is_right:
                return None
        assert await reader.readexactly(4) == b"\x05\x01\x00\x03", "names, not addresses"
        host = await reader.readexactly((await reader.readexactly(1))[0])
        port = int.from_bytes(await reader.readexactly(2), "big")
        # In two pieces, as a network may do.
        writer.write(b"\x05")
        await asyncio.sleep(0)
        writer.write((b"\x02" if self._refuse else b"\x00") + b"\x00\x01\x7f\x00\x00\x01\x00\x00")
        return None if self._refuse else f"{host.decode()}:{port}"

    async def _http(self, head: bytes, writer: asyncio.StreamWriter) -> str | None:
        first, *fields = head.decode().split("\r\n")
        secret = base64.b64encode(b":".join(self._secret)).decode()
        if self._secret[0] and f"Proxy-Authorization: Basic {secret}" not in fields:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            return None
        if self._refuse:
            writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            return None
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        return first.split(" ")[1]


async def _join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    up_reader, up_writer = await asyncio.open_connection(LOOPBACK, port)

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()

    pumps = [asyncio.ensure_future(pump(reader, up_writer))]
    pumps.append(asyncio.ensure_future(pump(up_reader, writer)))
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in pumps:
            one.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        up_writer.transport.abort()
