"""`python -m bench.log [CURVE…]`: what the log costs, by batch, size, sessions and queue.

Curves like those of `bench.growth`, written beside them, with what the disk itself takes for a
sync: a broker that syncs cannot answer one message under way sooner than that.
"""

import os
import sys
import time
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Final

from bench.growth import Curve, measure_curves
from bench.measure import Kind, Load

_DURATION: Final = ("--duration", "2", "-V", "4")
_ONE: Final = ("pairs", "-c", "1", "-q", "1", *_DURATION)
_FOUR: Final = ("pairs", "-c", "4", "-q", "1", "-F", "16", *_DURATION)
_MODES: Final = ("quantumqtt", "quantumqtt-group", "quantumqtt-strict", "mosquitto")
_LATENCY: Final = (
    *("latency", "-c", "10", "--rate", "5000", "-q", "1"),
    *("--duration", "5", "-V", "4"),
)
_SYNCS: Final = 1_000
_SYNCED_BYTES: Final = 4096

CURVES: Final = (
    Curve(
        name="batch",
        title="QoS 1, one publisher, by messages under way",
        x="messages under way",
        points=(1, 4, 16, 64, 256, 1024),
        load=lambda count: Load(arguments=(*_ONE, "-F", str(count))),
        figure="per_second",
        y="messages per second",
        brokers=_MODES,
    ),
    Curve(
        name="batch-cpu",
        title="QoS 1, one publisher, by messages under way",
        x="messages under way",
        points=(1, 4, 16, 64, 256, 1024),
        load=lambda count: Load(arguments=(*_ONE, "-F", str(count))),
        brokers=_MODES,
        runs_of="batch",
    ),
    Curve(
        name="size",
        title="QoS 1, four pairs, 16 under way each, by payload",
        x="bytes of payload",
        points=(64, 1024, 65_536, 1_048_576),
        load=lambda size: Load(arguments=(*_FOUR, "-s", str(size))),
        figure="per_second",
        y="messages per second",
        brokers=_MODES,
    ),
    Curve(
        name="shards",
        title="QoS 1, ten pairs, 100 under way each, by shards (two use both processors)",
        x="shards",
        points=(1, 2),
        load=lambda shards: Load(
            arguments=("pairs", "-c", "10", "-q", "1", "-F", "100", *_DURATION), shards=shards
        ),
        figure="per_second",
        y="messages per second",
        brokers=("quantumqtt", "quantumqtt-group", "quantumqtt-strict"),
    ),
    Curve(
        name="checkpoint",
        title="latency at 5 000/s beside stored sessions, with and without checkpoints",
        x="stored sessions",
        points=(0, 10_000, 100_000),
        load=lambda count: Load(kind=Kind.LATENCY, arguments=_LATENCY, sessions=count),
        figure="p99_us",
        y="p99 in µs",
        brokers=("quantumqtt-strict", "quantumqtt-strict-checkpoints"),
    ),
    Curve(
        name="restart",
        title="start to accepting, by stored sessions",
        x="stored sessions",
        points=(0, 1_000, 10_000, 100_000, 1_000_000),
        load=lambda count: Load(kind=Kind.RESTART, sessions=count),
        figure="ready_seconds",
        y="seconds",
        brokers=("quantumqtt-strict",),
    ),
    Curve(
        name="restart-memory",
        title="memory after a start, by stored sessions",
        x="stored sessions",
        points=(0, 1_000, 10_000, 100_000, 1_000_000),
        load=lambda count: Load(kind=Kind.RESTART, sessions=count),
        figure="restored_bytes",
        y="bytes",
        brokers=("quantumqtt-strict",),
        runs_of="restart",
    ),
    Curve(
        name="queue",
        title="start to accepting, by messages that wait for one session",
        x="messages",
        points=(0, 10_000, 100_000, 1_000_000),
        load=lambda count: Load(kind=Kind.RESTART, queued=count),
        figure="ready_seconds",
        y="seconds",
        brokers=("quantumqtt-strict",),
    ),
)


def syncs(folder: Path) -> tuple[float, float]:
    """Give the median and the 99th percentile of a small append and its sync, in microseconds."""
    took = []
    with (folder / "synced").open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, _SYNCED_BYTES * _SYNCS)
        for _ in range(_SYNCS):
            began = time.perf_counter()
            file.write(bytes(_SYNCED_BYTES))
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - began) * 1e6)
    shares = quantiles(took, n=100)
    return shares[49], shares[98]


def main() -> int:
    """Say what the disk takes, then measure."""
    with TemporaryDirectory(prefix="quantumqtt-bench-") as name:
        middle, tail = syncs(Path(name))
    disk = f"A 4 KiB append and fdatasync here: median {middle:.0f} µs, p99 {tail:.0f} µs."
    return measure_curves(CURVES, "log", __doc__ or "", remark=disk)


if __name__ == "__main__":
    sys.exit(main())
