"""The ways to hurt a broker, each as what it does between "all is well" and "now judge"."""

import asyncio
import random
import signal
import time
from dataclasses import dataclass
from enum import Enum
from typing import Final

from quantumqtt.cli.crash.disk import Disk
from quantumqtt.cli.crash.swarm import Swarm
from quantumqtt.cli.crash.victim import Victim
from quantumqtt.errors import TransportError

_TERM_WITHIN_S: Final = 60.0
_STORM_S: Final = 1.0
_FULL_S: Final = 2.0
_AFTERMATH_S: Final = 0.3


class Fault(Enum):
    """What is done to the broker; the value is the word of `--fault`."""

    NONE = "none"
    KILL = "kill"
    STOP = "stop-cont"
    TERM = "term"
    DISK_FULL = "disk-full"
    STORM = "takeover-storm"
    POWER = "power"


@dataclass(frozen=True, slots=True)
class Hurt:
    """What came of it."""

    died: bool
    was_asked: bool = False
    note: str = ""


async def execute_fault(
    fault: Fault, victim: Victim, disk: Disk, swarm: Swarm, dice: random.Random
) -> Hurt:
    """Hurt the broker while the swarm lives on; returns when restart or judgement may begin."""
    match fault:
        case Fault.NONE:
            return Hurt(died=False)
        case Fault.KILL:
            victim.kill()
            return Hurt(died=True)
        case Fault.POWER:
            victim.kill()
            return Hurt(died=True, note=await asyncio.to_thread(disk.cut, dice))
        case Fault.TERM:
            obeyed = await victim.end(_TERM_WITHIN_S)
            if not obeyed:
                swarm.ledger.report_unresponsive(
                    "broker", f"SIGTERM was not obeyed within {_TERM_WITHIN_S:g} s"
                )
            return Hurt(died=True, was_asked=obeyed)
        case Fault.STOP:
            return await _stop_and_continue(victim, dice)
        case Fault.STORM:
            return await _take_over_all(swarm, victim)
        case Fault.DISK_FULL:
            return await _fill_disk(victim, disk)


async def _stop_and_continue(victim: Victim, dice: random.Random) -> Hurt:
    pause_s = dice.uniform(0.2, 1.5)
    victim.signal(signal.SIGSTOP)
    await asyncio.sleep(pause_s)
    victim.signal(signal.SIGCONT)
    await asyncio.sleep(_AFTERMATH_S)
    return Hurt(died=not victim.is_running, note=f"stopped for {pause_s:.2f} s")


async def _take_over_all(swarm: Swarm, victim: Victim) -> Hurt:
    """Every subscriber at once, again and again: connections that never come to rest."""
    before = swarm.takeovers_total

    async def storm() -> None:
        while True:
            done = await asyncio.gather(
                *(swarm.take_over(one) for one in swarm.subscribers), return_exceptions=True
            )
            failed = [one for one in done if isinstance(one, Exception)]
            if not all(isinstance(one, TransportError) for one in failed):
                raise failed[0]
            await asyncio.sleep(0)

    try:
        async with asyncio.timeout(_STORM_S):
            await storm()
    except TimeoutError:
        pass
    count = swarm.takeovers_total - before
    return Hurt(died=not victim.is_running, note=f"{count} takeovers")


async def _fill_disk(victim: Victim, disk: Disk) -> Hurt:
    """No space for a while, then space again; a broker that gave up is started again later."""
    await asyncio.to_thread(disk.fill)
    ends_at = time.monotonic() + _FULL_S
    while victim.is_running and time.monotonic() < ends_at:
        await asyncio.sleep(0.02)
        await asyncio.to_thread(disk.fill)
    died = not victim.is_running
    await asyncio.to_thread(disk.free)
    if not died:
        await asyncio.sleep(_AFTERMATH_S)
        died = not victim.is_running
    return Hurt(died=died, note="the broker ended itself" if died else "went on")
