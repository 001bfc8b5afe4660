"""`quantumqtt serve` as a real process, for tests that hurt it, signal it or talk to it.

The process is ready when `__enter__` returns, and gone when `__exit__` does, whatever happened in
between. Its logs are collected line by line; at the end they are scanned, and an error that the
test did not announce fails it. Waiting is always for a condition, with a deadline.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

READY_DEADLINE_S = 30.0
END_DEADLINE_S = 20.0
PROGRAM = (sys.executable, "-m", "quantumqtt.cli.main")
_SOURCE = Path(__file__).resolve().parents[2] / "src"
# A panic of a native thread is written by the runtime, not by our logs.
_ALARMS = ("panicked at", "Traceback (most recent call last)", "Fatal Python error")


class Lines:
    """Lines of one pipe, read by a thread of its own so that the process never blocks on us."""

    def __init__(self, pipe: IO[str]) -> None:
        self._pipe = pipe
        self._lines: list[str] = []
        self._ended = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def all(self) -> list[str]:
        """The lines so far."""
        with self._changed:
            return list(self._lines)

    def wait_for(self, wanted: Callable[[str], bool], *, deadline_s: float) -> str | None:
        """Wait for a line; None when the pipe ended or the deadline passed without it."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._ended or any(map(wanted, self._lines)), timeout=deadline_s
            )
            return next(filter(wanted, self._lines), None)

    def join(self) -> None:
        """Wait until the other end is closed and everything is read."""
        self._thread.join(END_DEADLINE_S)

    def _read(self) -> None:
        with self._pipe:
            for line in self._pipe:
                with self._changed:
                    self._lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class NodeProcess:
    """One broker process.

    `announced_errors` are parts of error lines that the test provokes on purpose.
    """

    def __init__(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        announced_errors: Sequence[str] = (),
        program: Sequence[str] = PROGRAM,
        admin_unasked: bool = False,
        flight_unasked: bool = False,
        command: str = "serve",
        patience: float = 1.0,
    ) -> None:
        """Plan a process; by default on a free port of loopback, without admin and log service.

        `admin_unasked` and `flight_unasked` leave those to the program's defaults; `command` may be
        `up`, which has the same flags and more; `patience` is for programs that run under a tool
        which slows them.
        """
        self._ready_deadline_s = READY_DEADLINE_S * patience
        self._end_deadline_s = END_DEADLINE_S * patience
        defaults = ["--json", "--log-format", "json"]
        if "--listen" not in arguments:
            defaults += ["--listen", "tcp://127.0.0.1:0"]
        if "--admin" not in arguments and not admin_unasked:
            defaults += ["--admin", "off"]
        if "--flight" not in arguments and not flight_unasked:
            defaults += ["--flight", "off"]
        if not {"--data", "--durability"} & set(arguments):
            # The program's own default is a folder of the working directory.
            defaults += ["--durability", "memory"]
        self._command = [*program, command, *defaults, *arguments]
        self._environment = {**clean_environment(), **(environment or {})}
        self._announced_errors = tuple(announced_errors)
        self._process: subprocess.Popen[str] | None = None
        self._ready: Mapping[str, object] = {}
        self.exit_code: int | None = None

    def __enter__(self) -> Self:
        process = self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        self._output = Lines(process.stdout)
        self._logs = Lines(process.stderr)
        ready = self._output.wait_for(lambda line: True, deadline_s=self._ready_deadline_s)
        if ready is None:
            self.kill()
            raise AssertionError("the broker was not ready; it said:\n" + "\n".join(self.logs()))
        self._ready = json.loads(ready)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.exit_code is None:
            self.stop()
        if kind is None:
            self.scan_logs()

    @property
    def process_id(self) -> int:
        """The id of the process."""
        assert self._process is not None
        return self._process.pid

    @property
    def ready(self) -> Mapping[str, object]:
        """The ready line."""
        return self._ready

    @property
    def urls(self) -> list[str]:
        """Where it listens."""
        listeners = self._ready["listeners"]
        assert isinstance(listeners, list)
        return [str(url) for url in listeners]

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return int(self.urls[0].rpartition(":")[2])

    @property
    def admin_url(self) -> str:
        """Where the admin endpoint is."""
        return str(self._ready["admin"])

    def logs(self) -> list[str]:
        """The lines on standard error so far."""
        return self._logs.all()

    def output(self) -> list[str]:
        """The lines on standard output so far."""
        return self._output.all()

    def wait_log(self, part: str, *, deadline_s: float = END_DEADLINE_S) -> str:
        """Wait for a log line that contains `part`."""
        line = self._logs.wait_for(lambda line: part in line, deadline_s=deadline_s)
        assert line is not None, f"no log line with {part!r} in:\n" + "\n".join(self.logs())
        return line

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.process_id, number)

    def stop(self) -> int:
        """Ask it to end (SIGTERM) and wait; kills it when it does not."""
        assert self._process is not None
        self._process.terminate()
        return self.wait_ended()

    def kill(self) -> int:
        """End it as a power cut would (SIGKILL)."""
        assert self._process is not None
        self._process.kill()
        return self.wait_ended()

    def wait_ended(self) -> int:
        """Wait for the end and return the exit code; negative is the signal that ended it."""
        assert self._process is not None
        try:
            self.exit_code = self._process.wait(self._end_deadline_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self.exit_code = self._process.wait(self._end_deadline_s)
            raise AssertionError("the broker did not end in time") from None
        finally:
            self._output.join()
            self._logs.join()
        return self.exit_code

    def scan_logs(self) -> None:
        """Fail on every error line that was not announced."""
        alarming = [
            line
            for line in self.logs()
            if _is_alarming(line) and not any(part in line for part in self._announced_errors)
        ]
        assert not alarming, "errors nobody announced:\n" + "\n".join(alarming)


def _is_alarming(line: str) -> bool:
    try:
        record = json.loads(line)
    except ValueError:
        return any(alarm in line for alarm in _ALARMS)
    return isinstance(record, dict) and record.get("level") in {"error", "critical"}


def clean_environment() -> dict[str, str]:
    """Our environment without settings of a broker, and with this tree's package first."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("QUANTUMQTT_")}
    paths = [str(_SOURCE), *filter(None, kept.get("PYTHONPATH", "").split(os.pathsep))]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths)}
