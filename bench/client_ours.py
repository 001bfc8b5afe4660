"""Our clients under load: what each scenario does with them."""

import asyncio
import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
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
    from quantumqtt import Client
    from quantumqtt.client import Token


def quantumqtt_receive(load: Load) -> Measure:
    """Count messages of an `async for`."""
    from quantumqtt import Client

    async def run(port: int) -> Measure:
        async with (
            Client(f"mqtt://127.0.0.1:{port}", version=load.version) as client,
            client.subscribe("bench/feed", overflow="wait") as stream,
        ):
            await stream.next(DEADLINE_S)
            watch, left = Watch(), load.count - 1
            async for _ in stream:
                left -= 1
                if not left:
                    break
            return watch.stop(load.count - 1)

    with fed(load) as port:
        return asyncio.run(run(port))


def quantumqtt_sync_receive(load: Load) -> Measure:
    """Count calls of a callback on its thread."""
    from quantumqtt import Message, SyncClient

    done, watches, left = threading.Event(), list[Watch](), load.count

    def on_message(_: Message) -> None:
        nonlocal left
        if left == load.count:
            watches.append(Watch())
        left -= 1
        if not left:
            done.set()

    with fed(load) as port, SyncClient(f"mqtt://127.0.0.1:{port}", version=load.version) as client:
        client.subscribe("bench/feed", on_message, overflow="wait")
        done.wait(DEADLINE_S)
        return watches[0].stop(load.count - left - 1)


async def _publish(client: "Client", load: Load) -> Measure:
    from quantumqtt.client import Receipt

    topic, payload = f"bench/{uuid4().hex}", b"x" * load.payload_bytes
    watch = Watch()
    publish = client.publish_nowait
    behind = deque[Receipt]()
    for _ in range(load.count // load.window):
        behind.extend([publish(topic, payload, qos=1) for _ in range(load.window)])
        while len(behind) > load.window:
            await behind.popleft()
    for receipt in behind:
        await receipt
    return watch.stop(load.count)


def quantumqtt_publish(load: Load) -> Measure:
    """Publish without waiting for each, then wait for all receipts."""
    from quantumqtt import Client

    async def run() -> Measure:
        url = f"mqtt://127.0.0.1:{load.port}"
        async with Client(url, version=load.version, inflight_max=load.window) as client:
            return await _publish(client, load)

    return asyncio.run(run())


def quantumqtt_stored_publish(load: Load) -> Measure:
    """The same with a store in a file that is synced."""
    from quantumqtt import Client

    async def run(store: Path) -> Measure:
        url = f"mqtt://127.0.0.1:{load.port}"
        async with Client(
            url, version=load.version, inflight_max=load.window, store=store
        ) as client:
            return await _publish(client, load)

    with TemporaryDirectory(prefix="quantumqtt-bench-", dir=".") as folder:
        return asyncio.run(run(Path(folder) / "store"))


def quantumqtt_sync_publish(load: Load, threads: int) -> Measure:
    """Publish from several threads of the synchronous client."""
    from quantumqtt import SyncClient

    url, topic = f"mqtt://127.0.0.1:{load.port}", f"bench/{uuid4().hex}"
    payload, share = b"x" * load.payload_bytes, load.count // threads
    with SyncClient(url, version=load.version, inflight_max=load.window) as client:

        def work() -> None:
            behind: deque[Token] = deque()
            for _ in range(share):
                behind.append(client.publish(topic, payload, qos=1))
                if len(behind) > load.window:
                    behind.popleft().wait(DEADLINE_S)
            for token in behind:
                token.wait(DEADLINE_S)

        watch = Watch()
        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return watch.stop(share * threads)


def quantumqtt_request(load: Load) -> Measure:
    """One request after the other, answered by a client in another task."""
    from quantumqtt import Client, Message

    async def run() -> Measure:
        url, topic = f"mqtt://127.0.0.1:{load.port}", f"bench/{uuid4().hex}"
        async with Client(url, version="5") as asking, Client(url, version="5") as answering:

            async def answer(message: Message) -> None:
                await answering.respond(message, message.payload)

            await answering.handle(topic, answer, qos=1).ready
            await asking.request(topic, b"warm")
            watch, took = Watch(), list[float]()
            for _ in range(load.count // REQUESTS_SHARE):
                began = time.perf_counter()
                await asking.request(topic, b"x" * load.payload_bytes)
                took.append(time.perf_counter() - began)
            return watch.stop(len(took), took)

    return asyncio.run(run())


def quantumqtt_idle(load: Load) -> Measure:
    """Memory of each of a thousand clients that do nothing."""
    from quantumqtt import Client

    async def run() -> Measure:
        clients: list[Client] = []

        async def add(number: int) -> None:
            for _ in range(number):
                clients.append(Client(f"mqtt://127.0.0.1:{load.port}", version=load.version))
                await clients[-1].connect()

        await add(IDLE_FIRST)
        before, watch = resident_bytes(), Watch()
        await add(IDLE_CLIENTS - IDLE_FIRST)
        grown = (resident_bytes() - before) / (IDLE_CLIENTS - IDLE_FIRST)
        measure = replace(watch.stop(IDLE_CLIENTS - IDLE_FIRST), bytes_each=grown)
        for client in clients:
            await client.close()
        return measure

    return asyncio.run(run())
