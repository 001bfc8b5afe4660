"""Other people's clients under the same load: paho-mqtt, aiomqtt, gmqtt."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from bench.client_load import (
    DEADLINE_S,
    IDLE_CLIENTS,
    IDLE_FIRST,
    REQUESTS_SHARE,
    Load,
    Measure,
    Watch,
    fed,
    resident_bytes,
)

if TYPE_CHECKING:
    import gmqtt as gmqtt_types
    from paho.mqtt.client import Client as PahoClient
    from paho.mqtt.client import MQTTMessage, MQTTMessageInfo


_PAHO_MORE: Final = 200


def _paho(load: Load) -> "PahoClient":
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    protocol = paho.MQTTv5 if load.version == "5" else paho.MQTTv311
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=protocol)
    client.max_inflight_messages_set(load.window)
    client.connect("127.0.0.1", load.port)
    return client


def paho_receive(load: Load) -> Measure:
    """Count calls of `on_message` in the loop's thread."""
    with fed(load) as port:
        client = _paho(replace(load, port=port))
        done, watches, left = threading.Event(), list[Watch](), load.count

        def on_message(*_: object) -> None:
            nonlocal left
            if left == load.count:
                watches.append(Watch())
            left -= 1
            if not left:
                done.set()

        client.on_message = on_message
        connected = threading.Event()
        client.on_connect = lambda *_: connected.set()
        client.loop_start()
        connected.wait(DEADLINE_S)
        client.subscribe("bench/feed")
        done.wait(DEADLINE_S)
        measure = watches[0].stop(load.count - left - 1)
        client.disconnect()
        client.loop_stop()
        return measure


def paho_publish(load: Load) -> Measure:
    """Publish from the main thread, wait for the last."""
    client, topic = _paho(load), f"bench/{uuid4().hex}"
    payload = b"x" * load.payload_bytes
    connected = threading.Event()
    client.on_connect = lambda *_: connected.set()
    client.loop_start()
    connected.wait(DEADLINE_S)
    watch = Watch()
    behind = deque["MQTTMessageInfo"]()
    for _ in range(load.count // load.window):
        behind.extend(client.publish(topic, payload, qos=1) for _ in range(load.window))
        while len(behind) > load.window:
            behind.popleft().wait_for_publish(DEADLINE_S)
    for promise in behind:
        promise.wait_for_publish(DEADLINE_S)
    measure = watch.stop(load.count)
    client.disconnect()
    client.loop_stop()
    return measure


def paho_request(load: Load) -> Measure:
    """One request after the other, answered by a client on another thread; QoS 1 both ways."""
    ask, reply = f"bench/{uuid4().hex}", f"bench/{uuid4().hex}"
    answered, ready = threading.Event(), threading.Semaphore(0)
    asking, answering = _paho(load), _paho(load)

    def answer(client: "PahoClient", _: object, message: "MQTTMessage") -> None:
        client.publish(reply, message.payload, 1)

    answering.on_message = answer
    asking.on_message = lambda *_: answered.set()
    for client, topic in ((asking, reply), (answering, ask)):
        client.on_connect = lambda client, *_, topic=topic: client.subscribe(topic, 1)
        client.on_subscribe = lambda *_: ready.release()
        client.loop_start()
    for _ in range(2):
        ready.acquire(timeout=DEADLINE_S)
    watch, took = Watch(), list[float]()
    for _ in range(load.count // REQUESTS_SHARE):
        began = time.perf_counter()
        asking.publish(ask, b"x" * load.payload_bytes, 1)
        answered.wait(DEADLINE_S)
        answered.clear()
        took.append(time.perf_counter() - began)
    measure = watch.stop(len(took), took)
    for client in (asking, answering):
        client.disconnect()
        client.loop_stop()
    return measure


def paho_idle(load: Load) -> Measure:
    """Memory of each of some clients that do nothing, each with the thread paho gives it.

    A thousand are not possible: each has three descriptors, and `select` ends at 1 024.
    """
    connected = threading.Semaphore(0)
    clients: list[PahoClient] = []

    def add(number: int) -> None:
        for _ in range(number):
            client = _paho(load)
            client.on_connect = lambda *_: connected.release()
            client.loop_start()
            clients.append(client)
            connected.acquire(timeout=DEADLINE_S)

    add(IDLE_FIRST)
    before, watch = resident_bytes(), Watch()
    add(_PAHO_MORE)
    grown = (resident_bytes() - before) / _PAHO_MORE
    measure = replace(watch.stop(_PAHO_MORE), bytes_each=grown)
    for client in clients:
        client.disconnect()
        client.loop_stop()
    return measure


def aiomqtt_receive(load: Load) -> Measure:
    """Count messages of aiomqtt's iterator."""
    import aiomqtt

    async def run(port: int) -> Measure:
        async with aiomqtt.Client("127.0.0.1", port) as client:
            await client.subscribe("bench/feed")
            left, watch = load.count, Watch()
            async for _ in client.messages:
                left -= 1
                if not left:
                    break
            return watch.stop(load.count)

    with fed(load) as port:
        return asyncio.run(run(port))


def aiomqtt_publish(load: Load) -> Measure:
    """As many tasks as the window, each publishing and waiting for its acknowledgement."""
    import aiomqtt

    async def run() -> Measure:
        topic, payload = f"bench/{uuid4().hex}", b"x" * load.payload_bytes
        async with aiomqtt.Client(
            "127.0.0.1", load.port, max_inflight_messages=load.window
        ) as client:
            client.pending_calls_threshold = load.window  # it warns above ten

            async def work(number: int) -> None:
                for _ in range(number):
                    await client.publish(topic, payload, qos=1, timeout=DEADLINE_S)

            watch = Watch()
            await asyncio.gather(*(work(load.count // load.window) for _ in range(load.window)))
            return watch.stop(load.count)

    return asyncio.run(run())


def aiomqtt_idle(load: Load) -> Measure:
    """Memory of each of a thousand clients that do nothing."""
    import aiomqtt

    async def run() -> Measure:
        async with AsyncExitStack() as clients:

            async def add(number: int) -> None:
                for _ in range(number):
                    await clients.enter_async_context(aiomqtt.Client("127.0.0.1", load.port))

            await add(IDLE_FIRST)
            before, watch = resident_bytes(), Watch()
            await add(IDLE_CLIENTS - IDLE_FIRST)
            grown = (resident_bytes() - before) / (IDLE_CLIENTS - IDLE_FIRST)
            return replace(watch.stop(IDLE_CLIENTS - IDLE_FIRST), bytes_each=grown)

    return asyncio.run(run())


@asynccontextmanager
async def _gmqtt(load: Load) -> AsyncIterator["gmqtt_types.Client"]:
    import gmqtt

    client = gmqtt.Client(uuid4().hex[:12])
    await client.connect("127.0.0.1", load.port, version=5 if load.version == "5" else 4)
    try:
        yield client
    finally:
        await client.disconnect()


def gmqtt_request(load: Load) -> Measure:
    """One request after the other, answered by a client in another task; QoS 1 both ways."""

    async def run() -> Measure:
        ask, reply = f"bench/{uuid4().hex}", f"bench/{uuid4().hex}"
        ready, answered = asyncio.Semaphore(0), asyncio.Event()
        async with _gmqtt(load) as asking, _gmqtt(load) as answering:
            for client, topic in ((asking, reply), (answering, ask)):
                client.on_subscribe = lambda *_: ready.release()
                client.subscribe(topic, qos=1)
            for _ in range(2):
                await asyncio.wait_for(ready.acquire(), DEADLINE_S)

            def answer(client: "gmqtt_types.Client", _: str, payload: bytes, *__: object) -> int:
                client.publish(reply, payload, qos=1)
                return 0

            def take(*_: object) -> int:
                answered.set()
                return 0

            answering.on_message, asking.on_message = answer, take
            watch, took = Watch(), list[float]()
            for _ in range(load.count // REQUESTS_SHARE):
                began = time.perf_counter()
                asking.publish(ask, b"x" * load.payload_bytes, qos=1)
                await asyncio.wait_for(answered.wait(), DEADLINE_S)
                answered.clear()
                took.append(time.perf_counter() - began)
            return watch.stop(len(took), took)

    return asyncio.run(run())


def gmqtt_idle(load: Load) -> Measure:
    """Memory of each of a thousand clients that do nothing."""

    async def run() -> Measure:
        async with AsyncExitStack() as clients:

            async def add(number: int) -> None:
                for _ in range(number):
                    await clients.enter_async_context(_gmqtt(load))

            await add(IDLE_FIRST)
            before, watch = resident_bytes(), Watch()
            await add(IDLE_CLIENTS - IDLE_FIRST)
            grown = (resident_bytes() - before) / (IDLE_CLIENTS - IDLE_FIRST)
            return replace(watch.stop(IDLE_CLIENTS - IDLE_FIRST), bytes_each=grown)

    return asyncio.run(run())


def gmqtt_receive(load: Load) -> Measure:
    """Count calls of gmqtt's `on_message`."""
    import gmqtt

    async def run(port: int) -> Measure:
        done, watches, left = asyncio.Event(), list[Watch](), load.count

        def on_message(*_: object) -> int:
            nonlocal left
            if left == load.count:
                watches.append(Watch())
            left -= 1
            if not left:
                done.set()
            return 0

        client = gmqtt.Client("bench")
        client.on_message = on_message
        version = 5 if load.version == "5" else 4
        await client.connect("127.0.0.1", port, version=version)
        client.subscribe("bench/feed")
        await asyncio.wait_for(done.wait(), DEADLINE_S)
        measure = watches[0].stop(load.count - 1)
        await client.disconnect()
        return measure

    with fed(load) as port:
        return asyncio.run(run(port))
