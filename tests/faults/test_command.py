"""The command line of torture: what it refuses, what it prints, how it ends."""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from quantumqtt.cli.crash.disk import mount
from quantumqtt.cli.main import app
from quantumqtt.cli.torture import TortureCode
from quantumqtt.errors import StorageError
from tests.harness.crash_runs import journal_broker
from tests.harness.waiting import wait_until

DEADLINE_S = 30.0
SMALL = ("--rounds", "1", "--rate", "200", "--traffic", "0.4", "--clients", "6")
QUICK = (*SMALL, "--settle", "0.7")


def run(*arguments: str) -> tuple[int, str, str]:
    ran = CliRunner().invoke(app, ["torture", *arguments])
    return ran.exit_code, ran.stdout, ran.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--cmd", "true"), "{port}"),
        (("--cmd", "no-such-broker-here {port}"), "no-such-broker-here"),
        (("--cmd", "'unbalanced {port}"), "quotes"),
        (("--cmd", "true {port}", "--fault", "disk-full", "--disk-mb", "1"), "--disk-mb"),
        (("--cmd", "true {port}", "--trace-syncs"), "--fault none"),
        (("--cmd", "true {port}", "--config", "no/such/file"), "no/such/file"),
    ],
)
def test_what_cannot_work_is_refused_with_a_remedy(
    arguments: tuple[str, ...], complaint: str
) -> None:
    code, _, said = run(*arguments)
    assert code == TortureCode.USAGE
    assert complaint in said
    assert "remedy:" in said


def test_a_config_without_its_place_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("listener {port}\n", "utf-8")
    code, _, said = run("--cmd", "true", "--config", str(file))
    assert (code, "{config}" in said) == (TortureCode.USAGE, True)


def test_a_directory_in_use_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("mine", "utf-8")
    code, _, said = run("--cmd", "true {port}", "--keep", str(tmp_path))
    assert (code, "not empty" in said) == (TortureCode.USAGE, True)
    assert [path.name for path in tmp_path.iterdir()] == ["something"]


def test_a_broker_that_does_not_start_is_absent() -> None:
    code, _, said = run("--cmd", "false {port}", *QUICK)
    assert code == TortureCode.ABSENT
    assert "exit code 1" in said


def test_peace_ends_with_zero_and_tells_how_to_do_it_again() -> None:
    code, printed, _ = run("--cmd", journal_broker(), "--fault", "none", *SMALL, "--seed", "5")
    assert code == TortureCode.OK, printed
    again = next(line for line in printed.splitlines() if line.startswith("again: "))
    for words in ("quantumqtt torture --cmd", "--fault none", "--rounds 1", "--seed 5"):
        assert words in again
    assert "session present is true" in printed


def test_a_loss_ends_with_one_and_each_message_by_name(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    command = ("--cmd", journal_broker("forgets"), "--fault", "none", "--keep", str(kept))
    code, printed, _ = run(*command, *QUICK, "--json")
    assert code == TortureCode.VIOLATED
    found = json.loads(printed)
    lost = [one for one in found["violations"] if one["property"] == "delivered"]
    assert lost
    assert len(lost) == found["properties"]["delivered"]["violated"]
    for one in lost:
        publisher, _, number = one["message"].partition(":")
        assert publisher.startswith("pub")
        assert number.isdigit()
        assert one["topic"].startswith("torture/t/")
        assert one["acknowledged_at"].endswith("Z")
    assert (kept / "data" / "journal").exists()
    assert (kept / "broker.log").exists()


def test_a_loss_is_printed_line_by_line_for_people() -> None:
    code, printed, _ = run("--cmd", journal_broker("forgets"), "--fault", "none", *QUICK)
    assert code == TortureCode.VIOLATED
    assert "lost, acknowledged 20" in printed
    assert "acknowledged publishes delivered" in printed


def test_a_termination_takes_the_broker_along(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    command = ("--cmd", journal_broker(), "--fault", "none", "--rounds", "50", "--keep", str(kept))
    torture = subprocess.Popen(
        (sys.executable, "-m", "quantumqtt", "torture", *command),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    journal = kept / "data" / "journal"
    wait_until(lambda: journal.exists() and journal.stat().st_size > 0, what="journal")
    torture.terminate()
    assert torture.wait(DEADLINE_S) == TortureCode.INTERRUPTED
    assert not [line for line in command_lines() if str(kept) in line]


def command_lines() -> list[str]:
    """What runs on this machine now, as far as we may see."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


def test_a_mount_that_is_refused_says_how_to_be_allowed(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot mount") as refused:
        mount("nothing", tmp_path, "no-such-file-system", "")
    assert refused.value.hint is not None
    assert "unshare" in refused.value.hint
