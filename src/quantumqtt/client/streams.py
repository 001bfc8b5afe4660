"""Subscriptions of the asyncio client: an `async for` over a bounded row of messages."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from quantumqtt._core import Message
from quantumqtt.client.driver import Driver
from quantumqtt.client.inbox import Inbox, Overflow
from quantumqtt.errors import QuantuMQTTError

if TYPE_CHECKING:
    from quantumqtt.client.receipts import Operation

MessageType = TypeVar("MessageType", bound=Message)


class Delivery(Message):
    """A message whose acknowledgement is in the hands of the application."""

    __slots__ = ("_driver",)
    _driver: Driver

    @classmethod
    def of(cls, message: Message, driver: Driver) -> Self:
        """Give a message its `ack`."""
        delivery = cls(
            message.topic,
            message.payload,
            qos=message.qos,
            retain=message.retain,
            dup=message.dup,
            packet_id=message.packet_id,
            session=message.session,
            properties=message.properties,
        )
        delivery._driver = driver
        return delivery

    async def ack(self) -> None:
        """Tell the broker that this message is done; QoS 0 needs nothing.

        Acknowledgements leave in the order in which the messages came, so one that is kept back
        keeps back those behind it.
        """
        self._driver.accept(self)


class Stream(Generic[MessageType]):
    """One subscription: `async for message in stream`.

    A QoS 1 or 2 message is acknowledged when the loop comes back for the next one, that is, after
    the body is done with it; with manual acknowledgements, by `await message.ack()`.

    Attributes:
        ready: The server's answer, to be awaited; it raises when a filter was refused.
    """

    def __init__(
        self,
        driver: Driver,
        filters: Sequence[tuple[str, int]],
        *,
        kind: type[MessageType],
        queue_count_max: int,
        overflow: Overflow,
    ) -> None:
        self._driver: Final = driver
        self._filters: Final = tuple(text for text, _ in filters)
        self._inbox: Final = Inbox(
            ", ".join(self._filters), count_max=queue_count_max, overflow=overflow
        )
        self._row: Final = self._inbox.row
        self._is_manual: Final = issubclass(kind, Delivery)
        self._working_on: Message | None = None
        self._ended = False
        self._error: QuantuMQTTError | None = None
        self._is_paused = False
        self._arrivals: list[asyncio.Future[None]] = []
        self.ready: Operation = driver.subscribe(filters, self)

    @property
    def filters(self) -> tuple[str, ...]:
        """What this stream listens to."""
        return self._filters

    @property
    def waiting(self) -> int:
        """Messages that came and were not taken yet."""
        return len(self._row)

    @property
    def dropped_total(self) -> int:
        """QoS 0 messages that the overflow policy dropped."""
        return self._inbox.dropped_total

    def __aiter__(self) -> AsyncIterator[MessageType]:
        """Iterate; several tasks may share a stream, each message goes to one of them."""
        return self

    async def __anext__(self) -> MessageType:
        """Wait for the next message.

        Raises:
            StopAsyncIteration: The stream or its client was closed.
            QuantuMQTTError: The subscription was lost; says why.
        """
        if self._working_on is not None:
            self._accept_last()
        row = self._row
        while not row:
            if self._ended:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            await self._arrival()
        message = row.popleft()
        if message.qos or self._is_paused:
            return self._hand_out(message)
        return message  # type: ignore[return-value]

    def _hand_out(self, message: Message) -> MessageType:
        if self._is_paused and self._inbox.is_low:
            self._is_paused = False
            self._driver.resume_reading(self)
        if self._is_manual:
            return Delivery.of(message, self._driver)  # type: ignore[return-value]
        if message.qos:
            self._working_on = message
        return message  # type: ignore[return-value]

    def _accept_last(self) -> None:
        message, self._working_on = self._working_on, None
        if message is not None:
            self._driver.accept(message)

    async def next(self, timeout: float | None = None) -> MessageType:  # noqa: ASYNC109 - shorthand
        """Wait for one message.

        Raises:
            TimeoutError: None came in time.
            StopAsyncIteration: The stream or its client was closed.
            QuantuMQTTError: The subscription was lost; says why.
        """
        async with asyncio.timeout(timeout):
            return await self.__anext__()

    def take_nowait(self, count_max: int | None = None) -> list[MessageType]:
        """Take what has come, without waiting; all of it counts as accepted at once."""
        self._accept_last()
        count = len(self._row) if count_max is None else min(count_max, len(self._row))
        taken = [self._row.popleft() for _ in range(count)]
        if self._is_manual:
            return [Delivery.of(message, self._driver) for message in taken]  # type: ignore[misc]
        for message in taken:
            self._driver.accept(message)
        if self._is_paused and self._inbox.is_low:
            self._is_paused = False
            self._driver.resume_reading(self)
        return taken  # type: ignore[return-value]

    async def _arrival(self) -> None:
        arrival = asyncio.get_running_loop().create_future()
        self._arrivals.append(arrival)
        try:
            await arrival
        finally:
            if arrival in self._arrivals:
                self._arrivals.remove(arrival)

    async def close(self) -> None:
        """Unsubscribe, unless another stream listens to the same filter; what came is dropped."""
        if self._ended:
            return
        self._accept_last()
        operation = self._driver.unsubscribe(self._filters, self)
        for message in self._row:
            self._driver.accept(message)
        self._row.clear()
        self.end(None)
        if operation is not None and self._driver.connected:
            await operation

    async def __aenter__(self) -> Self:
        """Wait until the server has granted the subscription."""
        await self.ready
        return self

    async def __aexit__(self, *_: object) -> None:
        """Unsubscribe."""
        await self.close()

    # --- for the driver -----------------------------------------------------------------------

    def offer(self, messages: list[Message]) -> None:
        """Take messages from the driver."""
        if self._ended:
            for message in messages:
                self._driver.accept(message)
            return
        if not self._inbox.put(messages) and not self._is_paused:
            self._is_paused = True
            self._driver.pause_reading(self)
        if self._inbox.error is not None:
            self._driver.unsubscribe(self._filters, self)
            self.end(self._inbox.error)
        elif self._arrivals:
            self._wake()

    def end(self, error: QuantuMQTTError | None) -> None:
        """Let those who wait know that no more will come."""
        if not self._ended:
            self._ended = True
            self._error = error
            if self._is_paused:
                self._is_paused = False
                self._driver.resume_reading(self)
            self._wake()

    def _wake(self) -> None:
        for arrival in self._arrivals:
            if not arrival.done():
                arrival.set_result(None)
        self._arrivals.clear()
