"""The log service and `pipeline run land` as processes, for tests that hurt them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tests.harness.ports import free_port

HOUSE = Path(__file__).resolve().parents[2]
LAND_S_MAX = 240.0


class Service:
    """The stand-in log service as a process that can be killed and comes back on its port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[str] | None = None
        self.readers: list[Landing] = []

    @property
    def endpoint(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def start(self) -> None:
        words = [sys.executable, "-m", "tests.harness.stand_in_log"]
        words += ["--folder", str(self.folder), "--port", str(self.port)]
        self._process = subprocess.Popen(words, cwd=HOUSE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith("grpc://")
        self._process.stdout.close()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class LogPlaceForTests(Protocol):
    """A log service that landings read, and that ends what they leave running."""

    readers: "list[Landing]"

    @property
    def endpoint(self) -> str:
        """Where it is."""


class Landing:
    """One run of `quantumqtt pipeline run land`, in a session of its own."""

    def __init__(
        self,
        service: LogPlaceForTests,
        home: Path,
        *words: str,
        python: str = sys.executable,
        master: str = "local[2]",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        command = [python, "-m", "quantumqtt", "pipeline", "run", "land", "--json"]
        command += ["--endpoint", service.endpoint, "--master", master]
        command += ["--table", str(home / "table"), "--checkpoint", str(home / "checkpoint")]
        self.errors = home / "land.stderr"
        with self.errors.open("a") as errors:
            self.process = subprocess.Popen(
                [*command, *words],
                cwd=home,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        service.readers.append(self)

    def next_batch(self) -> dict[str, object] | None:
        """Wait for the next batch to be reported; None at the end."""
        assert self.process.stdout is not None
        while (line := self.process.stdout.readline()).startswith("{"):
            said: dict[str, object] = json.loads(line)
            if "batch" in said:
                return said
        return None

    def batches(self) -> list[dict[str, object]]:
        """Wait for the end; give every batch that was reported."""
        return list(iter(self.next_batch, None))

    def kill_group(self) -> None:
        """End driver, JVM and workers at once, as a power cut does."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.finish()

    def kill(self, part: str, number: int = signal.SIGKILL) -> None:
        """Kill one part: the driver, its JVM, or its Python workers."""
        found = descendants(self.process.pid)
        chosen = {
            "driver": [self.process.pid],
            "jvm": [pid for pid, words in found.items() if "java" in words.split("\0")[0]],
            "workers": [pid for pid, words in found.items() if "pyspark.daemon" in words],
        }[part]
        for pid in chosen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def finish(self) -> int:
        """Wait for the end; whatever is left of its session goes with it."""
        try:
            return self.process.wait(timeout=LAND_S_MAX)
        finally:
            self.end()

    def end(self) -> None:
        """End whatever is left of the session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def descendants(pid: int) -> dict[int, str]:
    """List the processes below one, with their command lines."""
    children: dict[int, list[int]] = {}
    words: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            words[int(entry.name)] = (entry / "cmdline").read_text()
        except (OSError, ValueError):
            continue
        children.setdefault(parent, []).append(int(entry.name))
    below: dict[int, str] = {}
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            below[child] = words.get(child, "")
            waiting.append(child)
    return below
