"""The small parts: back-off, routes, rows, receipts, options."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantumqtt import _core
from quantumqtt._core import Message
from quantumqtt.client.backoff import Backoff
from quantumqtt.client.filters import options_byte, with_options
from quantumqtt.client.inbox import Inbox
from quantumqtt.client.options import Endpoint, payload_bytes
from quantumqtt.client.receipts import Pending, Receipt
from quantumqtt.client.routes import Routes, matches
from quantumqtt.client.workers import Worker
from quantumqtt.errors import LocalProtocolError, QuotaExceeded, TransportError

DEADLINE_S = 10.0


@given(attempt=st.integers(1, 1000), dice=st.floats(0, 1))
def test_waits_stay_in_their_bounds(attempt: int, dice: float) -> None:
    delay = Backoff(first_s=0.5, most_s=60).delay_s(attempt, dice)
    assert delay is not None
    assert 0.25 <= delay <= 60


def test_waits_double_and_end() -> None:
    backoff = Backoff(first_s=1, most_s=5, attempts_max=4)
    assert [backoff.delay_s(attempt, 1.0) for attempt in range(1, 6)] == [1, 2, 4, 5, None]
    with pytest.raises(ValueError, match="positive"):
        Backoff(first_s=0)


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/b/c", False),
        ("a/+", "a/b", True),
        ("a/+", "a/", True),
        ("a/+", "a", False),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("#", "a/b", True),
        ("+/#", "/", True),
        ("#", "$SYS/x", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/x", True),
    ],
)
def test_filters_match_as_the_standard_says(pattern: str, topic: str, expected: bool) -> None:
    assert matches(pattern, topic) is expected


def test_routes_follow_changes_and_shares() -> None:
    routes: Routes[str] = Routes()
    routes.add("a/+", "one")
    routes.add("$share/group/a/#", "two")
    routes.add("a/b", "one")
    assert routes.for_topic("a/b") == ("one", "two")
    assert not routes.remove("a/+", "nobody")
    assert routes.remove("a/+", "one")
    assert routes.for_topic("a/c") == ("two",)
    assert set(routes.all()) == {"one", "two"}


def message(payload: bytes, qos: int = 0) -> Message:
    return Message("t", payload, qos=qos, packet_id=1 if qos else None)


@pytest.mark.parametrize(
    ("overflow", "left"), [("drop_oldest", [b"1", b"3"]), ("drop_newest", [b"0", b"1"])]
)
def test_only_qos_0_is_dropped_and_counted(overflow: str, left: list[bytes]) -> None:
    inbox = Inbox("t", count_max=2, overflow=overflow)  # type: ignore[arg-type]
    for number in range(4):
        assert inbox.put([message(str(number).encode(), qos=int(number == 1))])
    assert [one.payload for one in inbox.row] == left
    assert inbox.dropped_total == 2


def test_waiting_asks_for_a_pause_and_failing_ends() -> None:
    waiting = Inbox("t", count_max=2, overflow="wait")
    assert not waiting.put([message(b"x")] * 3)
    assert len(waiting.row) == 3
    failing = Inbox("t", count_max=2, overflow="fail")
    failing.put([message(b"x")] * 3)
    assert isinstance(failing.error, QuotaExceeded)


def receipt() -> Receipt:
    return Receipt("t", b"x", 2, b"")


@pytest.mark.requirement("CLI-20")
def test_a_receipt_tells_threads() -> None:
    promise, called = receipt(), []
    promise.add_done_callback(lambda done: called.append(done.result()))
    with pytest.raises(TimeoutError):
        promise.wait(0.001)
    assert not promise.done()
    futures = [promise.future() for _ in range(2)]
    waiter = threading.Thread(target=lambda: called.append(promise.wait(DEADLINE_S)))
    waiter.start()
    promise._settle(16)
    waiter.join(DEADLINE_S)
    assert called == [16, 16]
    assert [future.result(0) for future in as_completed(futures, 1)] == [16, 16]
    assert promise.wait(0) == 16
    late: list[int] = []
    promise.add_done_callback(lambda done: late.append(done.result()))
    assert late == [16]


@pytest.mark.requirement("CLI-20")
def test_a_receipt_raises_what_went_wrong() -> None:
    promise = receipt()
    future = promise.future()
    with pytest.raises(asyncio.InvalidStateError):
        promise.result()
    promise._settle(None, TransportError("gone"))
    assert isinstance(future.exception(0), TransportError)
    with pytest.raises(TransportError):
        promise.wait()
    assert not promise.acknowledged


@pytest.mark.requirement("CLI-20")
def test_a_receipt_can_be_awaited_and_its_wait_cancelled() -> None:
    async def scenario() -> None:
        promise = receipt()
        waiting = asyncio.ensure_future(asyncio.wait_for(promise, DEADLINE_S))
        impatient = asyncio.ensure_future(asyncio.wait_for(promise, DEADLINE_S))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        await asyncio.to_thread(promise._settle, 0)
        assert await waiting == 0
        assert await promise == 0

    asyncio.run(scenario())


def test_waiters_are_never_lost_between_threads() -> None:
    """Adding a waiter and settling race; the waiter is called exactly once."""
    with ThreadPoolExecutor(2) as pool:
        for _ in range(300):
            promise: Pending[None] = Pending()
            calls: list[int] = []
            adding = pool.submit(promise._add_waiter, partial(calls.append, 1))
            settling = pool.submit(promise._settle, None)
            adding.result(DEADLINE_S)
            settling.result(DEADLINE_S)
            assert calls == [1]


def test_a_worker_keeps_order_survives_errors_and_ends() -> None:
    worker, done = Worker("test"), []
    worker.post(lambda: done.append(1))
    worker.post(lambda: 1 // 0)
    worker.post(lambda: done.append(2))
    assert worker.close(DEADLINE_S)
    worker.post(lambda: done.append(3))
    assert done == [1, 2]


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("mqtt://host", "mqtt://host:1883"),
        ("host:99", "mqtt://host:99"),
        ("mqtts://me:p%40ss@host", "mqtts://host:8883"),
        ("mqtt://[::1]:5", "mqtt://[::1]:5"),
        ("unix:///run/mqtt.sock", "unix:///run/mqtt.sock"),
    ],
)
def test_urls_are_read(url: str, text: str) -> None:
    endpoint = Endpoint.parse(url)
    assert str(endpoint) == text
    assert "p@ss" not in repr(endpoint)
    if "@" in url:
        assert (endpoint.user_name, endpoint.password) == ("me", "p@ss")


@pytest.mark.parametrize("url", ["ftp://host", "mqtt://", "unix://"])
def test_urls_that_name_no_broker_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match=url):
        Endpoint.parse(url)


def test_payloads_are_bytes_or_text() -> None:
    assert payload_bytes("ü") == b"\xc3\xbc"
    assert payload_bytes(bytearray(b"x")) == payload_bytes(memoryview(b"x")) == b"x"
    assert payload_bytes(None) == b""
    with pytest.raises(TypeError, match="int"):
        payload_bytes(3)  # type: ignore[arg-type]


def test_subscription_options_and_filters_are_checked() -> None:
    assert options_byte(2, no_local=True, retain_as_published=True) == 0b1110
    assert options_byte(0, retain_handling="do_not_send") == 0b100000
    assert with_options(["a", "b/#"], 1) == [("a", 1), ("b/#", 1)]
    for filters in ([], "a/#/b", ["good", ""]):
        with pytest.raises(LocalProtocolError):
            with_options(filters, 0)
    with pytest.raises(LocalProtocolError):
        options_byte(3)
    assert _core.encode_subscribe(5, 1, [("a", 0b1110)])[-1] == 0b1110
