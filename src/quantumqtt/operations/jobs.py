"""A job beside the broker: a child process that is watched, started again, and never trusted.

Theory of operation. The job is a program that prints one JSON object per line about what it has
done and ends in order when it gets SIGTERM, or when its standard input ends. It runs in a session
of its own: a Ctrl-C in the terminal reaches only us, and we end it before the log it reads is gone.
Should we be killed, its input ends, and so does it. When it dies it is started again, after a pause
that doubles up to a minute and begins anew with the first sign of work; nothing it does or leaves
undone reaches the broker. Its complaints are kept in a short row, of which the last one is logged.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

JobState = Literal["starting", "working", "pausing", "stopped"]

STOP_S_MAX: Final = 30.0
_WORDS_KEPT: Final = 40
_LINE_BYTES_MAX: Final = 1 << 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """What is known of a job at a moment.

    Attributes:
        ends: By partition, one past the last offset that it is done with; empty when it has not
            said so yet.
        lag: Rows it had not done when it last said something; None before that.
        rows_per_s: Of its latest batch.
        batch_s: Of its latest batch.
        rows_total: Since we started, over all its lives.
        why: What it complained of when it last died.
    """

    name: str
    state: JobState = "starting"
    ends: Mapping[int, int] = field(default_factory=dict)
    lag: int | None = None
    rows_per_s: float = 0.0
    batch_s: float = 0.0
    rows_total: int = 0
    batches_total: int = 0
    restarts_total: int = 0
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """How long to wait before the next life: doubling, from the first to the longest."""

    first_s: float = 1.0
    longest_s: float = 60.0

    def pause_s(self, deaths: int) -> float:
        """Plan the pause after so many deaths in a row, the first being 1."""
        return min(self.longest_s, self.first_s * 2.0 ** min(deaths - 1, 30))


class ChildJob:
    """Keeps one child process alive, and tells what it says."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        on_report: Callable[[JobReport], None],
        environment: Mapping[str, str] | None = None,
        pauses: Pauses | None = None,
        stop_s_max: float = STOP_S_MAX,
    ) -> None:
        """Remember what to run; `on_report` is called on the loop whenever the report changes."""
        self._command = tuple(command)
        self._on_report = on_report
        self._environment = dict(os.environ if environment is None else environment)
        self._pauses = pauses or Pauses()
        self._stop_s_max = stop_s_max
        self._report = JobReport(name=name)
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop_wanted = asyncio.Event()
        self._deaths = 0

    @property
    def report(self) -> JobReport:
        """What is known now; may be read from any thread."""
        return self._report

    @property
    def process_id(self) -> int | None:
        """The process of this life."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Begin its first life, on the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._serve(), name="child-job")

    async def stop(self) -> None:
        """Ask it to end, wait, and end it for good if it does not."""
        self._stop_wanted.set()
        if self._task is None:
            return
        self._signal(signal.SIGTERM)
        done, _ = await asyncio.wait([self._task], timeout=self._stop_s_max)
        if not done:
            _log.warning(
                "a job did not end in time and is killed", extra={"job": self._report.name}
            )
            self.kill()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    def kill(self) -> None:
        """End it at once, with what it has started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _serve(self) -> None:
        try:
            while not self._stop_wanted.is_set():
                self._change(state="starting")
                why = await self._live()
                if self._stop_wanted.is_set():
                    break
                self._deaths += 1
                pause_s = self._pauses.pause_s(self._deaths)
                self._change(
                    state="pausing", restarts_total=self._report.restarts_total + 1, why=why
                )
                _log.warning(
                    "a job has died and is started again",
                    extra={"job": self._report.name, "why": why, "pause_s": pause_s},
                )
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop_wanted.wait(), pause_s)
        finally:
            self.kill()
            self._change(state="stopped")

    async def _live(self) -> str:
        """Run one life to its end; returns why it ended."""
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
                limit=_LINE_BYTES_MAX,
            )
        except OSError as error:
            return f"{self._command[0]} cannot be started: {error.strerror or error}"
        assert process.stdout is not None, "it was asked for"
        assert process.stderr is not None, "it was asked for"
        if self._stop_wanted.is_set():
            # `stop` came while there was no process that it could have told.
            self._signal(signal.SIGTERM)
        words: deque[str] = deque(maxlen=_WORDS_KEPT)
        reading = asyncio.gather(
            self._read(process.stdout, self._take), self._read(process.stderr, words.append)
        )
        try:
            await _ended(process.pid)
        finally:
            # What it has started goes with it. Before the pipes: children may hold them open.
            self.kill()
            await reading
            code = await process.wait()
            self._process = None
        return _complaint(words) or f"it ended with exit code {code}"

    async def _read(self, pipe: asyncio.StreamReader, take: Callable[[str], None]) -> None:
        while True:
            try:
                line = await pipe.readline()
            except ValueError:
                continue  # longer than anything it has to say; the reader has dropped it
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            _log.debug("a job says", extra={"job": self._report.name, "said": text})
            take(text)

    def _take(self, line: str) -> None:
        try:
            said = json.loads(line)
            ends = {int(number): int(end) for number, end in said["offsets"].items()}
            lag, rows = int(said["lag"]), int(said.get("rows", 0))
            rows_per_s, batch_s = float(said.get("rows_per_s", 0)), float(said.get("batch_s", 0))
        except (AttributeError, KeyError, TypeError, ValueError):
            return  # not a report
        if rows:
            self._deaths = 0
        self._change(
            state="working" if said.get("running", True) else "starting",
            ends=ends,
            lag=lag,
            rows_per_s=rows_per_s,
            batch_s=batch_s,
            rows_total=self._report.rows_total + rows,
            batches_total=self._report.batches_total + (1 if "batch" in said else 0),
        )

    def _change(self, **fields: object) -> None:
        changed = replace(self._report, **fields)  # type: ignore[arg-type]
        if changed != self._report:
            self._report = changed
            self._on_report(changed)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


async def _ended(process_id: int) -> None:
    """Wait until a child has ended, whoever still holds its pipes."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    try:
        descriptor = os.pidfd_open(process_id)
    except ProcessLookupError:
        return
    try:
        loop.add_reader(descriptor, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _complaint(words: Sequence[str]) -> str | None:
    """Find the last complaint among its words: its `error:` with the remedy, or the last line."""
    told = [word.strip() for word in words if word.strip()]
    for at in range(len(told) - 1, -1, -1):
        if told[at].startswith("error: "):
            remedy = [word for word in told[at + 1 :] if word.startswith("remedy: ")][:1]
            return "; ".join([told[at].removeprefix("error: "), *remedy])[:1_000]
    return told[-1][:1_000] if told else None
