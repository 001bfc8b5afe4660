"""`just bench scale [SCENARIO…]`: moments in which everybody wants something at once.

- `reconnect`: 10 000 clients with passwords of their own come back, while somebody looks at the
  admin pages: for the first time (each password is checked), after the network broke (verdicts are
  warm), and after kill -9 and a restart. The same crowd without passwords shows what the
  generator itself takes.
- `retained`: 10 000 retained messages go to one wildcard subscriber again and again; latency of
  others before and meanwhile.
- `sessions`: 100 000 absent sessions with 10 subscriptions each: memory per session and per
  subscription, from brokers with and without the subscriptions.

Broker `strict`, as it is by default, on CPU 0; clients on CPU 1. What was measured is kept beside
the other results; an interrupted run goes on.
"""

import argparse
import asyncio
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.brokers import LOOPBACK, Ours, Running, pinned
from bench.crowd import PASSWORD, come, found_sessions, leave_all
from bench.generator import RunFailed, figure, raise_descriptor_limit, run
from bench.machine import facts
from bench.measure import BROKER_CPUS, GENERATOR_CPUS
from bench.results import Record, Sample, Spread, folder_of_today
from quantumqtt.policy.passwords import hash_password
from tests.harness import packets
from tests.harness.node_process import NodeProcess
from tests.harness.packets import Version

_SCRAPE_PAUSE_S: Final = 0.25
_SETTLE_S: Final = 1.0
_RETAINED_PAYLOAD: Final = b"x" * 64
_DEADLINE_S: Final = 120.0
_LATENCY: Final = ("latency", "--rate", "2000", "-q", "1", "-V", "4", "--duration", "5")

Figures = dict[str, float]
Step = Callable[[], None]
Bar = Callable[[str, int], Step]


@contextmanager
def broker(folder: Path, *flags: str, admin: bool = False) -> Iterator[NodeProcess]:
    """Run a broker on its own processor, with a log in `folder`."""
    said = ["--data", str(folder / "data"), "--durability", "strict", "--shards", "1", *flags]
    said += ["--admin", f"{LOOPBACK}:0"] if admin else []
    process = NodeProcess(*said, "--log-level", "warning")
    with ExitStack() as stack:
        with pinned(BROKER_CPUS):
            stack.enter_context(process)
        with pinned(GENERATOR_CPUS):
            yield process


# --- everybody comes back ------------------------------------------------------------------------


class Scraper:
    """Somebody who looks at the metrics and the pages all the time."""

    def __init__(self, admin_url: str) -> None:
        """Look at this endpoint."""
        self._urls = [f"{admin_url}{path}" for path in ("/metrics", "/", "/readyz")]
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.waits_s: list[float] = []

    def __enter__(self) -> "Scraper":
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End, after the look that is under way."""
        self._ending.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ending.wait(_SCRAPE_PAUSE_S):
            for url in self._urls:
                began = time.monotonic()
                with urllib.request.urlopen(url, timeout=_DEADLINE_S) as answer:
                    answer.read()
                self.waits_s.append(time.monotonic() - began)


def reconnect(folder: Path, count: int, bar: Bar) -> Figures:
    """Let a crowd come for the first time, after a broken network, after a restart."""
    names = [f"device-{number:05d}" for number in range(count)]
    # One hash for all: what a check costs is the same, and writing the file takes no minutes.
    hashed = hash_password(PASSWORD, "argon2id")
    users = folder / "passwords"
    users.write_text("".join(f"{name}:{hashed}\n" for name in names), "utf-8")
    users.chmod(0o600)
    strict = ("--password-file", str(users))
    figures: Figures = {}

    async def crowd(port: int, title: str, *, with_password: bool) -> None:
        step = bar(title, count)
        arrival, inside = await come(port, names, with_password=with_password, step=step)
        figures.update(arrival.figures(title))
        await leave_all(inside)

    with broker(folder / "open") as node:
        asyncio.run(crowd(node.port, "no_password", with_password=False))
    with broker(folder, *strict, admin=True) as node, Scraper(node.admin_url) as looks:
        asyncio.run(crowd(node.port, "cold", with_password=True))
        asyncio.run(crowd(node.port, "warm", with_password=True))
        figures["admin_max_ms"] = max(looks.waits_s) * 1e3
        figures["admin_looks"] = float(len(looks.waits_s))
    with broker(folder, *strict, admin=True) as node, Scraper(node.admin_url) as looks:
        asyncio.run(crowd(node.port, "restarted", with_password=True))
        figures["admin_restarted_max_ms"] = max(looks.waits_s, default=0.0) * 1e3
    return figures


# --- a wildcard over everything retained ---------------------------------------------------------


def retained(folder: Path, count: int, bar: Bar) -> Figures:
    """Replay everything retained while others measure their latency."""
    with broker(folder) as node:
        running = Running("quantumqtt-strict", node.process_id, node.port, 0.0)
        _retain(node.port, count, bar("retaining", count))
        calm = run(running, _LATENCY, cpus=GENERATOR_CPUS)
        replays: list[float] = []
        ending = threading.Event()
        step = bar("replaying", 0)

        def replay() -> None:
            while not ending.is_set():
                replays.append(_replay_once(node.port, count))
                step()

        reader = threading.Thread(target=replay)
        reader.start()
        try:
            stormy = run(running, _LATENCY, cpus=GENERATOR_CPUS)
        finally:
            ending.set()
            reader.join()
    figures = {
        "replays": float(len(replays)),
        "replay_ms": sorted(replays)[len(replays) // 2] * 1e3,
        "lost": figure(calm, "lost") + figure(stormy, "lost"),
    }
    for name, report in (("calm", calm), ("meanwhile", stormy)):
        for share in ("p50", "p99", "p99_9"):
            figures[f"{name}_{share}_us"] = figure(report, "latency", f"{share}_ns") / 1e3
    return figures


def _open(port: int, name: str) -> socket.socket:
    wire = socket.create_connection((LOOPBACK, port), timeout=_DEADLINE_S)
    wire.sendall(packets.connect(name, version=Version.V311, keep_alive_s=0))
    _take(wire, 4)
    return wire


def _take(wire: socket.socket, count: int) -> None:
    while count > 0:
        part = wire.recv(min(count, 1 << 18))
        if not part:
            raise RunFailed("the broker has closed")
        count -= len(part)


def _message(number: int, *, qos: int) -> bytes:
    return packets.publish(
        f"retained/{number % 100}/{number:06d}",
        _RETAINED_PAYLOAD,
        version=Version.V311,
        qos=qos,
        packet_id=number % 65_535 + 1 if qos else None,
        retain=True,
    )


def _retain(port: int, count: int, step: Step) -> None:
    with _open(port, "retainer") as wire:
        for first in range(0, count, 100):
            part = range(first, min(first + 100, count))
            wire.sendall(b"".join(_message(number, qos=1) for number in part))
            _take(wire, 4 * len(part))
            for _ in part:
                step()


def _replay_once(port: int, count: int) -> float:
    """Subscribe and take everything; gives the seconds it took."""
    wanted = 5 + count * len(_message(0, qos=0))
    with _open(port, "replayed") as wire:
        began = time.monotonic()
        wire.sendall(packets.subscribe(1, ("retained/#", 0), version=Version.V311))
        _take(wire, wanted)
        return time.monotonic() - began


# --- sessions that are away ----------------------------------------------------------------------


def sessions(folder: Path, count: int, bar: Bar) -> Figures:
    """Leave sessions behind and see what the broker holds for them."""
    each = 10
    held: dict[int, float] = {}
    for subscriptions in (0, each):
        place = folder / str(subscriptions)
        with broker(place) as node:
            # What the first ones cost once is not theirs.
            asyncio.run(_found(node.port, count // 100, subscriptions, bar("first", count // 100)))
            before = anonymous_bytes(node.process_id)
            title = f"sessions with {subscriptions} subscriptions"
            asyncio.run(_found(node.port, count, subscriptions, bar(title, count)))
            time.sleep(_SETTLE_S)
            new = count - count // 100
            held[subscriptions] = (anonymous_bytes(node.process_id) - before) / new
    return {
        "bytes_per_session": held[0],
        "bytes_per_subscription": (held[each] - held[0]) / each,
        "bytes_per_session_with_10": held[each],
    }


async def _found(port: int, count: int, subscriptions: int, step: Step) -> None:
    await found_sessions(port, count, subscriptions, step=step)


def anonymous_bytes(process_id: int) -> int:
    """Read how much memory of its own a process holds."""
    status = Path(f"/proc/{process_id}/status").read_text("ascii")
    line = next(line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


# --- all of it -----------------------------------------------------------------------------------

SCENARIOS: Final[Mapping[str, tuple[Callable[[Path, int, Bar], Figures], int]]] = {
    "reconnect": (reconnect, 10_000),
    "retained": (retained, 10_000),
    "sessions": (sessions, 100_000),
}


def measure(name: str, share: float, progress: Progress) -> Figures:
    """Run one scenario in a folder of its own, every step of it shown."""
    scenario, count = SCENARIOS[name]

    def bar(title: str, total: int) -> Step:
        shown = progress.add_task(f"{name} · {title}", total=total or None)
        return lambda: progress.advance(shown)

    with TemporaryDirectory(prefix="quantumqtt-bench-scale-") as folder:
        return scenario(Path(folder), max(int(count * share), 100), bar)


def render(record: Record, names: Sequence[str], known: Mapping[str, object], share: float) -> str:
    """Render every figure with its spread over the repeats."""
    lines = [f"# Moments of many, {known.get('at')}, commit {known.get('commit')}", ""]
    lines += [f"`{known.get('command')}` on {known.get('cpus')} × {known.get('cpu')}.", ""]
    for name in names:
        measured = [one for one in record.samples if one.scenario == _key(name, share)]
        lines += [f"## {name}, {int(SCENARIOS[name][1] * share):,}", ""]
        lines += [f"failed: {one.error}" for one in measured if one.error]
        lines += ["| figure | middle | lowest | highest |", "| --- | ---: | ---: | ---: |"]
        figures = sorted({figure for one in measured for figure in one.figures})
        for one in figures:
            spread = Spread.of(record.figures(_key(name, share), Ours.name, one).values())
            if spread is not None:
                cells = " | ".join(f"{x:,.1f}" for x in (spread.middle, spread.low, spread.high))
                lines.append(f"| {one} | {cells} |")
        lines.append("")
    return "\n".join(lines)


def _key(name: str, share: float) -> str:
    return name if share == 1 else f"{name} × {share:g}"


def main() -> int:
    """Measure what is missing and render everything."""
    parser = argparse.ArgumentParser(description="Everybody at once: see the module.")
    parser.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []], metavar="SCENARIO")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="this part of each crowd only")
    parser.add_argument("--into", type=Path, help="folder; default: bench/results/DATE-COMMIT")
    asked = parser.parse_args()
    names = asked.scenarios or list(SCENARIOS)
    raise_descriptor_limit()
    folder = asked.into or folder_of_today() / "scale"
    record = Record(folder)
    known = facts([Ours()], [], ["just", "bench", "scale", *sys.argv[1:]])
    record.write_machine(known)
    columns = (
        MofNCompleteColumn(),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    failed = 0
    with Progress(*columns, console=Console(stderr=True)) as progress:
        for repeat in range(asked.repeats):
            for name in names:
                key = _key(name, asked.share)
                if record.has((key, Ours.name, repeat)):
                    continue
                try:
                    record.add(Sample(key, Ours.name, repeat, measure(name, asked.share, progress)))
                except* (RunFailed, RuntimeError, OSError, AssertionError) as group:
                    failed += 1
                    progress.console.print(f"{name}: {group.exceptions[0]}")
                    record.add(Sample(key, Ours.name, repeat, error=str(group.exceptions[0])))
    page = render(record, names, known, asked.share)
    (folder / "table.md").write_text(page, "utf-8")
    print(page)
    print(f"written to {folder}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
