"""Named steps with visible progress: what runs now, how long it took, and why it failed.

A step is one command. Its output goes to a log file and is shown only when the step fails, so a
green run reads as a list and a red one ends with the part that matters.

Rules:
- A command runs in its own process group. When this process is interrupted or told to stop, the
  whole group is ended and waited for, so no compiler keeps writing behind the next run's back.
- Commands get no standard input: nothing here may wait for a person.
- Only the standard library is used, because the set-up runs before anything is installed.
"""

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

NAME_WIDTH = 34
SHOWN_LINES_MAX = 120
GROUP_END_S = 10.0


class StepFailed(Exception):
    """A step ended with an error; `hint` says what a person can do about it."""

    def __init__(self, name: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason
        self.hint = hint


class Progress:
    """Shows steps on a stream, and keeps the output of each in `logs`."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._live = sys.stdout.isatty()

    def say(self, name: str, outcome: str) -> None:
        """Print one finished line."""
        start = "\r\033[K" if self._live else ""
        print(f"{start}  {name:<{NAME_WIDTH}} {outcome}", flush=True)

    @contextmanager
    def _ticking(self, name: str) -> Iterator[None]:
        """Show that something is under way: a clock on a terminal, one line elsewhere."""
        if not self._live:
            print(f"  {name} …", flush=True)
            yield
            return
        ended = threading.Event()
        began = time.monotonic()

        def tick() -> None:
            while not ended.wait(1.0):
                print(f"\r\033[K  {name:<{NAME_WIDTH}} … {elapsed(began)}", end="", flush=True)

        print(f"  {name:<{NAME_WIDTH}} …", end="", flush=True)
        ticker = threading.Thread(target=tick, daemon=True)
        ticker.start()
        try:
            yield
        finally:
            ended.set()
            ticker.join()

    def run(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        hint: str | None = None,
    ) -> str:
        """Run one command as a step and return its output.

        Raises:
            StepFailed: The command is missing or ended with an error; its output has been shown.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"{name.replace(' ', '-').replace('/', '-')}.txt"
        words = [str(word) for word in command]
        began = time.monotonic()
        with self._ticking(name):
            try:
                status = run_group(words, log=log, folder=folder, environment=environment)
            except FileNotFoundError as error:
                raise StepFailed(name, f"cannot run {error.filename}", hint=hint) from error
        output = log.read_text(encoding="utf-8", errors="replace")
        if status != 0:
            self.say(name, f"FAILED after {elapsed(began)}")
            self._show_failure(words, log, output)
            raise StepFailed(name, f"`{shlex.join(words)}` ended with {status}", hint=hint)
        self.say(name, elapsed(began))
        return output

    def _show_failure(self, words: Sequence[str], log: Path, output: str) -> None:
        lines = output.splitlines()
        print(f"    $ {shlex.join(words)}")
        if len(lines) > SHOWN_LINES_MAX:
            print(f"    [{len(lines) - SHOWN_LINES_MAX} lines before this in {log}]")
        for line in lines[-SHOWN_LINES_MAX:]:
            print(f"    {line}")
        sys.stdout.flush()


def run_group(
    words: Sequence[str], *, log: Path, folder: Path, environment: Mapping[str, str] | None
) -> int:
    """Run a command in its own process group, output into `log`; end the group if we must stop."""
    with log.open("wb") as sink:
        # Between the start of the command and the `try` a signal would leave it behind unowned.
        STOP.hold()
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )
        except BaseException:
            STOP.release()
            raise
        try:
            STOP.release()
            return process.wait()
        except BaseException:
            end_group(process)
            raise


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Ask the process group to end, then insist."""
    for ending in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, ending)
        except ProcessLookupError:
            return
        try:
            process.wait(GROUP_END_S)
        except subprocess.TimeoutExpired:
            continue
        return


def elapsed(began: float) -> str:
    """Format the time since `began`, as people read it."""
    seconds = time.monotonic() - began
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


class Stop:
    """Turns signals into exceptions, except for the moment in which that would lose a process."""

    def __init__(self) -> None:
        self._held = False
        self._pending: int | None = None

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Unwind, or remember to."""
        if self._held:
            self._pending = number
        else:
            self._unwind(number)

    def hold(self) -> None:
        """Remember signals from here on."""
        self._held = True

    def release(self) -> None:
        """Unwind if a signal came meanwhile."""
        self._held = False
        number, self._pending = self._pending, None
        if number is not None:
            self._unwind(number)

    def _unwind(self, number: int) -> None:
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)


STOP = Stop()


def stop_on_termination() -> None:
    """Let SIGTERM and SIGHUP unwind like Ctrl-C, so that running steps are ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, STOP.on_signal)
