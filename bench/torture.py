"""`just bench torture`: what brokers lose of what they had acknowledged, side by side.

Every broker is hurt in the same ways by `quantumqtt torture`; counts, some findings of each
property and the commands stay in `bench/results`, with a table for people. Nothing here measures
speed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

from bench.brokers import HOUSE, PROGRAM, by_name
from bench.machine import facts
from bench.results import folder_of_today

_FINDINGS_KEPT: Final = 5
_CONFIG: Final = Path("bench/mosquitto_torture.conf")


class _Property(TypedDict):
    text: str
    checked: int
    violated: int


class _Finding(TypedDict):
    property: str
    what: str
    client: str
    topic: str
    message: str
    acknowledged_at: str | None


class _Document(TypedDict):
    reproduce: str
    rounds: int
    acknowledged: int
    properties: dict[str, _Property]
    violations: list[_Finding]


@dataclass(frozen=True, slots=True)
class Subject:
    """A broker and how it is started."""

    name: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        """The name, as tables show it."""
        return self.name


def subjects(levels: list[str]) -> list[Subject]:
    """List the brokers that are here."""
    found = []
    if shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin"):
        command = ("--cmd", "mosquitto -c {config}", "--config", str(_CONFIG))
        found.append(Subject("mosquitto persistence", command))
    # Wills at once, as Mosquitto has them: rounds need not wait for them.
    serve = (
        "env QUANTUMQTT_LIMITS__WILL_GRACE_S=0 quantumqtt serve"
        " --listen tcp://127.0.0.1:{port} --admin off --flight off --data {data}"
    )
    found += [
        Subject(f"quantumqtt {level}", ("--cmd", f"{serve} --durability {level}"))
        for level in levels
    ]
    return found


def torture(subject: Subject, fault: str, rounds: int) -> _Document | None:
    """Run one broker under one fault; None when it did not even start."""
    command = (*PROGRAM, "torture", *subject.arguments, "--fault", fault)
    ran = subprocess.run(
        (*command, "--rounds", str(rounds), "--wills-within", "2", "--json"),
        cwd=HOUSE,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if not ran.stdout:
        return None
    found: _Document = json.loads(ran.stdout)
    kept: dict[str, list[_Finding]] = {}
    for finding in found["violations"]:
        kept.setdefault(finding["property"], []).append(finding)
    found["violations"] = [one for many in kept.values() for one in many[:_FINDINGS_KEPT]]
    return found


def traced(subject: Subject) -> str:
    """Ask whether a broker syncs before it acknowledges."""
    ran = subprocess.run(
        (*PROGRAM, "torture", *subject.arguments, "--fault", "none", "--trace-syncs", "--json"),
        cwd=HOUSE,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if not ran.stdout:
        return "–"
    found = json.loads(ran.stdout)
    return f"{found['synced']} of {found['publishes']}"


def table(runs: dict[str, _Document], syncs: dict[str, str]) -> str:
    """Write one column per run, one line per property: violated of checked."""
    first = next(iter(runs.values()))
    lines = [
        "# What brokers lost of what they had acknowledged",
        "",
        "Violations of checks. `kill` is kill -9, `power` a power cut at the same kind of instant.",
        "Each broker is named with its durability; Mosquitto writes its database once a second.",
        "",
        f"| | {' | '.join(runs)} |",
        f"| --- |{' ---: |' * len(runs)}",
        f"| rounds | {' | '.join(str(one['rounds']) for one in runs.values())} |",
        "| publishes acknowledged | "
        + " | ".join(f"{one['acknowledged']:,}" for one in runs.values())
        + " |",
    ]
    for key, shown in first["properties"].items():
        cells = [one["properties"][key] for one in runs.values()]
        texts = (f"{cell['violated']:,} of {cell['checked']:,}" for cell in cells)
        lines.append(f"| {shown['text']} | {' | '.join(texts)} |")
    lines += ["", "PUBACKs with a sync of their own before them, by strace, one at a time:", ""]
    lines += [f"- {name}: {count}" for name, count in syncs.items()]
    lines += ["", "Commands:", ""]
    lines += [f"- {name}: `{one['reproduce']}`" for name, one in runs.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Torture every broker that is here."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--faults", default="kill,power")
    parser.add_argument(
        "--levels", default="strict,memory", help="durability levels of our own broker"
    )
    wish = parser.parse_args()
    folder = folder_of_today()
    folder.mkdir(parents=True, exist_ok=True)
    here = subjects(wish.levels.split(","))
    brokers = [by_name("quantumqtt"), by_name("mosquitto")]
    runs: dict[str, _Document] = {}
    syncs: dict[str, str] = {}
    with (folder / "torture.jsonl").open("w", encoding="utf-8") as file:
        about = facts(brokers, [], ["just", "bench", "torture", *sys.argv[1:]])
        file.write(json.dumps(about) + "\n")
        for subject in here:
            syncs[subject.name] = traced(subject)
            for fault in wish.faults.split(","):
                print(f"{subject}, {fault} …", file=sys.stderr, flush=True)
                found = torture(subject, fault, wish.rounds)
                if found is not None:
                    runs[f"{subject}, {fault}"] = found
                    record = {"broker": subject.name, "syncs": syncs[subject.name], **found}
                    file.write(json.dumps(record) + "\n")
                    file.flush()
    if runs:
        (folder / "torture.md").write_text(table(runs, syncs), "utf-8")
        print(table(runs, syncs))
    return 0 if runs else 1


if __name__ == "__main__":
    sys.exit(main())
