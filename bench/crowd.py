"""Many clients on one event loop, as thin as they can be: what they cost must not be the broker's.

A knock is one connection that says a few packets and waits for the first byte of reason that comes
back. Whoever is told that the broker is busy, or is closed on, knocks again after a while, as real
clients do.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.brokers import LOOPBACK
from tests.harness import packets
from tests.harness.packets import Version

PASSWORD: Final = b"the same for all"
AT_ONCE: Final = 256
KNOCK_DEADLINE_S: Final = 30.0
_CONNACK_BYTES: Final = 4
_PAUSE_S: Final = (0.05, 0.5)
# CONNACK of MQTT 3.1.1: accepted, and the reasons for which coming again cannot help.
_ACCEPTED: Final = 0
_HOPELESS: Final = frozenset({1, 2, 4})


class Refused(RuntimeError):
    """The broker does not want a client, and will not later either."""


@dataclass(slots=True)
class Arrival:
    """How a crowd got in."""

    seconds: float = 0.0
    tries: int = 0
    waits_s: list[float] = field(default_factory=list)

    def figures(self, name: str) -> dict[str, float]:
        """What a table shows, each name with the same beginning."""
        waits = sorted(self.waits_s)
        return {
            f"{name}_s": self.seconds,
            f"{name}_tries": float(self.tries),
            f"{name}_p50_ms": waits[len(waits) // 2] * 1e3,
            f"{name}_max_ms": waits[-1] * 1e3,
        }


class Knock(asyncio.Protocol):
    """One connection: sends what it was given, collects what comes."""

    def __init__(self, said: bytes, wanted: int) -> None:
        self._said = said
        self._wanted = wanted
        self.received = bytearray()
        self.answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Speak at once."""
        assert isinstance(transport, asyncio.Transport), "TCP gives transports"
        self.transport = transport
        transport.write(self._said)

    def data_received(self, data: bytes) -> None:
        """Collect until enough is there."""
        self.received += data
        if len(self.received) >= self._wanted and not self.answered.done():
            self.answered.set_result(bytes(self.received))

    def connection_lost(self, exc: Exception | None) -> None:
        """Give what there is; too little of it is a refusal."""
        if not self.answered.done():
            self.answered.set_result(bytes(self.received))


async def knock(port: int, said: bytes, wanted: int = _CONNACK_BYTES) -> Knock:
    """Connect, speak, and wait for so many bytes of answer, or for the end."""
    loop = asyncio.get_running_loop()
    _, one = await loop.create_connection(lambda: Knock(said, wanted), LOOPBACK, port)
    async with asyncio.timeout(KNOCK_DEADLINE_S):
        await one.answered
    return one


async def come(
    port: int, names: Sequence[str], *, with_password: bool, step: Callable[[], None]
) -> tuple[Arrival, list[Knock]]:
    """Let everybody in, each with a user name of its own; whoever is put off comes again.

    Raises:
        Refused: Somebody is not wanted.
    """
    arrival = Arrival()
    gate = asyncio.Semaphore(AT_ONCE)
    dice = random.Random(len(names))
    began = time.monotonic()

    async def one(name: str) -> Knock:
        said = packets.connect(
            name,
            version=Version.V311,
            keep_alive_s=0,
            user_name=name if with_password else None,
            password=PASSWORD if with_password else None,
        )
        first = time.monotonic()
        while True:
            async with gate:
                arrival.tries += 1
                try:
                    found = await knock(port, said)
                except OSError:
                    code = None
                else:
                    answer = found.received
                    code = answer[3] if len(answer) == _CONNACK_BYTES else None
                    if code == _ACCEPTED:
                        arrival.waits_s.append(time.monotonic() - first)
                        step()
                        return found
                    found.transport.abort()
            if code in _HOPELESS:
                raise Refused(f"{name} is refused with {code}")
            await asyncio.sleep(dice.uniform(*_PAUSE_S))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(name)) for name in names]
    arrival.seconds = time.monotonic() - began
    return arrival, [task.result() for task in tasks]


async def leave_all(crowd: Sequence[Knock]) -> None:
    """Break every connection, as a network does, and let the loop close the sockets."""
    for one in crowd:
        one.transport.abort()
    await asyncio.sleep(0)


async def found_sessions(
    port: int, count: int, subscriptions: int, *, step: Callable[[], None]
) -> None:
    """Leave so many sessions behind, each with so many subscriptions that are its own."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        said = packets.connect(f"held-{number:06d}", version=Version.V311, clean=False)
        wanted = _CONNACK_BYTES
        if subscriptions:
            filters = [
                (f"site/{number // 1000}/device/{number:06d}/part/{part}", 1)
                for part in range(subscriptions)
            ]
            said += packets.subscribe(1, *filters, version=Version.V311)
            wanted += 4 + subscriptions
        async with gate:
            found = await knock(port, said, wanted)
        if len(found.received) < wanted:
            raise Refused(f"session {number} was not taken")
        found.transport.write(packets.disconnect(Version.V311))
        found.transport.close()
        step()

    # Tasks in portions: a hundred thousand at a time would be the generator's memory test.
    for first in range(0, count, 20 * AT_ONCE):
        async with asyncio.TaskGroup() as group:
            for number in range(first, min(first + 20 * AT_ONCE, count)):
                group.create_task(one(number))
