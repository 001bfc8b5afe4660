"""Jobs beside the broker: started again when they die, ended in order, never believed blindly."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from quantumqtt.operations import ChildJob, JobReport, Pauses
from tests.harness.waiting import DEADLINE_S, wait_until

SOON = Pauses(first_s=0.01, longest_s=0.02)
SAYS = """
import json, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
def say(**fields):
    print(json.dumps(fields), flush=True)
say(running=False, lag=30, offsets={"0": 70})
say(running=True, lag=30, offsets={"0": 70})
say(batch=0, rows=20, rows_per_s=10.5, batch_s=2.0, lag=10, offsets={"0": 90, "1": 0})
"""
UNTIL_TOLD = "signal.sigwait([signal.SIGTERM])\n"


class Watched:
    """A job, and every report of it."""

    def __init__(self, *command: str, stop_s_max: float = DEADLINE_S) -> None:
        self.reports: list[JobReport] = []
        self._news = asyncio.Event()
        self.job = ChildJob(
            "land", command, on_report=self._hear, pauses=SOON, stop_s_max=stop_s_max
        )

    def _hear(self, report: JobReport) -> None:
        self.reports.append(report)
        self._news.set()

    async def until(self, wanted: Callable[[JobReport], bool]) -> JobReport:
        """Wait until it has reported something."""
        async with asyncio.timeout(DEADLINE_S):
            while not any(map(wanted, self.reports)):
                self._news.clear()
                await self._news.wait()
        return next(filter(wanted, self.reports))


def of_python(text: str, *, stop_s_max: float = DEADLINE_S) -> Watched:
    """Make a job out of Python text."""
    return Watched(sys.executable, "-c", text, stop_s_max=stop_s_max)


def run(text: str, wanted: Callable[[JobReport], bool]) -> tuple[JobReport, list[JobReport]]:
    """Run a job until it has reported something, stop it, and give that and all reports."""
    watched = of_python(text)

    async def scenario() -> JobReport:
        watched.job.start()
        found = await watched.until(wanted)
        await watched.job.stop()
        return found

    found = asyncio.run(scenario())
    return found, watched.reports


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One that nobody has waited for yet is as dead.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_what_it_says_is_what_is_reported() -> None:
    found, reports = run(SAYS + UNTIL_TOLD, lambda report: report.batches_total == 1)
    assert (found.state, found.lag, found.rows_total) == ("working", 10, 20)
    assert (found.rows_per_s, found.batch_s) == (10.5, 2.0)
    assert found.ends == {0: 90, 1: 0}
    assert [report.state for report in reports[:2]] == ["starting", "working"]
    for begun in reports[:2]:
        assert (begun.lag, begun.rows_total, begun.ends) == (30, 0, {0: 70})
    assert reports[-1].state == "stopped"
    assert reports[-1].restarts_total == 0


def test_nonsense_changes_nothing() -> None:
    nonsense = """
for line in ("", "null", "7", "{", '{"offsets": 7}', '{"offsets": {"a": 1}, "lag": 0}',
             '{"offsets": {}, "lag": "many"}', "x" * 3_000_000):
    print(line)
"""
    _, reports = run(nonsense + SAYS + UNTIL_TOLD, lambda report: report.batches_total == 1)
    states = [report.state for report in reports]
    assert states == ["starting", "working", "working", "stopped"]


def test_one_that_dies_is_started_again_and_its_complaint_is_told() -> None:
    dies = """
import sys
print("a line of Spark's", "error: no such table", "  remedy: name one", "more",
      sep="\\n", file=sys.stderr)
sys.exit(1)
"""
    found, reports = run(SAYS + dies, lambda report: report.restarts_total == 3)
    assert found.state == "pausing"
    assert found.why == "no such table; remedy: name one"
    assert found.rows_total == 60, "what earlier lives have done still counts"
    assert reports[-1].state == "stopped"


def test_a_program_that_is_not_there_is_tried_again() -> None:
    watched = Watched("/nowhere/python")

    async def scenario() -> JobReport:
        watched.job.start()
        found = await watched.until(lambda report: report.restarts_total == 2)
        await watched.job.stop()
        return found

    assert "/nowhere/python cannot be started" in str(asyncio.run(scenario()).why)


def test_pauses_double_up_to_a_bound() -> None:
    pauses = Pauses(first_s=1, longest_s=60)
    assert [pauses.pause_s(deaths) for deaths in (1, 2, 3, 7, 1_000)] == [1, 2, 4, 60, 60]


def test_it_is_asked_to_end_before_it_is_made_to(tmp_path: Path) -> None:
    left = tmp_path / "ended"
    run(
        SAYS + UNTIL_TOLD + f"open({str(left)!r}, 'w').write('in order')",
        lambda report: report.batches_total == 1,
    )
    assert left.read_text() == "in order"


def test_one_that_does_not_listen_is_killed_with_its_children(tmp_path: Path) -> None:
    family = tmp_path / "pids"
    deaf = f"""
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child:
    open({str(family)!r}, "w").write(f"{{os.getpid()}} {{child}}")
    {SAYS.strip().replace(chr(10), chr(10) + "    ")}
while True:
    time.sleep(60)
"""
    watched = of_python(deaf, stop_s_max=0.05)

    async def scenario() -> None:
        watched.job.start()
        await watched.until(lambda report: report.batches_total == 1)
        await watched.job.stop()

    asyncio.run(scenario())
    pids = [int(word) for word in family.read_text().split()]
    wait_until(lambda: not any(map(is_alive, pids)), what="both are gone")
    assert watched.reports[-1].state == "stopped"


def test_a_child_of_its_own_does_not_hold_up_the_next_life(tmp_path: Path) -> None:
    """A JVM outlives its Python for a moment and holds its pipes open."""
    family = tmp_path / "pids"
    leaves_one_behind = f"""
import os, time
if os.fork() == 0:
    open({str(family)!r}, "a").write(f"{{os.getpid()}} ")
    time.sleep(3_600)
while not os.path.exists({str(family)!r}):
    time.sleep(0.001)
os._exit(3)
"""
    found, _ = run(leaves_one_behind, lambda report: report.restarts_total == 1)
    assert found.why == "it ended with exit code 3"
    pids = [int(word) for word in family.read_text().split()]
    wait_until(lambda: not any(map(is_alive, pids)), what="nobody is left behind")


def test_a_kill_from_outside_is_a_death_like_any_other() -> None:
    watched = of_python(SAYS + UNTIL_TOLD)

    async def scenario() -> JobReport:
        watched.job.start()
        await watched.until(lambda report: report.batches_total == 1)
        assert watched.job.process_id is not None
        os.kill(watched.job.process_id, signal.SIGKILL)
        await watched.until(lambda report: report.batches_total == 2)
        await watched.job.stop()
        return watched.reports[-1]

    last = asyncio.run(scenario())
    assert (last.restarts_total, last.rows_total) == (1, 40)
