"""What one run of a client does, what it took, and who feeds it."""

import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quantumqtt.client.options import Version

DEADLINE_S: Final = 120.0
# Clients that connect before memory is measured: what a library needs once is not counted.
IDLE_FIRST: Final = 100
IDLE_CLIENTS: Final = 1000
REQUESTS_SHARE: Final = 100


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
    """What one run took.

    Attributes:
        round_trip_us: Percentiles, where round trips were measured one by one.
        bytes_each: Memory per client, where that was asked.
    """

    count: int
    wall_s: float
    cpu_s: float
    round_trip_us: dict[str, float] = field(default_factory=dict)
    bytes_each: float = 0.0


class Watch:
    """Measures from the first message to the last."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = _cpu_s()

    def stop(self, count: int, round_trips_s: Sequence[float] = ()) -> Measure:
        """The figures since the start."""
        wall_s, cpu_s = time.perf_counter() - self._wall, _cpu_s() - self._cpu
        listed = sorted(round_trips_s)
        shown = {
            name: listed[min(len(listed) - 1, int(len(listed) * share))] * 1e6
            for name, share in (("p50", 0.5), ("p99", 0.99))
            if listed
        }
        return Measure(count, wall_s, cpu_s, shown)


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


def resident_bytes() -> int:
    """Memory of this process now."""
    fields = Path("/proc/self/statm").read_text("ascii").split()
    return int(fields[1]) * resource.getpagesize()
