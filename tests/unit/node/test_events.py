"""Events: batches over a descriptor, bounded buffers, nothing lost in silence."""

import asyncio

import pytest

from quantumqtt.node.events import BATCH_COUNT_MAX, BrokerEvent, EventPump, EventStream
from tests.harness.fake_node import FakeEvent, FakeNode
from tests.harness.plans import small_plan


def opened(number: int) -> FakeEvent:
    return FakeEvent("session_opened", client_id=f"client-{number}")


def events(count: int) -> list[BrokerEvent]:
    return [BrokerEvent.of(opened(number)) for number in range(count)]


def ids(taken: list[BrokerEvent]) -> list[str | None]:
    return [event.client_id for event in taken]


def test_a_listener_sees_no_credentials() -> None:
    event = BrokerEvent.of(FakeEvent("session_opened", user_name="ann", password=b"pw", ticket=3))
    assert not {"password", "ticket"} & set(BrokerEvent.__slots__)
    assert event.user_name == "ann"
    assert "pw" not in repr(event)


def test_a_stream_gives_events_in_order_and_ends() -> None:
    async def scenario() -> list[BrokerEvent]:
        stream = EventStream(buffer_count_max=10)
        stream.feed(events(3))
        stream.close()
        return [event async for event in stream]

    assert ids(asyncio.run(scenario())) == ["client-0", "client-1", "client-2"]


def test_a_waiting_reader_is_woken_by_an_event_and_by_the_end() -> None:
    async def scenario() -> list[BrokerEvent]:
        stream = EventStream(buffer_count_max=10)

        async def read() -> list[BrokerEvent]:
            return [event async for event in stream]

        reading = asyncio.create_task(read())
        await asyncio.sleep(0)
        stream.feed(events(1))
        await asyncio.sleep(0)
        stream.close()
        return await reading

    assert ids(asyncio.run(scenario())) == ["client-0"]


def test_a_full_buffer_drops_the_oldest_and_counts() -> None:
    async def scenario() -> tuple[list[BrokerEvent], int]:
        stream = EventStream(buffer_count_max=3)
        stream.feed(events(2))
        stream.feed(events(5))
        stream.close()
        return [event async for event in stream], stream.dropped_count

    taken, dropped = asyncio.run(scenario())
    assert ids(taken) == ["client-2", "client-3", "client-4"]
    assert dropped == 4


def test_a_cancelled_wait_loses_nothing() -> None:
    async def scenario() -> BrokerEvent:
        stream = EventStream(buffer_count_max=3)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        stream.feed(events(1))
        return await anext(stream)

    assert asyncio.run(scenario()).client_id == "client-0"


@pytest.mark.parametrize("count", [1, BATCH_COUNT_MAX, BATCH_COUNT_MAX + 1, 3 * BATCH_COUNT_MAX])
def test_the_pump_moves_everything_in_bounded_batches(count: int) -> None:
    batches: list[int] = []

    async def scenario() -> None:
        node = FakeNode().open(small_plan())
        node.start()
        done = asyncio.Event()

        def on_batch(batch: object) -> None:
            assert isinstance(batch, list)
            batches.append(len(batch))
            if sum(batches) == count:
                done.set()

        pump = EventPump(node, on_batch=on_batch)
        pump.start()
        node.emit(*(opened(number) for number in range(count)))
        await done.wait()
        pump.stop()
        node.stop()

    asyncio.run(scenario())
    assert sum(batches) == count
    assert max(batches) <= BATCH_COUNT_MAX


def test_others_get_their_turn_between_batches() -> None:
    """A storm of events must not starve the program around the broker."""
    seen: list[str] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        node = FakeNode().open(small_plan())
        node.start()
        done = asyncio.Event()

        def on_batch(batch: object) -> None:
            seen.append("batch")
            loop.call_soon(seen.append, "other")
            if seen.count("batch") == 3:
                done.set()

        pump = EventPump(node, on_batch=on_batch)
        pump.start()
        node.emit(*(opened(number) for number in range(3 * BATCH_COUNT_MAX)))
        await done.wait()
        pump.stop()
        node.stop()

    asyncio.run(scenario())
    assert seen[:5] == ["batch", "other", "batch", "other", "batch"]


def test_stopping_hands_on_what_is_left_and_can_be_repeated() -> None:
    left: list[object] = []

    async def scenario() -> None:
        node = FakeNode().open(small_plan())
        node.start()
        pump = EventPump(node, on_batch=left.extend)
        pump.start()
        node.emit(*(opened(number) for number in range(BATCH_COUNT_MAX + 5)))
        pump.stop()
        pump.stop()
        node.stop()

    asyncio.run(scenario())
    assert len(left) == BATCH_COUNT_MAX + 5
