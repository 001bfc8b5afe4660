"""Admission: CONNECTs that the native half cannot judge alone, answered in batches.

Theory of operation: requests wait in a bounded queue. A few workers take everything that waits, up
to a batch, ask the hook once, and answer the batch in one crossing. While a hook thinks, the next
batch gathers by itself: the slower the hook, the larger its batches.

Whatever goes wrong is a refusal, never a silent admission: a full queue is "server busy"; a hook
that is late, raises, or answers nonsense is "server unavailable". The client may come again.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from quantumqtt.mqtt import ReasonCode
from quantumqtt.node.native import NativeEvent, NativeNode
from quantumqtt.policy import AdmissionRequest, Authenticate, check_verdicts, refuse_all

_log = logging.getLogger(__name__)

BATCH_COUNT_MAX: Final = 512
WORKERS: Final = 4

Ticket = int


class AdmissionDesk:
    """Takes admission requests, asks the hook, gives the answers back to the node."""

    def __init__(
        self,
        node: NativeNode,
        authenticate: Authenticate,
        *,
        timeout_ms: int,
        queue_count_max: int,
    ) -> None:
        """Remember whom to ask, and how long an answer may take."""
        self._node = node
        self._authenticate = authenticate
        self._timeout_s = timeout_ms / 1000
        self._waiting: asyncio.Queue[tuple[Ticket, AdmissionRequest]] = asyncio.Queue(
            queue_count_max
        )
        self._workers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the workers on the running loop; `stop` waits for them."""
        loop = asyncio.get_running_loop()
        self._workers = [
            loop.create_task(self._serve(), name=f"admission-{number}") for number in range(WORKERS)
        ]

    async def stop(self) -> None:
        """Cancel the workers and wait for them; open requests end with their connections."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._workers = []

    def on_requests(self, events: Iterable[NativeEvent]) -> None:
        """Queue requests; those that do not fit are refused at once."""
        refused: list[tuple[Ticket, int]] = []
        for event in events:
            if event.ticket is None:
                continue
            try:
                self._waiting.put_nowait((event.ticket, _request(event)))
            except asyncio.QueueFull:
                refused.append((event.ticket, int(ReasonCode.SERVER_BUSY)))
        if refused:
            _log.warning("admission queue is full", extra={"refused": len(refused)})
            self._node.answer_admissions(refused)

    async def _serve(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < BATCH_COUNT_MAX and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            verdicts = await self._ask([request for _ticket, request in batch])
            tickets = [ticket for ticket, _request in batch]
            self._node.answer_admissions(list(zip(tickets, verdicts, strict=True)))

    async def _ask(self, requests: Sequence[AdmissionRequest]) -> list[int]:
        """Ask the hook; turn every way it can go wrong into refusals."""
        count = len(requests)
        try:
            async with asyncio.timeout(self._timeout_s):
                verdicts = await self._authenticate(requests)
            return check_verdicts(verdicts, asked=count)
        except TimeoutError:
            _log.error("the authenticate hook is late", extra={"requests": count})
        except Exception:
            # The hook is foreign code; here its task ends, so here it is logged.
            _log.exception("the authenticate hook failed", extra={"requests": count})
        return refuse_all(count, ReasonCode.SERVER_UNAVAILABLE)


def _request(event: NativeEvent) -> AdmissionRequest:
    return AdmissionRequest(
        tenant=event.tenant,
        client_id=event.client_id or "",
        listener=event.listener or "",
        peer=event.peer or "",
        protocol=event.protocol or "",
        user_name=event.user_name,
        password=event.password,
    )
