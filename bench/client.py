"""The Python clients beside each other: one process per run, one broker, alternating repeats.

    python -m bench.client --port 1883 --clients quantumqtt,paho --repeats 5

Two scenarios. `receive`: a generator process floods QoS 0 messages (pre-encoded bytes, so that it
is faster than any client), the client under test counts them. `publish`: the client publishes at
QoS 1 with up to `--window` in flight and waits for every acknowledgement. Reported are messages per
second of wall clock and CPU microseconds per message of the client's process; CPU is the figure to
trust on a machine that does other things. Clients that are not installed are left out and named.

The broker is not started here, so that the same one serves all: run it with one shard, pinned.
"""

import argparse
import asyncio
import importlib.util
import json
import platform
import resource
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from paho.mqtt.client import Client as PahoClient
    from paho.mqtt.client import MQTTMessageInfo

    from quantumqtt.client.options import Version

MODULES = {
    "quantumqtt": "quantumqtt",
    "paho": "paho.mqtt.client",
    "aiomqtt": "aiomqtt",
    "gmqtt": "gmqtt",
}
SCENARIOS = ("receive", "publish")
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


# --- the generator -------------------------------------------------------------------------------


def flood(load: Load, topic: str) -> None:
    """Send `count` QoS 0 messages as fast as the broker takes them."""
    with socket.create_connection(("127.0.0.1", load.port)) as link:
        client_id = f"flood-{uuid4().hex[:12]}".encode()
        variable = b"\x00\x04MQTT\x04\x02\x00\x00" + len(client_id).to_bytes(2, "big") + client_id
        link.sendall(b"\x10" + bytes([len(variable)]) + variable)
        link.recv(4)
        body = len(topic).to_bytes(2, "big") + topic.encode() + b"x" * load.payload_bytes
        length = len(body)
        varint = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
        block = (b"\x30" + varint + body) * 500
        for _ in range(load.count // 500):
            link.sendall(block)
        link.sendall(b"\xc0\x00")
        link.recv(2)
        link.sendall(b"\xe0\x00")


def start_flood(load: Load, topic: str) -> subprocess.Popen[bytes]:
    """Run the generator in a process of its own."""
    settings = json.dumps(asdict(load))
    return subprocess.Popen([sys.executable, "-m", "bench.client", "--flood", settings, topic])


# --- clients -------------------------------------------------------------------------------------


def quantumqtt_receive(load: Load) -> Measure:
    """Count messages of an `async for`."""
    from quantumqtt import Client

    async def run() -> Measure:
        topic = f"bench/{uuid4().hex}"
        async with (
            Client(f"mqtt://127.0.0.1:{load.port}", version=load.version) as client,
            client.subscribe(topic, queue_count_max=load.count) as stream,
        ):
            generator = start_flood(load, topic)
            await stream.next(DEADLINE_S)
            watch, left = Watch(), load.count - 1
            async for _ in stream:
                left -= 1
                if not left:
                    break
            measure = watch.stop(load.count)
            generator.wait(DEADLINE_S)
        return measure

    return asyncio.run(run())


def quantumqtt_publish(load: Load) -> Measure:
    """Publish without waiting for each, then wait for all receipts."""
    from quantumqtt import Client
    from quantumqtt.client import Receipt

    async def run() -> Measure:
        topic, payload = f"bench/{uuid4().hex}", b"x" * load.payload_bytes
        async with Client(
            f"mqtt://127.0.0.1:{load.port}", version=load.version, inflight_max=load.window
        ) as client:
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
    client, topic = _paho(load), f"bench/{uuid4().hex}"
    subscribed, done = threading.Event(), threading.Event()
    left, watches = load.count, []

    def on_message(*_: object) -> None:
        nonlocal left
        if left == load.count:
            watches.append(Watch())
        left -= 1
        if not left:
            done.set()

    client.on_message = on_message
    client.on_subscribe = lambda *_: subscribed.set()
    client.loop_start()
    client.subscribe(topic)
    subscribed.wait(DEADLINE_S)
    generator = start_flood(load, topic)
    done.wait(DEADLINE_S)
    measure = watches[0].stop(load.count - left)
    generator.wait(DEADLINE_S)
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

    async def run() -> Measure:
        topic = f"bench/{uuid4().hex}"
        async with aiomqtt.Client("127.0.0.1", load.port) as client:
            await client.subscribe(topic)
            generator = start_flood(load, topic)
            left, watch = load.count, Watch()
            async for _ in client.messages:
                left -= 1
                if not left:
                    break
            measure = watch.stop(load.count)
            generator.wait(DEADLINE_S)
        return measure

    return asyncio.run(run())


RUNS: dict[tuple[str, str], Callable[[Load], Measure]] = {
    ("quantumqtt", "receive"): quantumqtt_receive,
    ("quantumqtt", "publish"): quantumqtt_publish,
    ("paho", "receive"): paho_receive,
    ("paho", "publish"): paho_publish,
    ("aiomqtt", "receive"): aiomqtt_receive,
}


# --- the comparison ------------------------------------------------------------------------------


def run_once(client: str, scenario: str, load: Load) -> Measure:
    """Run one client in a fresh process."""
    command = [sys.executable, "-m", "bench.client", "--run", client, scenario]
    ran = subprocess.run(
        [*command, json.dumps(asdict(load))], capture_output=True, text=True, check=True
    )
    return Measure(**json.loads(ran.stdout))


def compare(clients: Sequence[str], scenario: str, load: Load, repeats: int) -> None:
    """Alternate the clients and print medians, spreads and the ratio to paho."""
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
        print(f"    raw: {json.dumps([asdict(one) for one in results[client]])}")
    if "paho" in clients and "quantumqtt" in clients:
        wall = statistics.median(rates["quantumqtt"]) / statistics.median(rates["paho"])
        cpu = statistics.median(costs["paho"]) / statistics.median(costs["quantumqtt"])
        print(f"  quantumqtt against paho: {wall:.1f} × throughput, {cpu:.1f} × less CPU")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=1883)
    parser.add_argument("--clients", default="quantumqtt,paho,aiomqtt")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS))
    parser.add_argument("--version", default="3.1.1", choices=["3.1.1", "5"])
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--window", type=int, default=1000)
    parser.add_argument("--payload-bytes", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--run", nargs=3, metavar=("CLIENT", "SCENARIO", "LOAD"))
    parser.add_argument("--flood", nargs=2, metavar=("LOAD", "TOPIC"))
    given = parser.parse_args()
    if given.flood:
        flood(Load(**json.loads(given.flood[0])), given.flood[1])
        return
    if given.run:
        client, scenario, settings = given.run
        print(json.dumps(asdict(RUNS[client, scenario](Load(**json.loads(settings))))))
        return
    load = Load(given.port, given.version, given.count, given.window, given.payload_bytes)
    wanted = given.clients.split(",")
    present = [one for one in wanted if importlib.util.find_spec(MODULES[one].split(".")[0])]
    print(f"{platform.machine()}, Python {platform.python_version()}, {given.repeats} repeats")
    for absent in sorted(set(wanted) - set(present)):
        print(f"  {absent}: not installed, left out")
    for scenario in given.scenarios.split(","):
        clients = [one for one in present if (one, scenario) in RUNS]
        compare(clients, scenario, load, given.repeats)


if __name__ == "__main__":
    main()
