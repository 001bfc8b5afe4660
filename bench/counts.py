"""`python -m bench.counts [CASE…]`: counts per message or connect, which no noise can change.

A node without Python (`crates/node/examples/host.rs`) runs under a tool that counts: instructions
(callgrind), heap allocations (memcheck), system calls (strace). Each case runs twice, with N and
with 3 N messages; the difference divided by 2 N is free of what starting and connecting cost.

System calls and instructions depend on how many messages arrive at once: with one message under
way nothing is shared, with a hundred nearly everything is. Both are counted. A counting tool slows
the node and not the generator, so batches are rather larger here than in life.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.brokers import HOUSE, Running
from bench.generator import figure, run
from bench.machine import commit
from bench.measure import GENERATOR_CPUS
from bench.results import folder_of_today

_HOST: Final = HOUSE / "target" / "release" / "examples" / "host"
_MESSAGES: Final = 20_000
# In lock-step under a tool that slows the node fiftyfold.
_MESSAGES_ONE_BY_ONE: Final = 3_000
# Of each of ten clients: every one is a port that stays taken for a minute.
_CONNECTS: Final = 200
_TIMES: Final = 3
_END_DEADLINE_S: Final = 60.0
_V311: Final = ("-V", "4")


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of traffic."""

    name: str
    arguments: tuple[str, ...]

    @property
    def units(self) -> int:
        """How many of its units are made in the shorter run."""
        if self.arguments[0] == "conn":
            return _CONNECTS
        # With one under way the next message waits for the one before.
        one_by_one = self.arguments[self.arguments.index("-F") + 1] == "1"
        return _MESSAGES_ONE_BY_ONE if one_by_one else _MESSAGES


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that counts, and how its output is read."""

    counts: str
    program: str
    arguments: tuple[str, ...]
    read: Callable[[str], int]


def _pairs(qos: int, window: int) -> tuple[str, ...]:
    count = 1 if window == 1 else 10
    return ("pairs", "-q", str(qos), "-c", str(count), "-F", str(window), *_V311)


CASES: Final = (
    *(
        Case(
            f"pairs QoS {qos}, {'one under way' if window == 1 else 'window 100'}",
            _pairs(qos, window),
        )
        for qos in (0, 1, 2)
        for window in (1, 100)
    ),
    Case(
        "fan-out QoS 0, 1 → 50, one under way",
        ("fan-out", "--subscribers", "50", "-F", "1", *_V311),
    ),
    Case(
        "fan-out QoS 0, 1 → 50, window 100",
        ("fan-out", "--subscribers", "50", "-F", "100", *_V311),
    ),
    Case("connect and leave, ten at once", ("conn", "-c", "10", *_V311)),
)


def read_callgrind(said: str) -> int:
    """Read the instructions from callgrind's last words."""
    return _number(said, r"Collected\s*:\s*([\d,]+)")


def read_memcheck(said: str) -> int:
    """Read the allocations from memcheck's summary."""
    return _number(said, r"total heap usage:\s*([\d,]+) allocs")


def read_strace(said: str) -> int:
    """Read the calls from the last line of strace's table."""
    totals = [line.split() for line in said.splitlines() if line.rstrip().endswith("total")]
    if not totals:
        raise ValueError(f"no total in what strace said: {said[-500:]}")
    # Share, seconds, microseconds per call, calls, and errors where there were any.
    return int(totals[-1][3])


TOOLS: Final = (
    Tool(
        "instructions",
        "valgrind",
        ("--tool=callgrind", "--callgrind-out-file=/dev/null"),
        read_callgrind,
    ),
    Tool("allocations", "valgrind", ("--tool=memcheck", "--leak-check=no"), read_memcheck),
    Tool("system calls", "strace", ("-f", "-c"), read_strace),
)


def _number(text: str, pattern: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise ValueError(f"nothing like {pattern} in: {text[-500:]}")
    return int(found.group(1).replace(",", ""))


def main() -> int:
    """Count every case with every tool that is here."""
    parser = argparse.ArgumentParser(description="Count instructions, allocations, system calls.")
    parser.add_argument("cases", nargs="*", help="parts of names of cases; default: all")
    parser.add_argument("--into", type=Path, help="folder; default: bench/results/DATE-COMMIT")
    parser.add_argument(
        "--host", type=Path, default=_HOST, help="count another build's examples/host instead"
    )
    asked = parser.parse_args()
    build = ["cargo", "build", "--quiet", "--release", "-p", "quantumqtt-node", "--example", "host"]
    if asked.host == _HOST:
        subprocess.run(build, cwd=HOUSE, check=True)
    cases = [
        case for case in CASES if not asked.cases or any(part in case.name for part in asked.cases)
    ]
    tools = [tool for tool in TOOLS if shutil.which(tool.program)]
    for tool in TOOLS:
        if tool not in tools:
            print(f"{tool.counts} not counted: {tool.program} is not installed", file=sys.stderr)
    counted: dict[str, dict[str, float]] = {}
    for case in cases:
        counted[case.name] = {}
        for tool in tools:
            print(f"{case.name}: {tool.counts} …", file=sys.stderr)
            counted[case.name][tool.counts] = per_unit(case, tool, asked.host)
    folder = asked.into or folder_of_today() / "counts"
    folder.mkdir(parents=True, exist_ok=True)
    page = render(counted)
    (folder / "table.md").write_text(page, "utf-8")
    (folder / "counts.json").write_text(json.dumps(counted, indent=1) + "\n", "utf-8")
    print(page)
    return 0


def render(counted: dict[str, dict[str, float]]) -> str:
    """Render the counts as a table."""
    heads = [tool.counts for tool in TOOLS]
    head = f"# Counts per delivered message, or per connect, commit {commit()}"
    lines = [head, "", "Node of one shard, 64 B."]
    lines += ["", "| Case | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    for name, counts in counted.items():
        cells = (f"{counts[head]:,.4g}" if head in counts else "–" for head in heads)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def per_unit(case: Case, tool: Tool, host: Path = _HOST) -> float:
    """Count with N and 3 N messages and divide the difference."""
    few, many = (_count(case, tool, host, case.units * times) for times in (1, _TIMES))
    return (many[0] - few[0]) / (many[1] - few[1])


def _count(case: Case, tool: Tool, program: Path, messages: int) -> tuple[int, float]:
    subscribers = 50 if case.arguments[0] == "fan-out" else 1
    limit = ("-L", str(messages // subscribers), "--patience", "30")
    with TemporaryDirectory(prefix="quantumqtt-counts-") as folder:
        said = Path(folder) / "said"
        command = [shutil.which(tool.program) or tool.program, *tool.arguments, str(program)]
        with _host(command, said) as host:
            report = run(host, [*case.arguments, *limit], cpus=GENERATOR_CPUS)
        return tool.read(said.read_text("utf-8", "replace")), figure(report, "units")


@contextmanager
def _host(command: Sequence[str], said: Path) -> Iterator[Running]:
    """Run the node under a tool; it ends when its standard input does."""
    with (
        said.open("w") as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            yield Running("host", process.pid, port, 0.0)
            process.stdin.close()
            process.wait(_END_DEADLINE_S)
        finally:
            if process.poll() is None:
                process.kill()


if __name__ == "__main__":
    sys.exit(main())
