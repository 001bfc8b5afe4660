"""News for hooks: who came and who went, in batches, with a bound and a time-out.

A row of news per hook; one task hands it over batch by batch. When the hook does not keep up, the
oldest news is dropped and counted, for a slow listener must never slow the broker.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from quantumqtt.node.native import NativeEvent
from quantumqtt.policy import ClientNews

_log = logging.getLogger(__name__)

NEWS_COUNT_MAX: Final = 16_384
BATCH_COUNT_MAX: Final = 1_024


class NewsDesk:
    """Feeds one hook."""

    def __init__(
        self,
        name: str,
        hook: Callable[[Sequence[ClientNews]], Awaitable[None]],
        *,
        timeout_ms: int,
        count_max: int = NEWS_COUNT_MAX,
    ) -> None:
        """Remember whom to tell; `name` stands in logs."""
        self._name = name
        self._hook = hook
        self._timeout_s = timeout_ms / 1000
        self._waiting: deque[ClientNews] = deque(maxlen=count_max)
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.dropped_count = 0

    def start(self) -> None:
        """Start the task on the running loop; `stop` waits for it."""
        self._task = asyncio.get_running_loop().create_task(
            self._serve(), name=f"news-{self._name}"
        )

    async def stop(self) -> None:
        """Give what waits one last chance, then end the task."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        while self._waiting and await self._tell(self._take()):
            pass  # a hook that is late once is not waited for again

    def on_news(self, news: Sequence[ClientNews]) -> None:
        """Queue news; the full rule is: drop the oldest and count."""
        if not news:
            return
        room = (self._waiting.maxlen or 0) - len(self._waiting)
        self.dropped_count += max(0, len(news) - room)
        self._waiting.extend(news)
        self._changed.set()

    async def _serve(self) -> None:
        while True:
            while not self._waiting:
                self._changed.clear()
                await self._changed.wait()
            await self._tell(self._take())

    def _take(self) -> list[ClientNews]:
        count = min(len(self._waiting), BATCH_COUNT_MAX)
        return [self._waiting.popleft() for _ in range(count)]

    async def _tell(self, batch: Sequence[ClientNews]) -> bool:
        """Hand over one batch; False when the hook did not take it in time."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._hook(batch)
        except TimeoutError:
            _log.error("a hook is late", extra={"hook": self._name, "clients": len(batch)})
            return False
        except Exception:
            # The hook is foreign code; its failure ends with its batch.
            _log.exception("a hook failed", extra={"hook": self._name, "clients": len(batch)})
        return True


def news_of(event: NativeEvent) -> ClientNews:
    """Copy what a hook may know of a client that came or went."""
    return ClientNews(
        tenant=event.tenant,
        client_id=event.client_id or "",
        user_name=event.user_name,
        peer=event.peer or "",
        listener=event.listener or "",
        protocol=event.protocol or "",
        at_ms=event.at_ms,
        reason=event.reason,
    )
