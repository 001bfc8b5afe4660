"""What the kernel knows of a process: memory, descriptors, threads, wake-ups.

Growth is judged on these and never on time. Memory is the private resident part: pages shared with
other processes come and go without anybody's doing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One look at one process."""

    memory_kib: int
    descriptors: int
    threads: int

    @classmethod
    def of(cls, process_id: int) -> Self:
        """Look now."""
        folder = Path("/proc") / str(process_id)
        status = _fields(folder / "status")
        return cls(
            memory_kib=int(status["RssAnon"].split()[0]),
            descriptors=len(list((folder / "fd").iterdir())),
            threads=int(status["Threads"]),
        )


def wake_ups(process_id: int) -> dict[str, int]:
    """Count how often each thread went to sleep by itself, by the name of the thread."""
    counts: dict[str, int] = {}
    for task in (Path("/proc") / str(process_id) / "task").iterdir():
        status = _fields(task / "status")
        name = status["Name"]
        counts[name] = counts.get(name, 0) + int(status["voluntary_ctxt_switches"])
    return counts


def cpu_seconds(process_id: int) -> float:
    """Add up how long its threads have run; those that ended meanwhile are not counted."""
    tasks = (Path("/proc") / str(process_id) / "task").iterdir()
    ran_ns = (int((task / "schedstat").read_text(encoding="ascii").split()[0]) for task in tasks)
    return sum(ran_ns) / 1e9


def _fields(file: Path) -> dict[str, str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
