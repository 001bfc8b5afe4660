"""Admission: batches, order, and that every failure of a hook is a refusal."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import pytest

from quantumqtt.mqtt import ReasonCode
from quantumqtt.node.admissions import BATCH_COUNT_MAX, WORKERS, AdmissionDesk
from quantumqtt.policy import AdmissionRequest
from tests.harness.fake_node import FakeEvent, FakeNode
from tests.harness.plans import small_plan

Hook = Callable[[Sequence[AdmissionRequest]], Awaitable[Sequence[int]]]
UNAVAILABLE = int(ReasonCode.SERVER_UNAVAILABLE)


def wanted(ticket: int, *, user_name: str = "user-7f3") -> FakeEvent:
    return FakeEvent(
        "admission_wanted",
        ticket=ticket,
        client_id=f"c{ticket}",
        user_name=user_name,
        password=b"p",
    )


class AnswerNode(FakeNode):
    """A fake node that says when it was answered."""

    def __init__(self) -> None:
        super().__init__()
        self.answered = asyncio.Event()

    def answer_admissions(
        self, verdicts: Sequence[tuple[int, int]], *, may_be_remembered: bool = False
    ) -> None:
        super().answer_admissions(verdicts, may_be_remembered=may_be_remembered)
        self.answered.set()


def ask(
    hook: Hook, events: list[FakeEvent], *, timeout_ms: int = 5_000, queue_count_max: int = 10_000
) -> list[tuple[int, int]]:
    """Run a desk until every request is answered."""

    async def scenario() -> list[tuple[int, int]]:
        node = AnswerNode()
        node.open(small_plan())
        node.start()
        desk = AdmissionDesk(node, hook, timeout_ms=timeout_ms, queue_count_max=queue_count_max)
        desk.start()
        desk.on_requests(events)
        while len(node.answers) < len(events):
            node.answered.clear()
            await node.answered.wait()
        await desk.stop()
        node.stop()
        return sorted(node.answers)

    return asyncio.run(scenario())


def test_answers_go_back_with_the_tickets_they_belong_to() -> None:
    async def hook(requests: Sequence[AdmissionRequest]) -> list[int]:
        return [0 if request.client_id in {"c1", "c3"} else 0x87 for request in requests]

    assert ask(hook, [wanted(1), wanted(2), wanted(3)]) == [(1, 0), (2, 0x87), (3, 0)]


def test_what_waits_is_asked_together_up_to_a_batch() -> None:
    sizes: list[int] = []

    async def hook(requests: Sequence[AdmissionRequest]) -> list[int]:
        sizes.append(len(requests))
        return [0] * len(requests)

    ask(hook, [wanted(ticket) for ticket in range(BATCH_COUNT_MAX + 10)])
    assert sizes == [BATCH_COUNT_MAX, 10]


def test_a_slow_batch_does_not_hold_up_the_next() -> None:
    async def hook(requests: Sequence[AdmissionRequest]) -> list[int]:
        if len(requests) > 1:
            # Ends only because the second batch was served meanwhile.
            await second_asked.wait()
        else:
            second_asked.set()
        return [0] * len(requests)

    second_asked = asyncio.Event()
    assert WORKERS > 1
    events = [wanted(ticket) for ticket in range(BATCH_COUNT_MAX + 1)]
    assert len(ask(hook, events)) == BATCH_COUNT_MAX + 1


async def late(requests: Sequence[AdmissionRequest]) -> list[int]:
    await asyncio.Event().wait()
    return [0] * len(requests)


async def broken(requests: Sequence[AdmissionRequest]) -> list[int]:
    raise RuntimeError("no database")


async def short(requests: Sequence[AdmissionRequest]) -> list[int]:
    return [0] * (len(requests) - 1)


async def foreign(requests: Sequence[AdmissionRequest]) -> list[int]:
    return [0x8E] * len(requests)


@pytest.mark.parametrize("hook", [late, broken, short, foreign])
def test_a_hook_that_fails_refuses_everybody_and_is_logged_without_secrets(
    hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="quantumqtt"):
        answers = ask(hook, [wanted(1), wanted(2)], timeout_ms=20)
    assert answers == [(1, UNAVAILABLE), (2, UNAVAILABLE)]
    assert "hook" in caplog.text
    assert "user-7f3" not in caplog.text


def test_a_full_queue_refuses_at_once() -> None:
    async def hook(requests: Sequence[AdmissionRequest]) -> list[int]:
        return [0] * len(requests)

    answers = ask(hook, [wanted(ticket) for ticket in range(5)], queue_count_max=3)
    assert answers == [(0, 0), (1, 0), (2, 0), (3, 0x89), (4, 0x89)]


def test_an_event_without_ticket_is_not_a_request() -> None:
    async def scenario() -> None:
        node = FakeNode()
        desk = AdmissionDesk(node, broken, timeout_ms=10, queue_count_max=10)
        desk.on_requests([FakeEvent("admission_wanted")])
        assert node.answers == []

    asyncio.run(scenario())


def test_stopping_cancels_a_hook_that_hangs() -> None:
    async def scenario() -> bool:
        cancelled = False
        asked = asyncio.Event()

        async def hook(requests: Sequence[AdmissionRequest]) -> list[int]:
            nonlocal cancelled
            asked.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled = True
                raise
            return []

        desk = AdmissionDesk(FakeNode(), hook, timeout_ms=60_000, queue_count_max=10)
        desk.start()
        desk.on_requests([wanted(1)])
        await asked.wait()
        await desk.stop()
        return cancelled

    assert asyncio.run(scenario())
