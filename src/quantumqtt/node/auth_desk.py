"""Enhanced authentication: steps of many clients, each answered by its own exchange.

Theory of operation. A batch of steps comes from the native half; each belongs to a ticket, which is
a connection. The first step of a ticket begins an exchange of the mechanism it names, later ones go
to that exchange. A connection has one step open at a time, so steps of a ticket never overlap. What
is answered together goes back together.

Bounds. Open exchanges are counted: beyond the bound the oldest gives way, and its client is refused
at its next step. A step has a time limit. Whatever goes wrong is a refusal.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from quantumqtt.mqtt import ReasonCode
from quantumqtt.node.native import NativeEvent, NativeNode
from quantumqtt.policy.mechanisms import AuthRequest, AuthStep, Exchange, Mechanism

_log = logging.getLogger(__name__)

EXCHANGES_MAX: Final = 65_536
WORKERS: Final = 8

Answer = tuple[int, int, bytes | None, str]


class AuthDesk:
    """Answers authentication steps by the mechanisms it was given."""

    def __init__(
        self,
        node: NativeNode,
        mechanisms: Sequence[Mechanism],
        *,
        timeout_ms: int,
        queue_count_max: int,
        exchanges_max: int = EXCHANGES_MAX,
    ) -> None:
        """Remember whom to answer; of mechanisms with one name the first counts."""
        self._node = node
        self._mechanisms = {one.name: one for one in reversed(mechanisms)}
        self._timeout_s = timeout_ms / 1000
        self._exchanges_max = exchanges_max
        self._waiting: asyncio.Queue[NativeEvent] = asyncio.Queue(queue_count_max)
        self._exchanges: OrderedDict[int, Exchange] = OrderedDict()
        self._workers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the workers on the running loop; `stop` waits for them."""
        loop = asyncio.get_running_loop()
        self._workers = [
            loop.create_task(self._serve(), name=f"authentication-{number}")
            for number in range(WORKERS)
        ]

    async def stop(self) -> None:
        """Cancel the workers and wait for them; open exchanges end with their connections."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._workers = []

    def on_requests(self, events: Iterable[NativeEvent]) -> None:
        """Queue steps; those that do not fit are refused at once."""
        refused: list[Answer] = []
        for event in events:
            if event.ticket is None:
                continue
            try:
                self._waiting.put_nowait(event)
            except asyncio.QueueFull:
                refused.append((event.ticket, int(ReasonCode.SERVER_BUSY), None, ""))
        if refused:
            _log.warning("authentication queue is full", extra={"refused": len(refused)})
            self._node.answer_authentications(refused)

    def forget(self, tickets: Iterable[int]) -> None:
        """Drop the exchanges of connections that are gone."""
        for ticket in tickets:
            self._exchanges.pop(ticket, None)

    async def _serve(self) -> None:
        while True:
            event = await self._waiting.get()
            ticket = event.ticket or 0
            step = await self._answer(ticket, event)
            self._node.answer_authentications([(ticket, step.code, step.data, step.user_name)])

    async def _answer(self, ticket: int, event: NativeEvent) -> AuthStep:
        """Ask the exchange; turn every way it can go wrong into a refusal."""
        try:
            exchange = self._exchange_of(ticket, event)
            if exchange is None:
                return AuthStep.refuse()
            async with asyncio.timeout(self._timeout_s):
                step = await exchange.step(event.auth_data)
        except TimeoutError:
            _log.error("an authentication mechanism is late", extra={"method": event.auth_method})
            step = AuthStep.refuse(ReasonCode.SERVER_UNAVAILABLE)
        except Exception:
            # A mechanism may be foreign code; here its task ends, so here it is logged.
            _log.exception("an authentication mechanism failed")
            step = AuthStep.refuse(ReasonCode.SERVER_UNAVAILABLE)
        if step.code != ReasonCode.CONTINUE_AUTHENTICATION:
            self._exchanges.pop(ticket, None)
        return step

    def _exchange_of(self, ticket: int, event: NativeEvent) -> Exchange | None:
        if event.reason == "continue":
            return self._exchanges.get(ticket)
        mechanism = self._mechanisms.get(event.auth_method or "")
        if mechanism is None:
            return None
        exchange = mechanism.begin(
            AuthRequest(
                tenant=event.tenant,
                client_id=event.client_id or "",
                listener=event.listener or "",
                peer=event.peer or "",
                user_name=event.user_name,
            )
        )
        self._exchanges[ticket] = exchange
        while len(self._exchanges) > self._exchanges_max:
            self._exchanges.popitem(last=False)
        return exchange
