"""Walks through the rounds: traffic, fault, restart, return of everybody, judgement."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from quantumqtt.cli.crash.disk import Disk
from quantumqtt.cli.crash.hurt import Fault, Hurt, execute_fault
from quantumqtt.cli.crash.ledger import Ledger, Property, Violation
from quantumqtt.cli.crash.swarm import SHORT_DELAY_S, Shape, Swarm
from quantumqtt.cli.crash.victim import BrokerAbsent, Victim
from quantumqtt.errors import ConnectFailed, TransportError

_LOOK_S: Final = 0.05
_TRIES: Final = 3
# Who says no is well, and may look only now and then whether there is room again.
_REFUSES_FOR_S: Final = 5.0
# What no broker has a reason to die of; without space one may give up rather than guess.
_SURVIVABLE: Final = frozenset({Fault.NONE, Fault.STOP, Fault.STORM})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run does; with the command, all that is needed to do it again."""

    fault: Fault = Fault.KILL
    rounds: int = 10
    seed: int = 1
    shape: Shape = field(default_factory=Shape)
    traffic_s: float = 1.5
    settle_s: float = 3.0
    wills_within_s: float = 0.0
    """How long after a start the wills may still come of clients that a crash cut off."""
    drains_within_s: float = 60.0
    stops_at: frozenset[Property] = frozenset()
    keeps_account: bool = False


@dataclass(frozen=True, slots=True)
class Round:
    """What one round brought."""

    number: int
    hurt_after_s: float
    took_s: float
    note: str
    violations: tuple[Violation, ...]


@dataclass(slots=True)
class Outcome:
    """What a run brought."""

    ledger: Ledger
    rounds: list[Round] = field(default_factory=list)
    takeovers: int = 0
    broker_log: str = ""
    absence: BrokerAbsent | None = None


class Torture:
    """One run."""

    def __init__(
        self, plan: Plan, victim: Victim, disk: Disk, on_round: Callable[[Round], None]
    ) -> None:
        self._plan = plan
        self._victim = victim
        self._disk = disk
        self._on_round = on_round
        self._dice = random.Random(plan.seed)
        self._ledger = Ledger(keeps_account=plan.keeps_account)
        swarm_dice = random.Random(f"swarm {plan.seed}")
        self._swarm = Swarm(self._ledger, plan.shape, swarm_dice, victim.port)

    async def run(self) -> Outcome:
        """Walk through all rounds.

        Raises:
            BrokerAbsent: The broker did not even start.
        """
        outcome = Outcome(self._ledger)
        try:
            await self._victim.start()
            for number in range(1, self._plan.rounds + 1):
                try:
                    done = await self._round(number)
                except BrokerAbsent as absence:
                    outcome.absence = absence
                    break
                outcome.rounds.append(done)
                self._on_round(done)
                if any(one.property in self._plan.stops_at for one in done.violations):
                    break
        finally:
            outcome.takeovers = self._swarm.takeovers_total
            outcome.broker_log = self._victim.last_words()
            self._swarm.drop_all()
            self._victim.kill()
        return outcome

    async def _round(self, number: int) -> Round:
        plan, swarm = self._plan, self._swarm
        began = time.monotonic()
        before = len(self._ledger.violations)
        hurt_after_s = self._dice.uniform(0.2, 1.0) * plan.traffic_s
        swarm.is_hurt = False
        await self._try(swarm.connect_all, "nobody could connect before the fault")
        living = asyncio.create_task(swarm.live())
        try:
            await asyncio.wait((living,), timeout=hurt_after_s)
            swarm.is_hurt = plan.fault is not Fault.NONE
            hurt = await execute_fault(plan.fault, self._victim, self._disk, swarm, self._dice)
        finally:
            living.cancel()
            with suppress(asyncio.CancelledError):
                await living
        swarm.judge_mortals(broker_died=hurt.died, was_asked=hurt.was_asked)
        if not self._victim.is_running:
            if plan.fault in _SURVIVABLE:
                self._ledger.report_unresponsive("broker", "it ended by itself")
            hurt = Hurt(died=True, was_asked=hurt.was_asked, note=hurt.note)
            swarm.drop_all()
            if not hurt.was_asked:
                self._ledger.on_crashed()
            await self._victim.start()
            await self._try(self._look_at_retained, "retained messages could not be asked for")
        await self._come_back()
        self._ledger.close_round()
        found = tuple(self._ledger.violations[before:])
        return Round(number, hurt_after_s, time.monotonic() - began, hurt.note, found)

    async def _try(self, step: Callable[[], Awaitable[None]], what: str) -> bool:
        """Do something that must work on a healthy broker; a few tries, then it is a finding."""
        why = ""
        began, tries, was_refused = time.monotonic(), 0, False
        while tries < _TRIES or (was_refused and time.monotonic() - began < _REFUSES_FOR_S):
            tries += 1
            try:
                await step()
            except TransportError as error:
                why, was_refused = str(error), isinstance(error, ConnectFailed)
                if not self._victim.is_running:
                    raise BrokerAbsent(
                        f"the broker ended by itself; it said:\n{self._victim.last_words()}"
                    ) from error
                await asyncio.sleep(_LOOK_S)
            else:
                return True
        self._ledger.report_unresponsive("broker", f"{what}: {why}")
        return False

    async def _look_at_retained(self) -> None:
        def is_enough(found: dict[str, bytes]) -> bool:
            return not self._ledger.retained_faults(found)

        found = await self._swarm.retained_now(is_enough, self._plan.settle_s)
        self._ledger.judge_retained(found)

    async def _come_back(self) -> None:
        """Bring everybody online, let publishes finish, and wait for what is owed."""
        swarm, plan = self._swarm, self._plan
        if self._dice.random() < 0.5:
            await self._try(swarm.send_canaries, "canaries could not be published")
            await self._try(swarm.connect_all, "not everybody could come back")
        else:
            await self._try(swarm.connect_all, "not everybody could come back")
            await self._try(swarm.send_canaries, "canaries could not be published")
        deadline = time.monotonic() + plan.drains_within_s
        while swarm.unanswered() and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_S)
            if time.monotonic() - swarm.last_packet_at() > plan.settle_s:
                await self._try(swarm.connect_all, "not everybody could come back")
                if time.monotonic() - swarm.last_packet_at() > 2 * plan.settle_s:
                    break
        for peer in swarm.unanswered():
            count = len(peer.in_flight)
            self._ledger.report_unresponsive(
                peer.client_id, f"{count} publishes got no answer after the broker was well again"
            )
        await self._wait_for_what_is_owed(deadline + plan.wills_within_s)
        await self._try(self._look_at_retained, "retained messages could not be asked for")

    async def _wait_for_what_is_owed(self, deadline: float) -> None:
        """Until nothing is missing, or for so long nothing came that nothing will."""
        plan, ledger, swarm = self._plan, self._ledger, self._swarm
        looked_at = time.monotonic()
        while time.monotonic() < deadline and (ledger.missing() or ledger.missing_wills()):
            await asyncio.sleep(_LOOK_S)
            patience_s = plan.settle_s
            if ledger.missing_wills():
                patience_s += max(SHORT_DELAY_S, plan.wills_within_s)
            if time.monotonic() - max(looked_at, swarm.last_packet_at()) > patience_s:
                break
        # Whatever the broker sent without owing it lies before the answer to a ping.
        for one in swarm.subscribers:
            with suppress(TransportError):
                await one.peer.ping()
