"""A TCP proxy between client and broker that cuts, where and when a test says so."""

import asyncio
import contextlib
import random
from types import TracebackType
from typing import Self

from tests.harness.ports import LOOPBACK


class CuttingProxy:
    """Forwards connections and cuts each after a chosen number of bytes, mid-packet or not."""

    def __init__(self, port: int, *, seed: int, bytes_min: int, bytes_max: int) -> None:
        self._target = port
        self._dice = random.Random(seed)
        self._range = (bytes_min, bytes_max)
        self._tasks: set[asyncio.Task[None]] = set()
        self.cuts_left = 0
        self.cuts_total = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            up_reader, up_writer = await asyncio.open_connection(LOOPBACK, self._target)
        except OSError:
            writer.close()
            return
        budget = _Budget(self._dice.randint(*self._range) if self.cuts_left > 0 else None)
        pumps = [
            asyncio.ensure_future(_pump(reader, up_writer, budget)),
            asyncio.ensure_future(_pump(up_reader, writer, budget)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for side in (writer, up_writer):
                side.transport.abort()
            if budget.is_spent:
                self.cuts_left -= 1
                self.cuts_total += 1
            self._tasks.discard(task)


class _Budget:
    """How many bytes may still pass; None for all."""

    def __init__(self, count: int | None) -> None:
        self.count = count

    @property
    def is_spent(self) -> bool:
        return self.count is not None and self.count <= 0

    def allow(self, data: bytes) -> bytes:
        if self.count is None:
            return data
        allowed = data[: max(self.count, 0)]
        self.count -= len(data)
        return allowed


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: _Budget
) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(budget.allow(data))
            await writer.drain()
            if budget.is_spent:
                return
