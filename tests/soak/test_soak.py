"""Mixed traffic for minutes: what the broker uses does not grow. `just soak 10` runs ten of them.

The verdict compares the middle of the second quarter with the middle of the last: a leak grows
between them, warming up does not. The samples and a plot are left in `target/soak`.
"""

import json
import os
import statistics
import threading
import time
from pathlib import Path
from typing import Final

import pytest

from tests.hardening.conftest import Victim, run_victim
from tests.harness.process_facts import ProcessFacts
from tests.soak.plot import write_plot
from tests.soak.traffic import HABITS, everything_at_once

MINUTES: Final = float(os.environ.get("SOAK_MINUTES", "10"))
SAMPLE_EVERY_S: Final = 1.0
INTO: Final = Path(__file__).resolve().parents[2] / "target" / "soak"
GROWTH_KIB_MAX: Final = 4 * 1024
GROWTH_DESCRIPTORS_MAX: Final = 8


def watch(victim: Victim, seconds: float) -> list[ProcessFacts]:
    """Look once a second."""
    never, ends_at = threading.Event(), time.monotonic() + seconds
    samples = []
    while time.monotonic() < ends_at:
        samples.append(victim.facts())
        never.wait(SAMPLE_EVERY_S)
    return samples


def grew(values: list[int]) -> float:
    """Compare the last quarter with the second."""
    quarter = len(values) // 4
    second, last = values[quarter : 2 * quarter], values[3 * quarter :]
    return statistics.median(last) - statistics.median(second)


@pytest.mark.night
@pytest.mark.timeout(MINUTES * 60 + 300)
@pytest.mark.requirement("DP-30", "DP-32", "SES-12")
def test_mixed_traffic_for_minutes_does_not_grow() -> None:
    with run_victim(out_buffer_bytes_max=32 * 1024 * 1024) as victim:
        before = victim.facts()
        with everything_at_once(victim.port) as turns:
            samples = watch(victim, MINUTES * 60)
        victim.wait_connections(0)
        after = victim.facts()
        counted = victim.statistics()
        victim.still_serves()
    lines = {
        "memory KiB": [sample.memory_kib for sample in samples],
        "descriptors": [sample.descriptors for sample in samples],
        "threads": [sample.threads for sample in samples],
    }
    write_plot(INTO / "soak.svg", lines)
    figures = {
        "minutes": MINUTES,
        "turns": dict(
            zip([f"{habit.__name__} {at}" for at, habit in enumerate(HABITS)], turns, strict=True)
        ),
        "before": str(before),
        "after": str(after),
        "grew": {name: grew(values) for name, values in lines.items()},
        "largest": {name: max(values) for name, values in lines.items()},
        "statistics": counted,
        "samples": lines,
    }
    (INTO / "soak.json").write_text(json.dumps(figures, indent=1), encoding="utf-8")
    assert all(turn > 0 for turn in turns), "every habit was lived"
    assert grew(lines["memory KiB"]) < GROWTH_KIB_MAX
    assert grew(lines["descriptors"]) < GROWTH_DESCRIPTORS_MAX
    assert grew(lines["threads"]) <= 0
    assert after.descriptors <= before.descriptors + 1
