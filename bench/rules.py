"""`just bench rules`: what an access rule file costs per message, in instructions.

The whole program runs under callgrind, with a rule file and without, and delivers N and then 3 N
messages; the difference divided by 2 N is free of what starting, loading the rules and connecting
cost. The rules are of the kinds that are in use: for everybody, for the client's own name, for one
user, and a deny.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.brokers import PROGRAM, Running
from bench.counts import read_callgrind
from bench.generator import figure, run
from bench.machine import commit
from bench.measure import GENERATOR_CPUS
from bench.results import folder_of_today
from tests.harness.node_process import NodeProcess

# What Python does meanwhile is counted, too: so many messages make it disappear.
_MESSAGES: Final = 500_000
_TIMES: Final = 3
_ALLOWED: Final = 1.05
_SLOWER: Final = 20.0
_RULES: Final = """
[[rule]]
allow = "readwrite"
topics = ["bench/#", "devices/%c/#", "users/%u/#"]

[[rule]]
users = ["ada", "bob"]
allow = "readwrite"
topics = ["plant/+/state", "plant/+/set", "tele/#"]

[[rule]]
deny = "readwrite"
topics = ["secret/#", "bench/forbidden/#"]
"""
_CASES: Final = {
    f"pairs QoS {qos}, window 100": ("pairs", "-q", str(qos), "-c", "10", "-F", "100", "-V", "4")
    for qos in (0, 1)
} | {
    "fan-out QoS 0, 1 → 50, window 100": ("fan-out", "--subscribers", "50", "-F", "100", "-V", "4")
}


def main() -> int:
    """Count, print, keep."""
    parser = argparse.ArgumentParser(description="Instructions per message with and without rules.")
    parser.add_argument("cases", nargs="*", help="parts of names of cases; default: all")
    parser.add_argument("--messages", type=int, default=_MESSAGES)
    parser.add_argument("--into", type=Path, help="folder; default: bench/results/DATE-COMMIT")
    asked = parser.parse_args()
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        print("not counted: valgrind is not installed", file=sys.stderr)
        return 1
    cases = {
        name: arguments
        for name, arguments in _CASES.items()
        if not asked.cases or any(part in name for part in asked.cases)
    }
    counted: dict[str, dict[str, float]] = {}
    columns = (
        MofNCompleteColumn(),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        shown = progress.add_task("", total=2 * len(cases))
        for name, arguments in cases.items():
            for label, rules in (("without", ""), ("with", _RULES)):
                progress.update(shown, description=f"{name}, {label} rules")
                counted.setdefault(name, {})[label] = per_message(
                    valgrind, arguments, rules, asked.messages
                )
                progress.advance(shown)
    folder = asked.into or folder_of_today() / "rules"
    folder.mkdir(parents=True, exist_ok=True)
    page = render(counted)
    (folder / "table.md").write_text(page, "utf-8")
    (folder / "rules.json").write_text(json.dumps(counted, indent=1) + "\n", "utf-8")
    print(page)
    return 0 if all(one["with"] <= _ALLOWED * one["without"] for one in counted.values()) else 3


def render(counted: dict[str, dict[str, float]]) -> str:
    """Render the counts as a table."""
    lines = [f"# Instructions per delivered message, rules on and off, commit {commit()}", ""]
    lines += ["| Case | without rules | with rules | ratio |", "| --- | ---: | ---: | ---: |"]
    for name, one in counted.items():
        ratio = one["with"] / one["without"]
        lines.append(f"| {name} | {one['without']:,.0f} | {one['with']:,.0f} | {ratio:.3f} |")
    return "\n".join([*lines, "", f"At most {_ALLOWED:g} is allowed.", ""])


def per_message(valgrind: str, arguments: Sequence[str], rules: str, messages: int) -> float:
    """Count with N and 3 N messages and divide the difference."""
    few, many = (_count(valgrind, arguments, rules, messages * times) for times in (1, _TIMES))
    return (many[0] - few[0]) / (many[1] - few[1])


def _count(valgrind: str, arguments: Sequence[str], rules: str, messages: int) -> tuple[int, float]:
    subscribers = 50 if arguments[0] == "fan-out" else 1
    limit = ("-L", str(messages // subscribers), "--patience", "60")
    with TemporaryDirectory(prefix="quantumqtt-bench-rules-") as name:
        said = Path(name) / "said"
        tool = (
            *(valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null"),
            *("--instr-atstart=no", f"--log-file={said}"),
        )
        flags = ["--durability", "memory", "--shards", "1", "--log-level", "warning"]
        if rules:
            file = Path(name) / "rules.toml"
            file.write_text(rules, "utf-8")
            flags += ["--acl-file", str(file)]
        with NodeProcess(*flags, program=(*tool, *PROGRAM), patience=_SLOWER) as node:
            # Starting takes Python minutes under callgrind when it counts.
            switch = ["callgrind_control", "-i", "on", str(node.process_id)]
            subprocess.run(switch, check=True, stdout=subprocess.DEVNULL)
            running = Running("quantumqtt", node.process_id, node.port, 0.0)
            report = run(running, [*arguments, *limit], cpus=GENERATOR_CPUS)
        text = said.read_text("utf-8", "replace")
        if re.search(r"Collected", text) is None:
            raise RuntimeError(f"callgrind counted nothing: {text[-500:]}")
        return read_callgrind(text), figure(report, "units")


if __name__ == "__main__":
    sys.exit(main())
