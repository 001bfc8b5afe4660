"""A TCP proxy between client and broker that hurts connections, where and when a test says so.

Each connection may get one fault, after a chosen number of bytes, mid-packet or not:

- `cut`: both ends are gone at once; what is on the way is lost
- `truncate`: the bytes of one direction end in the middle, then the connection does
- `half_close`: one direction ends in order, the other stays open for a while
- `delay`: bytes of both directions are held back, and come late and in small pieces
- `corrupt`: some bits of what follows are turned, so that a stream becomes garbage

A corrupted stream may still be MQTT and mean something else; so tests that count messages leave
`corrupt` out, and those that ask for typed errors put it in.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Literal, Self

from tests.harness.ports import LOOPBACK

Fault = Literal["cut", "truncate", "half_close", "delay", "corrupt"]
LOSSLESS: Final[tuple[Fault, ...]] = ("cut", "truncate", "half_close", "delay")
_HALF_CLOSED_S: Final = 0.05
_DELAY_S: Final = 0.002
_PIECE_BYTES: Final = 97


class CuttingProxy:
    """Forwards connections; `cuts_left` of them get a fault."""

    def __init__(
        self,
        port: int,
        *,
        seed: int,
        bytes_min: int,
        bytes_max: int,
        faults: Sequence[Fault] = ("cut",),
    ) -> None:
        self.target = port
        self._dice = random.Random(seed)
        self._range = (bytes_min, bytes_max)
        self._faults = faults
        self._tasks: set[asyncio.Task[None]] = set()
        self.cuts_left = 0
        self.cuts_total = 0
        self.seen: Counter[Fault] = Counter()

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
        # Transports that were aborted close their sockets in the loop's next turn.
        await asyncio.sleep(0)

    def cut_all(self) -> None:
        """End every connection now; the next ones are hurt as planned."""
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        sides = [writer]
        try:
            up_reader, up_writer = await asyncio.open_connection(LOOPBACK, self.target)
            sides.append(up_writer)
            await self._join(reader, writer, up_reader, up_writer)
        except OSError:
            pass  # the broker is not there: the client sees a connection that ends
        except asyncio.CancelledError:
            pass  # cut on purpose; the task ends here, and its streams would log the cancelling
        finally:
            for side in sides:
                side.transport.abort()
            self._tasks.discard(task)

    async def _join(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
        up_writer: asyncio.StreamWriter,
    ) -> None:
        harm = _Harm(self._dice, self._faults, self._range) if self.cuts_left > 0 else None
        pumps = [
            asyncio.ensure_future(_pump(reader, up_writer, harm)),
            asyncio.ensure_future(_pump(up_reader, writer, harm)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            if harm is not None and harm.is_done and harm.fault == "half_close":
                await asyncio.wait(pumps, timeout=_HALF_CLOSED_S)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            if harm is not None and harm.is_done:
                self.cuts_left -= 1
                self.cuts_total += 1
                self.seen[harm.fault] += 1


class _Harm:
    """What happens to one connection, and after how many bytes."""

    def __init__(
        self, dice: random.Random, faults: Sequence[Fault], after: tuple[int, int]
    ) -> None:
        self.fault = dice.choice(faults)
        self._left = dice.randint(*after)
        self._dice = dice

    @property
    def is_done(self) -> bool:
        """Whether the place was reached."""
        return self._left <= 0

    def allow(self, data: bytes) -> bytes:
        """What of these bytes passes, before and after the place."""
        before = data[: max(self._left, 0)]
        self._left -= len(data)
        if not self.is_done or self.fault == "delay":
            return data
        if self.fault == "corrupt":
            after = bytearray(data[len(before) :])
            if after:
                after[self._dice.randrange(len(after))] ^= 1 << self._dice.randrange(8)
            return before + bytes(after)
        return before


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, harm: _Harm | None
) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            data = data if harm is None else harm.allow(data)
            if harm is None or not harm.is_done:
                writer.write(data)
            elif harm.fault == "delay":
                for at in range(0, len(data), _PIECE_BYTES):
                    await asyncio.sleep(_DELAY_S)
                    writer.write(data[at : at + _PIECE_BYTES])
            else:
                writer.write(data)
                if harm.fault in ("truncate", "half_close"):
                    await writer.drain()
                    writer.write_eof()
                if harm.fault != "corrupt":
                    return
            await writer.drain()
