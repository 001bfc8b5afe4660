"""Runs the blocks of a tutorial as they stand, in a network of their own so that ports are free.

    python -m tests.harness.tutorial docs/guides/ten-minutes.md FOLDER

prints one JSON object per block: what it was, how it ended, what it said. A block runs when the
line before it says `<!-- run -->`; one of `<!-- run: background -->` is started, awaited until it
says `ready`, and interrupted at the end.
"""

import array
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.harness.waiting import wait_until

BLOCK: Final = re.compile(r"<!-- run(: background)? -->\n```(sh|python)\n(.*?)```", re.DOTALL)
BLOCK_S_MAX: Final = 400.0
METRICS: Final = "http://127.0.0.1:8080/metrics"
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _UP = 0x8913, 0x8914, 1


@dataclass(frozen=True)
class Block:
    background: bool
    language: str
    text: str


def blocks(page: str) -> Iterator[Block]:
    for found in BLOCK.finditer(page):
        yield Block(found.group(1) is not None, found.group(2), found.group(3))


def bring_loopback_up() -> None:
    """A new network has a loopback that is down."""
    with socket.socket() as any_socket:
        request = array.array("B", b"lo".ljust(16, b"\0") + bytes(16))
        fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request)
        flags = int.from_bytes(request[16:18], sys.byteorder) | _UP
        request[16:18] = array.array("B", flags.to_bytes(2, sys.byteorder))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def has_landed() -> bool:
    with urllib.request.urlopen(METRICS, timeout=10) as answer:
        told = answer.read().decode()
    found = re.search(r'pipeline_batches_total\{job="land"\} (\d+)', told)
    return found is not None and int(found.group(1)) > 0


def environment(folder: Path) -> dict[str, str]:
    """The program under its name, and its Python as `python3`."""
    programs = folder / "bin"
    programs.mkdir()
    program = programs / "quantumqtt"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m quantumqtt "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}


def main() -> None:
    page, folder = Path(sys.argv[1]).read_text("utf-8"), Path(sys.argv[2])
    bring_loopback_up()
    known = environment(folder)
    running: list[tuple[Block, subprocess.Popen[str]]] = []
    for block in blocks(page):
        if block.background:
            running.append((block, start(block, folder, known)))
            wait_until(has_landed, what="something has landed", deadline_s=BLOCK_S_MAX)
            continue
        shell = ["bash", "-euo", "pipefail", "-c", block.text]
        words = shell if block.language == "sh" else [sys.executable, "-c", block.text]
        ran = subprocess.run(
            words,
            cwd=folder,
            env=known,
            capture_output=True,
            text=True,
            timeout=BLOCK_S_MAX,
            check=False,
        )
        tell(block, ran.returncode, ran.stdout, ran.stderr)
    for block, process in running:
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=BLOCK_S_MAX)
        tell(block, process.returncode, said, (folder / "background.txt").read_text())


def start(block: Block, folder: Path, known: dict[str, str]) -> subprocess.Popen[str]:
    with (folder / "background.txt").open("w") as complaints:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {block.text}"],
            cwd=folder,
            env=known,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
        )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready ")
    return process


def tell(block: Block, code: int, said: str, complaints: str) -> None:
    told = {"text": block.text, "code": code, "said": said, "complaints": complaints[-4_000:]}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
