"""The command line in one process: words, exit codes, suggestions."""

import json
from pathlib import Path

import pytest

from quantumqtt import __version__
from quantumqtt.cli.main import app
from quantumqtt.cli.reference import render

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        app(list(arguments), prog_name="quantumqtt")
    code = ended.value.code
    assert isinstance(code, int)
    return code


def test_the_reference_is_what_the_commands_say() -> None:
    assert PAGE.read_text("utf-8") == render(), (
        "run `python -m quantumqtt.cli.reference > docs/reference/cli.md`"
    )


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (("serv",), "serve"),
        (("check-confg", "x"), "check-config"),
        (("serve", "--lisen", "tcp://127.0.0.1:1"), "--listen"),
        (("serve", "--durabilty", "memory"), "--durability"),
        (("serve", "--alow-anonymous"), "--allow-anonymous"),
    ],
)
def test_a_slip_is_met_with_the_nearest_word(
    arguments: tuple[str, ...], suggestion: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert suggestion in captured.err.splitlines()[-1]


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    listed = capsys.readouterr().out
    assert all(command in listed for command in ("serve", "check-config", "version"))


def test_version_tells_the_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("version", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["quantumqtt"] == __version__
    assert facts["native_version"]
    assert run("version") == 0
    assert f"quantumqtt {__version__}" in capsys.readouterr().out.splitlines()


def test_a_good_file_is_ok(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('listen = ["tcp://127.0.0.1:1883"]\n')
    assert run("check-config", str(file)) == 0
    assert capsys.readouterr().out == f"{file}: ok\n"


@pytest.mark.requirement("OPS-13")
def test_a_bad_file_is_reported_line_by_line_with_remedies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("shard = 2\nadmin = 'nowhere'\n")
    assert run("check-config", str(file)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        f'error: {file}:2: admin = "nowhere": the port is missing',
        "  remedy: write nowhere:8080; 0 takes a free port",
        f"error: {file}:1: shard: unknown key",
        "  remedy: did you mean shards?",
    ]


def test_the_judgement_of_a_file_can_be_read_by_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("shards = 0\n")
    assert run("check-config", "--json", str(file)) == 2
    assert json.loads(capsys.readouterr().out) == {
        "file": str(file),
        "ok": False,
        "notes": [],
        "problems": [
            {
                "problem": f"{file}:1: shards = 0: must be at least 1",
                "remedy": "choose a whole number from 1 to 64",
            }
        ],
    }
    file.write_text("shards = 1\n")
    assert run("check-config", "--json", str(file)) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


def test_the_environment_does_not_change_the_judgement_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUANTUMQTT_SHARDS", "0")
    file = tmp_path / "broker.toml"
    file.write_text("")
    assert run("check-config", str(file)) == 0
