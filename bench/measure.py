"""One measurement: a fresh broker, whatever it has to carry beside, one run, the figures kept."""

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench import stored
from bench.brokers import Broker, Running, pinned, running, running_on
from bench.generator import Report, command, figure, run
from bench.subscriptions import held_subscriptions

BROKER_CPUS: Final = frozenset({0})
GENERATOR_CPUS: Final = frozenset({1})
_IDLE_DEADLINE_S: Final = 60.0
_IDLE_HOLD_S: Final = 120
_POLL_S: Final = 0.02


class Kind(StrEnum):
    """What a scenario is about."""

    THROUGHPUT = "throughput"
    LATENCY = "latency"
    MEMORY = "memory"
    READY = "ready"
    RESTART = "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is done to a broker."""

    kind: Kind = Kind.THROUGHPUT
    arguments: tuple[str, ...] = ()
    shards: int = 1
    """With more than one the broker may use both processors, and shares one with the generator."""
    idle: int = 0
    """Connections that are open meanwhile and do nothing."""
    subscriptions: int = 0
    """Subscriptions that are held meanwhile and hear nothing."""
    connections: int = 0
    """For `MEMORY`: one run with so many and one with twice as many give the slope."""
    sessions: int = 0
    """Clients that have subscribed and gone before it begins, their sessions staying."""
    queued: int = 0
    """Messages that wait for one such client."""


Figures = Mapping[str, float]


def measure(broker: Broker, load: Load) -> tuple[Figures, list[Report]]:
    """Make one measurement; gives the figures that count, and everything the generator said."""
    match load.kind:
        case Kind.MEMORY:
            reports = [_run(broker, load, count) for count in (1, 2)]
            held = [figure(one, "broker_connecting", "anonymous_bytes") for one in reports]
            return {"bytes_per_connection": (held[1] - held[0]) / load.connections}, reports
        case Kind.READY:
            with running(broker, shards=load.shards, cpus=BROKER_CPUS) as started:
                return {"ready_seconds": started.ready_seconds}, []
        case Kind.RESTART:
            return _restart(broker, load), []
        case Kind.THROUGHPUT | Kind.LATENCY:
            report = _run(broker, load, 0)
            return figures_of(report, load.kind), [report]


def figures_of(report: Report, kind: Kind) -> Figures:
    """Pick the figures that a table shows."""
    broken = {**_counts(report, "violations"), **_counts(report, "faults")}
    common = {"lost": figure(report, "lost"), "broken": sum(broken.values())}
    units = figure(report, "units")
    generator = sum(
        figure(report, "generator", part) for part in ("user_seconds", "system_seconds")
    )
    common["generator_us_per_unit"] = generator * 1e6 / units if units else float("nan")
    common["us_per_unit"] = figure(report, "broker_us_per_unit")
    if kind is Kind.LATENCY:
        shares = {"p50_us": "p50_ns", "p99_us": "p99_ns", "p99_9_us": "p99_9_ns"}
        latency = {name: figure(report, "latency", key) / 1e3 for name, key in shares.items()}
        return {**latency, **common}
    return {"per_second": figure(report, "units_per_second"), **common}


def _counts(report: Report, name: str) -> dict[str, float]:
    counts = report.get(name)
    return (
        {str(key): float(value) for key, value in counts.items()}
        if isinstance(counts, Mapping)
        else {}
    )


def _run(broker: Broker, load: Load, times: int) -> Report:
    both = BROKER_CPUS | GENERATOR_CPUS
    cpus = BROKER_CPUS if load.shards == 1 else both
    arguments = load.arguments
    if times:
        arguments = (*arguments, "-c", str(load.connections * times))
    with (
        running(broker, shards=load.shards, cpus=cpus) as started,
        _held_idle(started, load.idle),
        held_subscriptions(started.port, load.subscriptions),
    ):
        _leave(started, load)
        return run(started, arguments, cpus=GENERATOR_CPUS)


def _leave(started: Running, load: Load) -> None:
    stored.leave_sessions(started.port, load.sessions)
    if load.queued:
        publish = stored.leave_a_queue(started.port, load.queued)
        run(started, publish, cpus=GENERATOR_CPUS)


def _restart(broker: Broker, load: Load) -> Figures:
    """Fill a broker, end it, and start it again on what it left."""
    with TemporaryDirectory(prefix="quantumqtt-bench-") as name:
        folder = Path(name)
        with running_on(broker, folder, shards=load.shards, cpus=BROKER_CPUS) as filled:
            _leave(filled, load)
            held = _anonymous_bytes(filled.process_id)
        left = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        with running_on(broker, folder, shards=load.shards, cpus=BROKER_CPUS) as started:
            return {
                "ready_seconds": started.ready_seconds,
                "held_bytes": held,
                "restored_bytes": _anonymous_bytes(started.process_id),
                "disk_bytes": left,
            }


def _anonymous_bytes(process_id: int) -> float:
    status = Path(f"/proc/{process_id}/status").read_text("utf-8")
    line = next(line for line in status.splitlines() if line.startswith("RssAnon:"))
    return float(line.split()[1]) * 1024


@contextmanager
def _held_idle(broker: Running, count: int) -> Iterator[None]:
    """Hold idle connections, made by a second generator, while the body runs."""
    if not count:
        yield
        return
    arguments = ("idle", "-c", str(count), "--duration", str(_IDLE_HOLD_S), "-k", "0")
    wanted = _descriptors(broker.process_id) + count
    with pinned(GENERATOR_CPUS):
        holder = subprocess.Popen(
            command(broker, arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    try:
        deadline = time.monotonic() + _IDLE_DEADLINE_S
        while _descriptors(broker.process_id) < wanted:
            if holder.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{count} idle connections could not be opened")
            time.sleep(_POLL_S)
        yield
    finally:
        holder.terminate()
        holder.wait()


def _descriptors(process_id: int) -> int:
    return sum(1 for _ in Path(f"/proc/{process_id}/fd").iterdir())
