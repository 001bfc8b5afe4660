"""Batches of events from the native half to whoever wants them in Python.

Theory of operation: native threads fill a bounded queue and ring an eventfd when it stops being
empty. The event loop watches that descriptor; one wake-up takes one batch. If more waits, the
descriptor stays readable and the loop comes back after giving others their turn, so a storm of
connects cannot starve the program around the broker.

A batch goes to admission requests first (clients wait for those), then to the log, then to
listeners. A listener has a bounded buffer: when it is full the oldest event is dropped and counted,
because a slow reader of events must never slow the broker.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from quantumqtt.node.native import NativeEvent, NativeNode

BATCH_COUNT_MAX: Final = 1_024
BUFFER_COUNT_MAX_DEFAULT: Final = 8_192


@dataclass(frozen=True, slots=True)
class BrokerEvent:
    """Something that happened at the broker; fields that do not apply are None.

    `kind` is one of `session_opened`, `session_closed`, `connection_refused`,
    `access_denied`, `overrun`, `shard_failed`, `log_damaged`, `disk_level_changed`. `count` is
    above 1 when the broker merged equal events under pressure.
    """

    kind: str
    at_ms: int
    tenant: str
    client_id: str | None
    connection: int | None
    peer: str | None
    listener: str | None
    protocol: str | None
    session_epoch: int | None
    reason: str | None
    count: int
    user_name: str | None = None
    topic: str | None = None

    @classmethod
    def of(cls, event: NativeEvent) -> Self:
        """Copy what a listener may see: all but credentials and tickets."""
        return cls(
            kind=event.kind,
            at_ms=event.at_ms,
            tenant=event.tenant,
            client_id=event.client_id,
            connection=event.connection,
            peer=event.peer,
            listener=event.listener,
            protocol=event.protocol,
            session_epoch=event.session_epoch,
            reason=event.reason,
            count=event.count,
            user_name=event.user_name,
            topic=event.topic,
        )


class EventStream:
    """An asynchronous iterator over events, with a bounded buffer.

    Ends when the broker stops or `close` is called. One task may iterate at a time. Cancelling a
    wait loses nothing.
    """

    def __init__(self, *, buffer_count_max: int) -> None:
        """Buffer at most `buffer_count_max` events; beyond that the oldest is dropped."""
        self._buffer: deque[BrokerEvent] = deque(maxlen=buffer_count_max)
        self._changed = asyncio.Event()
        self._closed = False
        self.dropped_count: int = 0

    @property
    def closed(self) -> bool:
        """Whether no further event will arrive."""
        return self._closed

    def feed(self, events: Sequence[BrokerEvent]) -> None:
        """Take a batch; the full rule is: drop the oldest and count."""
        room = (self._buffer.maxlen or 0) - len(self._buffer)
        self.dropped_count += max(0, len(events) - room)
        self._buffer.extend(events)
        self._changed.set()

    def close(self) -> None:
        """End the stream after what is buffered."""
        self._closed = True
        self._changed.set()

    def __aiter__(self) -> Self:
        """Iterate over this stream itself."""
        return self

    async def __anext__(self) -> BrokerEvent:
        """Wait for the next event."""
        while not self._buffer:
            if self._closed:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._buffer.popleft()


class EventPump:
    """Moves batches from the native queue to `on_batch`, inside one event loop."""

    def __init__(
        self, node: NativeNode, *, on_batch: Callable[[Sequence[NativeEvent]], None]
    ) -> None:
        """Remember whom to ask and whom to tell."""
        self._node = node
        self._on_batch = on_batch
        self._descriptor: int | None = None

    def start(self) -> None:
        """Watch the node's eventfd on the running loop."""
        self._descriptor = self._node.event_fd()
        asyncio.get_running_loop().add_reader(self._descriptor, self.pump_once)

    def pump_once(self) -> int:
        """Take one batch and hand it on; returns how many events it held."""
        events = self._node.poll_events(BATCH_COUNT_MAX)
        if events:
            self._on_batch(events)
        return len(events)

    def stop(self) -> None:
        """Stop watching and hand on what is left, while the node still runs. Idempotent."""
        if self._descriptor is None:
            return
        asyncio.get_running_loop().remove_reader(self._descriptor)
        self._descriptor = None
        more = True
        while more:
            more = self.pump_once() == BATCH_COUNT_MAX
