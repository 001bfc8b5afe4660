"""The Python clients beside each other: one process per run, alternating repeats.

    python -m bench.client --clients quantumqtt,paho --repeats 5

`receive`: a feeder (bench/feeder.py) sends QoS 0 as fast as the client takes it. `publish`: QoS 1
with up to `--window` in flight, every acknowledgement waited for; `stored` is the same with a store
that is synced, `sync-N` the synchronous client from N threads, `request` one request after the
other. The broker of all but `receive` is ours with one shard, started here on the last processor;
the clients run on the first. Reported are messages per second and CPU microseconds per message of
the client's process; CPU is the figure to trust on a machine that does other things. Clients that
are not installed are left out and named. Every run is kept in bench/results/.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from uuid import uuid4

from bench.brokers import by_name, pinned, running
from bench.machine import facts
from bench.results import folder_of_today

if TYPE_CHECKING:
    from paho.mqtt.client import Client as PahoClient
    from paho.mqtt.client import MQTTMessageInfo

    from quantumqtt import Client
    from quantumqtt.client import Token
    from quantumqtt.client.options import Version

MODULES = {
    "quantumqtt": "quantumqtt",
    "paho": "paho.mqtt.client",
    "aiomqtt": "aiomqtt",
    "gmqtt": "gmqtt",
}
SCENARIOS = (
    *("receive", "publish", "stored", "request"),
    *("sync-receive", "sync-1", "sync-4", "sync-16", "idle"),
)
DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class Load:
    """What one run does."""

    port: int
    version: "Version"
    count: int
    window: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class Measure:
    """What one run took."""

    count: int
    wall_s: float
    cpu_s: float


class Watch:
    """Measures from the first message to the last."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = _cpu_s()

    def stop(self, count: int) -> Measure:
        """The figures since the start."""
        return Measure(count, time.perf_counter() - self._wall, _cpu_s() - self._cpu)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


# --- the feeder ----------------------------------------------------------------------------------


@contextmanager
def fed(load: Load) -> Iterator[int]:
    """Run the feeder in a process of its own; gives its port."""
    command = [sys.executable, "-m", "bench.feeder", str(load.count), str(load.payload_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as feeder:
        assert feeder.stdout is not None
        try:
            yield int(feeder.stdout.readline())
        finally:
            feeder.kill()


# --- clients -------------------------------------------------------------------------------------


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
            watch, count = Watch(), load.count // 100
            for _ in range(count):
                await asking.request(topic, b"x" * load.payload_bytes)
            return watch.stop(count)

    return asyncio.run(run())


def idle_memory(count: int, port: int) -> float:
    """Bytes of this process for each idle client, 1 000 of them apart from the first few."""
    from quantumqtt import Client

    def resident() -> int:
        fields = Path("/proc/self/statm").read_text("ascii").split()
        return int(fields[1]) * resource.getpagesize()

    async def run() -> float:
        clients: list[Client] = []

        async def add(number: int) -> None:
            for _ in range(number):
                clients.append(Client(f"mqtt://127.0.0.1:{port}"))
                await clients[-1].connect()

        await add(100)
        before = resident()
        await add(count - 100)
        grown = (resident() - before) / (count - 100)
        for client in clients:
            await client.close()
        return grown

    return asyncio.run(run())


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


RUNS: dict[tuple[str, str], Callable[[Load], Measure]] = {
    ("quantumqtt", "receive"): quantumqtt_receive,
    ("quantumqtt", "publish"): quantumqtt_publish,
    ("quantumqtt", "stored"): quantumqtt_stored_publish,
    ("quantumqtt", "request"): quantumqtt_request,
    ("quantumqtt", "sync-receive"): quantumqtt_sync_receive,
    ("quantumqtt", "sync-1"): partial(quantumqtt_sync_publish, threads=1),
    ("quantumqtt", "sync-4"): partial(quantumqtt_sync_publish, threads=4),
    ("quantumqtt", "sync-16"): partial(quantumqtt_sync_publish, threads=16),
    ("paho", "receive"): paho_receive,
    ("paho", "publish"): paho_publish,
    ("aiomqtt", "receive"): aiomqtt_receive,
    ("gmqtt", "receive"): gmqtt_receive,
}


# --- the comparison ------------------------------------------------------------------------------


def run_once(client: str, scenario: str, load: Load) -> Measure:
    """Run one client in a fresh process."""
    command = [sys.executable, "-m", "bench.client", "--run", client, scenario]
    ran = subprocess.run(
        [*command, json.dumps(asdict(load))], capture_output=True, text=True, check=True
    )
    return Measure(**json.loads(ran.stdout))


def compare(clients: Sequence[str], scenario: str, load: Load, repeats: int) -> list[str]:
    """Alternate the clients and print medians, spreads and the ratio to paho; returns lines."""
    results: dict[str, list[Measure]] = {client: [] for client in clients}
    for _ in range(repeats):
        for client in clients:
            results[client].append(run_once(client, scenario, load))
    rates = {name: [one.count / one.wall_s for one in all_] for name, all_ in results.items()}
    costs = {name: [one.cpu_s / one.count * 1e6 for one in all_] for name, all_ in results.items()}
    print(f"\n{scenario}, MQTT {load.version}, {load.payload_bytes} B, {load.count} messages")
    for client in clients:
        rate, cost = statistics.median(rates[client]), statistics.median(costs[client])
        spread = f"{min(rates[client]):,.0f} to {max(rates[client]):,.0f}"
        print(f"  {client:<11} {rate:>10,.0f} msg/s ({spread})   {cost:6.2f} µs CPU per message")
    if "paho" in clients and "quantumqtt" in clients:
        wall = statistics.median(rates["quantumqtt"]) / statistics.median(rates["paho"])
        cpu = statistics.median(costs["paho"]) / statistics.median(costs["quantumqtt"])
        print(f"  quantumqtt against paho: {wall:.1f} × throughput, {cpu:.1f} × less CPU")
    sys.stdout.flush()
    return [
        json.dumps({"scenario": scenario, "client": client, "load": asdict(load), **asdict(one)})
        for client, runs in results.items()
        for one in runs
    ]


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", default=",".join(MODULES))
    parser.add_argument("--scenarios", default=",".join(SCENARIOS))
    parser.add_argument("--version", default="3.1.1", choices=["3.1.1", "5"])
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--window", type=int, default=1000)
    parser.add_argument("--payload-bytes", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--run", nargs=3, metavar=("CLIENT", "SCENARIO", "LOAD"))
    parser.add_argument("--idle", nargs=2, type=int, metavar=("COUNT", "PORT"))
    given = parser.parse_args()
    if given.idle:
        print(idle_memory(*given.idle))
        return
    if given.run:
        client, scenario, settings = given.run
        print(json.dumps(asdict(RUNS[client, scenario](Load(**json.loads(settings))))))
        return
    wanted = given.clients.split(",")
    present = [one for one in wanted if importlib.util.find_spec(MODULES[one].split(".")[0])]
    print(f"{platform.machine()}, Python {platform.python_version()}, {given.repeats} repeats")
    for absent in sorted(set(wanted) - set(present)):
        print(f"  {absent}: not installed, left out")
    cpus = sorted(os.sched_getaffinity(0))
    broker, folder = by_name("quantumqtt"), folder_of_today()
    folder.mkdir(parents=True, exist_ok=True)
    machine = {**facts([broker], [], sys.argv), "clients": present}
    with (
        (folder / "client.jsonl").open("a", encoding="utf-8") as kept,
        running(broker, shards=1, cpus=frozenset(cpus[-1:])) as peer,
        pinned(frozenset(cpus[:1])),
    ):
        kept.write(json.dumps(machine) + "\n")
        load = Load(peer.port, given.version, given.count, given.window, given.payload_bytes)
        for scenario in given.scenarios.split(","):
            if scenario == "idle":
                command = [sys.executable, "-m", "bench.client", "--idle", "1000", str(peer.port)]
                ran = subprocess.run(command, capture_output=True, text=True, check=True)
                print(f"\nidle: {float(ran.stdout):,.0f} bytes for each of 1 000 clients")
                kept.write(json.dumps({"scenario": "idle", "bytes": float(ran.stdout)}) + "\n")
                continue
            clients = [one for one in present if (one, scenario) in RUNS]
            for line in compare(clients, scenario, load, given.repeats):
                kept.write(line + "\n")


if __name__ == "__main__":
    main()
