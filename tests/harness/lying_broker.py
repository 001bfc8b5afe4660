"""A broker that admits everybody, acknowledges everything, and delivers as a test wishes.

It knows one subscriber and MQTT 3.1.1, which is what it takes to see whether a load generator
notices a lie.
"""

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from tests.harness.ports import LOOPBACK

# What becomes of the n-th publish: the packets that the subscriber gets instead of it.
Lie = Callable[[int, bytes], list[bytes]]

_CONNACK: Final = bytes.fromhex("20020000")
_PINGRESP: Final = bytes.fromhex("d000")


class LyingBroker:
    """Listens on a free port of loopback from `__enter__` to `__exit__`."""

    def __init__(self, lie: Lie) -> None:
        """Deliver what `lie` makes of each publish."""
        self._lie = lie
        self._published = 0
        self._subscriber: asyncio.StreamWriter | None = None
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(10), "the loop did not start"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._client, LOOPBACK, 0)
        async with server:
            self.port = server.sockets[0].getsockname()[1]
            self._listening.set()
            await self._stop.wait()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                self._answer(await _packet(reader), writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, _Left):
            writer.close()

    def _answer(self, packet: bytes, writer: asyncio.StreamWriter) -> None:
        match packet[0] >> 4:
            case 1:
                writer.write(_CONNACK)
            case 3:
                self._publish(packet, writer)
            case 8:
                self._subscriber = writer
                writer.write(b"\x90\x03" + packet[2:4] + packet[-1:])
            case 12:
                writer.write(_PINGRESP)
            case 14:
                raise _Left
            case _:
                pass  # acknowledgements of a subscriber that cannot know better

    def _publish(self, packet: bytes, writer: asyncio.StreamWriter) -> None:
        if packet[0] & 0b110:
            body = packet[2:] if packet[1] < 0x80 else packet[3:]
            topic_end = 2 + int.from_bytes(body[:2], "big")
            writer.write(b"\x40\x02" + body[topic_end : topic_end + 2])
        for delivery in self._lie(self._published, packet):
            assert self._subscriber is not None, "subscribers come before publishers"
            self._subscriber.write(delivery)
        self._published += 1


class _Left(Exception):
    """The client has said goodbye."""


async def _packet(reader: asyncio.StreamReader) -> bytes:
    first = await reader.readexactly(1)
    length, shift, header = 0, 0, first
    while True:
        byte = await reader.readexactly(1)
        header += byte
        length |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:
            return header + await reader.readexactly(length)
