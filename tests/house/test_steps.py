"""A step leaves a log, shows why it failed, and never leaves its children behind."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools.steps import Progress, StepFailed, Stop


def test_output_of_a_good_step_is_returned_and_kept_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = Progress(tmp_path / "logs").run("greet", ["echo", "hello"], folder=tmp_path)
    assert said == "hello\n"
    assert (tmp_path / "logs" / "greet.txt").read_text(encoding="utf-8") == "hello\n"
    assert "hello" not in capsys.readouterr().out


def test_failed_step_shows_its_output_and_carries_its_hint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StepFailed) as failed:
        Progress(tmp_path).run("break", ["sh", "-c", "echo why; exit 3"], folder=tmp_path, hint="h")
    assert failed.value.hint == "h"
    assert "ended with 3" in str(failed.value)
    assert "why" in capsys.readouterr().out


def test_absent_command_is_a_failed_step(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="no-such-program"):
        Progress(tmp_path).run("absent", ["no-such-program"], folder=tmp_path)


def test_steps_have_no_standard_input(tmp_path: Path) -> None:
    assert Progress(tmp_path).run("read", ["sh", "-c", "cat; echo end"], folder=tmp_path) == "end\n"


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_stopping_the_runner_ends_the_whole_group_of_its_step(
    tmp_path: Path, ending: signal.Signals
) -> None:
    # The step and its child hold the writing end of a pipe; its end of file means both are gone.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    script = tmp_path / "step.sh"
    script.write_text(f"exec 3>'{pipe}'\nsleep 300 &\necho $$ >&3\nwait\n", encoding="utf-8")
    program = (
        "from pathlib import Path; from tools.steps import Progress, stop_on_termination;"
        f" stop_on_termination(); Progress(Path({str(tmp_path)!r})).run("
        f"'sleep', ['sh', {str(script)!r}], folder=Path({str(tmp_path)!r}))"
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with pipe.open(encoding="utf-8") as held:
        group = int(held.readline())
        runner.send_signal(ending)
        try:
            assert runner.wait(30) != 0
            assert select.select([held], [], [], 30)[0], "the step outlived its runner"
            assert held.read() == ""
        except BaseException:
            # A red test leaves no orphan either; the number is that of our own step.
            os.killpg(group, signal.SIGKILL)
            raise


def test_signal_while_a_step_starts_waits_until_the_step_is_owned() -> None:
    stop = Stop()
    stop.hold()
    stop.on_signal(signal.SIGTERM, None)
    with pytest.raises(SystemExit) as ended:
        stop.release()
    assert ended.value.code == 128 + signal.SIGTERM
    stop.release()


def test_signal_at_any_other_time_unwinds_at_once() -> None:
    with pytest.raises(KeyboardInterrupt):
        Stop().on_signal(signal.SIGINT, None)
