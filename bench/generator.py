"""One run of `quantumqtt bench` in a process of its own, pinned away from the broker."""

import json
import resource
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from bench.brokers import HOUSE, PROGRAM, Running, pinned

RUN_DEADLINE_S: Final = 300.0
_JUDGED: Final = (0, 3)

Report = Mapping[str, object]


class RunFailed(RuntimeError):
    """The generator could not make its run."""


def raise_descriptor_limit() -> None:
    """Let brokers and generators open as many connections as the system allows at all."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def command(broker: Running, arguments: Sequence[str]) -> list[str]:
    """Give the command that makes a run against a broker."""
    address = ("-p", str(broker.port), "--broker-pid", str(broker.process_id))
    return [*PROGRAM, "bench", *arguments, *address, "--json"]


def run(broker: Running, arguments: Sequence[str], *, cpus: frozenset[int]) -> Report:
    """Make a run and return its report.

    Raises:
        RunFailed: It could not begin or did not end; the message is what it said.
    """
    with pinned(cpus):
        ran = subprocess.run(
            command(broker, arguments),
            cwd=HOUSE,
            capture_output=True,
            text=True,
            timeout=RUN_DEADLINE_S,
            check=False,
        )
    if ran.returncode not in _JUDGED:
        raise RunFailed(ran.stderr.strip() or f"exit code {ran.returncode}")
    report: Report = json.loads(ran.stdout)
    return report


def figure(report: Report, *path: str) -> float:
    """Give one number of a report, by the names that lead to it; NaN where it has none."""
    value: object = report
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, int | float) else float("nan")
