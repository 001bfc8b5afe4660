"""The asyncio client against real brokers: the same suite for each broker and version."""

# Receipts can be awaited, and nobody has to.
# mypy: disable-error-code="unused-awaitable"

import asyncio
import contextlib
from collections.abc import Callable
from uuid import uuid4

import pytest

from quantumqtt.client import Backoff, Client, Message, Outgoing, Will
from quantumqtt.errors import (
    ClientClosed,
    ConnectFailed,
    LocalProtocolError,
    PublishQueueFull,
    ResponseTimeout,
)
from tests.client.conftest import Peer
from tests.harness.cutting_proxy import CuttingProxy
from tests.harness.ports import free_port
from tests.harness.waiting import wait_until

DEADLINE_S = 10.0
QUICK = Backoff(first_s=0.01, most_s=0.05)


def client_of(peer: Peer, **options: object) -> Client:
    return Client(peer.url, version=peer.version, **options)  # type: ignore[arg-type]


def name() -> str:
    return f"test/{uuid4().hex}"


async def wait_for(condition: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(wait_until, condition, what=what, deadline_s=DEADLINE_S)


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_what_is_published_arrives(peer: Peer, qos: int) -> None:
    topic = name()
    async with client_of(peer) as client, client.subscribe(topic, qos=qos) as stream:
        receipts = [client.publish_nowait(topic, str(i), qos=qos) for i in range(200)]
        for receipt in receipts:
            await receipt
        got = [(await stream.next(DEADLINE_S)).payload for _ in receipts]
        assert got == [str(i).encode() for i in range(200)]


@pytest.mark.requirement("CLI-22")
async def test_the_oldest_version_is_spoken_too(peer: Peer) -> None:
    topic = name()
    async with Client(peer.url, version="3.1") as client, client.subscribe(topic, qos=2) as stream:
        for qos in range(3):
            await client.publish(topic, str(qos), qos=qos)
            message = await stream.next(DEADLINE_S)
            assert (message.payload, message.qos) == (str(qos).encode(), qos)
        assert client.capabilities is not None
        assert client.capabilities.version == "3.1"


@pytest.mark.requirement("CLI-15")
async def test_manual_acknowledgement_redelivers_what_was_not_acknowledged(peer: Peer) -> None:
    topic, client_id = name(), uuid4().hex[:20]
    options = {"client_id": client_id, "clean_start": False, "session_expiry_s": 60}
    async with client_of(peer, **options) as first:
        stream = first.subscribe(topic, qos=1, manual_ack=True)
        await stream.ready
        await first.publish(topic, b"done", qos=1)
        await first.publish(topic, b"not done", qos=1)
        message = await stream.next(DEADLINE_S)
        await message.ack()
        assert (await stream.next(DEADLINE_S)).payload == b"not done"
    second = client_of(peer, **options)
    stream = second.subscribe(topic, qos=1, manual_ack=True)
    async with second:
        message = await stream.next(DEADLINE_S)
        assert message.payload == b"not done"
        await message.ack()
        await stream.close()


async def test_retained_messages_and_wills_come(peer: Peer) -> None:
    topic = name()
    async with client_of(peer) as client:
        await client.publish(topic, b"kept", qos=1, retain=True)
        dying = client_of(peer, will=Will(topic=f"{topic}/will", payload=b"gone", qos=1))
        stream = client.subscribe(f"{topic}/#", qos=1)
        message = await stream.next(DEADLINE_S)
        assert (message.payload, message.retain) == (b"kept", True)
        await dying.connect()
        transport = dying._driver._transport
        assert transport is not None
        dying._driver._options = type(dying._driver._options)(
            endpoints=dying._driver._endpoints, reconnect=None
        )
        transport.abort()
        assert (await stream.next(DEADLINE_S)).payload == b"gone"
        await dying.close()
        await client.publish(topic, b"", qos=1, retain=True)


async def test_handlers_get_messages_in_order_and_errors_do_not_stop_them(peer: Peer) -> None:
    topic, got = name(), []

    async def handler(message: Message) -> None:
        got.append(int(message.payload))
        if len(got) == 1:
            raise RuntimeError("on purpose")

    async with client_of(peer) as client:
        stream = client.handle(topic, handler, qos=1)
        await stream.ready
        for number in range(20):
            client.publish_nowait(topic, str(number), qos=1)
        await wait_for(lambda: len(got) == 20, "all handled")
        assert got == list(range(20))


async def test_requests_are_answered_in_mqtt_5_and_refused_before(peer: Peer) -> None:
    topic = name()
    async with client_of(peer) as client:
        if peer.version != "5":
            with pytest.raises(LocalProtocolError):
                await client.request(topic, b"?")
            return

        async def answer(message: Message) -> None:
            await client.respond(message, message.payload.upper())

        await client.handle(topic, answer, qos=1).ready
        answers = await asyncio.gather(*(client.request(topic, f"q{i}") for i in range(20)))
        assert [one.payload for one in answers] == [f"Q{i}".encode() for i in range(20)]
        with pytest.raises(ResponseTimeout):
            await client.request(name(), b"?", timeout=0.05)


async def test_properties_travel(peer: Peer) -> None:
    if peer.version != "5":
        pytest.skip("properties are MQTT 5")
    topic = name()
    async with client_of(peer) as client, client.subscribe(topic) as stream:
        await client.publish(
            topic, b"{}", content_type="application/json", user_properties={"a": "1"}
        )
        message = await stream.next(DEADLINE_S)
        assert message.content_type == "application/json"
        assert message.user_properties == (("a", "1"),)


async def test_interceptors_see_both_ways(peer: Peer) -> None:
    topic, seen = name(), []

    def tag(outgoing: Outgoing) -> Outgoing:
        seen.append(outgoing.topic)
        return outgoing

    async with (
        client_of(
            peer,
            publish_interceptors=[tag],
            receive_interceptors=[lambda m: seen.append(m.payload)],
        ) as client,
        client.subscribe(topic) as stream,
    ):
        await client.publish(topic, b"x", qos=1)
        await stream.next(DEADLINE_S)
        assert seen == [topic, b"x"]


@pytest.mark.requirement("CLI-13")
async def test_the_client_may_be_used_from_its_own_callbacks(peer: Peer) -> None:
    topic, done = name(), asyncio.Event()

    async def on_connected(_: object) -> None:
        stream = client.subscribe(topic, qos=1)
        await stream.ready
        await client.publish(topic, b"from inside", qos=1)
        assert (await stream.next(DEADLINE_S)).payload == b"from inside"
        done.set()

    client = client_of(peer, on_connected=on_connected)
    async with client, asyncio.timeout(DEADLINE_S):
        await done.wait()


@pytest.mark.requirement("CLI-19")
@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_is_lost_and_nothing_twice_through_a_proxy_that_cuts(
    peer: Peer, seed: int
) -> None:
    topic = name()
    receiver = client_of(peer)
    async with (
        CuttingProxy(peer.port, seed=seed, bytes_min=60, bytes_max=4000) as proxy,
        receiver,
        receiver.subscribe(topic, qos=2) as stream,
    ):
        sender = Client(
            f"mqtt://127.0.0.1:{proxy.port}",
            version=peer.version,  # type: ignore[arg-type]
            client_id=uuid4().hex[:20],
            session_expiry_s=60,
            reconnect=QUICK,
        )
        async with sender:
            proxy.cuts_left = 8
            sender._driver._transport.abort()  # type: ignore[union-attr]
            receipts = [sender.publish_nowait(topic, str(i), qos=1 + i % 2) for i in range(400)]
            async with asyncio.timeout(60):
                for receipt in receipts:
                    await receipt
            assert proxy.cuts_total >= 3
        async with asyncio.timeout(DEADLINE_S):
            numbers: list[int] = []
            while set(numbers) != set(range(400)):
                numbers.append(int((await stream.next()).payload))
        twice = [number for number in numbers if number % 2 and numbers.count(number) > 1]
        assert twice == []


async def test_a_closed_client_says_so_and_leaves_nothing(peer: Peer) -> None:
    before = len(asyncio.all_tasks())
    client = client_of(peer)
    async with client:
        stream = client.subscribe(name())
    with pytest.raises(ClientClosed):
        client.publish_nowait("a", b"")
    with pytest.raises(ClientClosed):
        client.subscribe("a")
    assert [message async for message in stream] == []
    await client.close()
    assert len(asyncio.all_tasks()) == before


async def test_nobody_there_is_a_typed_error_with_a_hint() -> None:
    with pytest.raises(ConnectFailed) as failed:
        async with Client(f"mqtt://127.0.0.1:{free_port()}"):
            pass
    assert failed.value.hint
    assert failed.value.retryable


async def test_a_silent_server_is_given_up() -> None:
    left = asyncio.Event()

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.transport.abort()
        left.set()

    async with await asyncio.start_server(never, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectFailed, match=r"within 0\.1 s"):
            async with Client(f"mqtt://127.0.0.1:{port}", connect_timeout_s=0.1):
                pass
        await asyncio.wait_for(left.wait(), DEADLINE_S)


@pytest.mark.requirement("CLI-24")
async def test_waiting_for_room_is_back_pressure(peer: Peer) -> None:
    topic = name()
    async with client_of(peer, queue_bytes_max=2000) as client:

        def publish_too_much() -> None:
            for _ in range(200):
                client.publish_nowait(topic, b"x" * 100, qos=1)

        with pytest.raises(PublishQueueFull):
            publish_too_much()
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*(client.publish(topic, b"x" * 100, qos=1) for _ in range(200)))
        with pytest.raises(PublishQueueFull):
            await client.publish(topic, b"x" * 3000)


async def test_wrong_arguments_fail_before_anything_is_sent(peer: Peer) -> None:
    async with client_of(peer) as client:
        for wrong in ({"topic": "a/#"}, {"topic": ""}, {"topic": "a", "qos": 3}):
            with pytest.raises(LocalProtocolError):
                client.publish_nowait(**wrong)
        with pytest.raises(LocalProtocolError):
            client.subscribe("a/#/b")
        assert client.connected
