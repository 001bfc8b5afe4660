"""The Python clients beside each other: one process per run, alternating repeats.

    python -m bench clients --clients quantumqtt,paho --repeats 5

`receive`: a feeder (bench/feeder.py) sends QoS 0 as fast as the client takes it. `publish`: QoS 1
with up to `--window` in flight, every acknowledgement waited for; `stored` is the same with a store
that is synced, `sync-N` the synchronous client from N threads. `request`: one request after the
other, answered by a second client in the same process. `idle`: memory per client of 1 000 (paho:
of 300). gmqtt has nothing to wait for after a publish, and aiomqtt 2.5 on paho 2.2 does not wake up
for answers when two of its clients share a loop, so they have no such rows.

The broker of all but `receive` is ours with one shard, started here on the last processor; the
clients run on the first. CPU per message is the figure to trust on a machine that does other
things. Clients that are not installed are left out and named. Kept in bench/results/: every run
(client.jsonl), the table (clients.md), and a plot of how much better ours is (clients.png).
"""

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Final

from bench import client_ours as ours
from bench import client_peers as peers
from bench import plots
from bench.brokers import by_name, pinned, running
from bench.client_load import Load, Measure
from bench.machine import facts
from bench.results import Spread, folder_of_today, ratios

MODULES: Final = {
    "quantumqtt": "quantumqtt",
    "paho": "paho.mqtt.client",
    "aiomqtt": "aiomqtt",
    "gmqtt": "gmqtt",
}
RUNS: Final[dict[tuple[str, str], Callable[[Load], Measure]]] = {
    ("quantumqtt", "receive"): ours.quantumqtt_receive,
    ("quantumqtt", "publish"): ours.quantumqtt_publish,
    ("quantumqtt", "stored"): ours.quantumqtt_stored_publish,
    ("quantumqtt", "request"): ours.quantumqtt_request,
    ("quantumqtt", "sync-receive"): ours.quantumqtt_sync_receive,
    ("quantumqtt", "sync-1"): partial(ours.quantumqtt_sync_publish, threads=1),
    ("quantumqtt", "sync-4"): partial(ours.quantumqtt_sync_publish, threads=4),
    ("quantumqtt", "sync-16"): partial(ours.quantumqtt_sync_publish, threads=16),
    ("quantumqtt", "idle"): ours.quantumqtt_idle,
    ("paho", "receive"): peers.paho_receive,
    ("paho", "publish"): peers.paho_publish,
    ("paho", "request"): peers.paho_request,
    ("paho", "idle"): peers.paho_idle,
    ("aiomqtt", "receive"): peers.aiomqtt_receive,
    ("aiomqtt", "publish"): peers.aiomqtt_publish,
    ("aiomqtt", "idle"): peers.aiomqtt_idle,
    ("gmqtt", "receive"): peers.gmqtt_receive,
    ("gmqtt", "request"): peers.gmqtt_request,
    ("gmqtt", "idle"): peers.gmqtt_idle,
}
SCENARIOS: Final = tuple(dict.fromkeys(scenario for _, scenario in RUNS))
# What the design asks for, against paho.
MARKS: Final = {"receive against paho": 5.0, "publish against paho": 3.0}
# A run that hangs is an error with a name, and not the end of the machine's evening.
RUN_S_MAX: Final = 300.0
Results = dict[str, list[Measure]]


def run_once(client: str, scenario: str, load: Load) -> Measure:
    """Run one client in a fresh process."""
    command = [sys.executable, "-m", "bench.client", "--run", client, scenario]
    ran = subprocess.run(
        [*command, json.dumps(asdict(load))],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=RUN_S_MAX,
    )
    return Measure(**json.loads(ran.stdout))


def measure(clients: Sequence[str], scenario: str, load: Load, repeats: int) -> Results:
    """Let the clients take turns within each repeat."""
    results: Results = {client: [] for client in clients}
    for _ in range(repeats):
        for client in clients:
            results[client].append(run_once(client, scenario, load))
    return results


def figure_of(scenario: str, one: Measure) -> float:
    """The figure a scenario is about, larger being better."""
    if scenario == "idle":
        return 1 / one.bytes_each
    if scenario == "request":
        return 1 / one.round_trip_us["p50"]
    return one.count / one.wall_s


def rows_of(scenario: str, results: Results) -> list[str]:
    """The table's rows of one scenario."""
    rows = []
    for client, runs in results.items():
        if scenario == "idle":
            shown = (_spread([one.bytes_each / 1024 for one in runs], "KiB per client"), "")
        elif scenario == "request":
            halves = _spread([one.round_trip_us["p50"] for one in runs], "µs p50")
            ends = _spread([one.round_trip_us["p99"] for one in runs], "µs p99")
            shown = (f"{halves}, {ends}", _cost(runs))
        else:
            shown = (_spread([one.count / one.wall_s for one in runs], "msg/s"), _cost(runs))
        rows.append(f"| {scenario} | {client} | {shown[0]} | {shown[1]} |")
    return rows


def _cost(runs: Sequence[Measure]) -> str:
    return _spread([one.cpu_s / one.count * 1e6 for one in runs], "µs")


def _spread(values: Sequence[float], unit: str) -> str:
    spread = Spread.of(values)
    assert spread is not None, "there is at least one run"
    digits = 0 if spread.middle >= 100 else 2
    low, high = f"{spread.low:,.{digits}f}", f"{spread.high:,.{digits}f}"
    return f"{spread.middle:,.{digits}f} {unit} ({low} to {high})"


def better(scenario: str, results: Results) -> dict[str, Spread]:
    """How many times better ours is than each other client, repeat by repeat."""
    figures = {
        client: {at: figure_of(scenario, one) for at, one in enumerate(runs)}
        for client, runs in results.items()
    }
    mine = figures.get("quantumqtt", {})
    found = {
        f"{scenario} against {client}": ratios(mine, theirs)
        for client, theirs in figures.items()
        if client != "quantumqtt"
    }
    return {name: spread for name, spread in found.items() if spread is not None}


def compare(given: argparse.Namespace, present: Sequence[str], folder: Path, port: int) -> None:
    """Run every scenario; keep runs, table and plot."""
    load = Load(port, given.version, given.count, given.window, given.payload_bytes)
    told = f"MQTT {load.version}, {load.payload_bytes} B, window {load.window}"
    table = [f"## {told}", "", "| Scenario | Client | Result | CPU per message |", "|-|-|-|-|"]
    print("\n".join(table), flush=True)
    times: dict[str, Spread] = {}
    with (folder / "client.jsonl").open("a", encoding="utf-8") as kept:
        broker = by_name("quantumqtt")
        kept.write(json.dumps({**facts([broker], [], sys.argv), "clients": present}) + "\n")
        for scenario in given.scenarios.split(","):
            clients = [one for one in present if (one, scenario) in RUNS]
            if not clients:
                continue
            results = measure(clients, scenario, load, given.repeats)
            for client, runs in results.items():
                for one in runs:
                    named = {"scenario": scenario, "client": client, "load": asdict(load)}
                    kept.write(json.dumps({**named, **asdict(one)}) + "\n")
            rows = rows_of(scenario, results)
            print("\n".join(rows), flush=True)
            table += rows
            times |= better(scenario, results)
    table += ["", "| Ours against | times better |", "|-|-|"]
    table += [
        f"| {name} | {_spread([x.low, x.middle, x.high], '×')} |" for name, x in times.items()
    ]
    print("\n".join(table[-len(times) - 3 :]))
    with (folder / "clients.md").open("a", encoding="utf-8") as file:
        file.write("\n".join(table) + "\n\n")
    if times and plots.is_available():
        plots.bars(folder / "clients.png", f"times better than others, {told}", times, MARKS)


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
    given = parser.parse_args()
    if given.run:
        client, scenario, settings = given.run
        print(json.dumps(asdict(RUNS[client, scenario](Load(**json.loads(settings))))))
        return
    wanted = given.clients.split(",")
    if unknown := set(given.scenarios.split(",")) - set(SCENARIOS):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    present = [one for one in wanted if importlib.util.find_spec(MODULES[one].split(".")[0])]
    print(f"{platform.machine()}, Python {platform.python_version()}, {given.repeats} repeats")
    for absent in sorted(set(wanted) - set(present)):
        print(f"  {absent}: not installed, left out (dependency group `bench`)")
    cpus = sorted(os.sched_getaffinity(0))
    folder = folder_of_today()
    folder.mkdir(parents=True, exist_ok=True)
    with (
        running(by_name("quantumqtt"), shards=1, cpus=frozenset(cpus[-1:])) as peer,
        pinned(frozenset(cpus[:1])),
    ):
        compare(given, present, folder, peer.port)


if __name__ == "__main__":
    main()
