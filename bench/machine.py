"""What must be known about the machine and the tree for a figure to mean anything."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from bench.brokers import HOUSE, Broker


def commit() -> str:
    """Give the short name of the commit, with a mark when the tree differs from it."""
    name = _git("rev-parse", "--short=10", "HEAD") or "unknown"
    # Results are written while we run; they change no figure.
    changed = _git("status", "--porcelain", "--", ".", ":(exclude)bench/results")
    return f"{name}-changed" if changed else name


def facts(brokers: list[Broker], absent: list[Broker], command: list[str]) -> dict[str, object]:
    """Gather what a reader needs to repeat or to doubt a result."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "command": " ".join(command),
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_kib": _memory_kib(),
        "kernel": platform.release(),
        "python": sys.version.split()[0],
        "load_at_start": os.getloadavg()[0],
        "brokers": {broker.name: broker.version() for broker in brokers},
        "not_run": [broker.name for broker in absent],
    }


def _git(*arguments: str) -> str:
    ran = subprocess.run(
        ["git", *arguments], cwd=HOUSE, capture_output=True, text=True, check=False
    )
    return ran.stdout.strip()


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _memory_kib() -> int:
    lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemTotal:"))
