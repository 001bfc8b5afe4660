"""The program: files on the command line, SIGHUP, `passwd`, `ctl`, `check-config`."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.authorisation.conftest import Files
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.node_process import PROGRAM, NodeProcess, clean_environment
from tests.harness.packets import Version
from tests.harness.ports import LOOPBACK


def run(*arguments: str, told: bytes = b"") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*PROGRAM, *arguments],
        input=told.decode(),
        capture_output=True,
        text=True,
        env=clean_environment(),
        check=False,
        timeout=60,
    )
    return done


def peer_of(process: NodeProcess, client_id: str, user: str, password: bytes) -> MqttPeer:
    peer = MqttPeer(LOOPBACK, process.port, Version.V5)
    peer.open(client_id, user_name=user, password=password)
    return peer


@pytest.mark.requirement("SEC-17", "SEC-21")
def test_a_day_with_files(files: Files, tmp_path: Path) -> None:
    assert run("passwd", "-b", str(files.passwords), "ada", "first-secret").returncode == 0
    assert run("passwd", str(files.passwords), "bob", told=b"second-secret\n").returncode == 0
    files.write_rules("pattern readwrite %u/#\n")
    names = ("--password-file", str(files.passwords), "--acl-file", str(files.rules))
    quiet = ("--no-allow-anonymous", "--log-level", "debug", "--admin", f"{LOOPBACK}:0")
    announced = ("configuration not reloaded",)
    with NodeProcess(*names, *quiet, announced_errors=announced) as process:
        with (
            peer_of(process, "a", "ada", b"first-secret") as ada,
            peer_of(process, "b", "bob", b"second-secret") as bob,
        ):
            assert ada.subscribe("ada/#", "bob/#") == (0, 0x87)
            files.write_rules("topic\n")
            process.signal(signal.SIGHUP)
            line = process.wait_log("configuration not reloaded")
            assert f"{files.rules}:1: a topic is missing" in line
            assert "remedy" in line
            assert run("passwd", "-D", str(files.passwords), "bob").returncode == 0
            files.write_rules("pattern readwrite %u/#\nuser ada\ntopic deny ada/secret/#\n")
            process.signal(signal.SIGHUP)
            bob.expect_end(0x87)
            assert ada.subscribe("ada/secret/x", "ada/x") == (0x87, 0)
            question = ("--client", "a", "--user", "ada", "--topic", "ada/secret/x")
            admin = process.admin_url.removeprefix("http://")
            online = run("ctl", "why-denied", *question, "--admin", admin, "--json")
            answer = json.loads(online.stdout)
            assert answer["place"] == f"{files.rules}:3"
            assert answer["allowed"] is False
            config = tmp_path / "q.toml"
            config.write_text(f'acl_file = "{files.rules}"\n', encoding="utf-8")
            for source in (("--config", str(config)), ("--acl-file", str(files.rules))):
                offline = run("ctl", "why-denied", *question, *source)
                assert offline.stdout == f"denied by {files.rules}:3: topic deny ada/secret/#\n"
        assert not [line for line in process.logs() if 'secret"' in line or "-secret" in line]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("topic reed a\n", "rules:1: 'reed' is no kind of access"), (None, "cannot be read")],
)
def test_start_with_a_broken_file_is_exit_2(files: Files, text: str | None, complaint: str) -> None:
    if text is not None:
        files.write_rules(text)
    for command in ((), ("--check-config",)):
        done = run(
            "serve",
            "--listen",
            "tcp://127.0.0.1:0",
            "--admin",
            "off",
            "--acl-file",
            str(files.rules),
            *command,
        )
        assert done.returncode == 2
        assert complaint in done.stderr
        assert "remedy:" in done.stderr


def test_check_config_reads_users_and_rules(files: Files, tmp_path: Path) -> None:
    config = tmp_path / "q.toml"
    config.write_text(f'acl_file = "{files.rules}"\n', encoding="utf-8")
    files.write_rules("topic read a\n")
    assert run("check-config", str(config)).returncode == 0
    files.write_rules("topic read a/#/b\n")
    done = run("check-config", str(config), "--json")
    assert done.returncode == 2
    assert f"{files.rules}:1" in json.loads(done.stdout)["problems"][0]["problem"]


def test_mosquitto_conf_starts_a_broker_and_names_what_it_left_out(
    files: Files, tmp_path: Path
) -> None:
    files.write_users("ada")
    conf = tmp_path / "mosquitto.conf"
    conf.write_text(
        f"pid_file /run/x\nlistener 0 127.0.0.1\npassword_file {files.passwords}\n",
        encoding="utf-8",
    )
    checked = run("check-config", str(conf))
    assert checked.returncode == 0
    assert f"note: {conf}:1: pid_file: ignored" in checked.stdout
    with NodeProcess("--mosquitto-conf", str(conf)) as process:
        process.wait_log("an option of mosquitto.conf is left out")
        with peer_of(process, "a", "ada", b"ada") as ada:
            ada.ping()


def test_passwd_says_no_in_words(files: Files) -> None:
    file = str(files.passwords)
    for arguments, complaint in (
        (("passwd", file), "a user is missing"),
        (("passwd", "-b", file, "ada"), "belong together"),
        (("passwd", "-b", file, "a:b", "x"), "no colon"),
        (("passwd", "-b", file, "ada", ""), "1 to 65535 bytes"),
        (("passwd", "-D", file, "ada"), "cannot be read"),
        (("passwd", "-H", "md5", "-b", file, "ada", "x"), "is no hash"),
        (("passwd", "-I", "0", "-b", file, "ada", "x"), "out of range"),
        (("passwd", "-U", file, "ada"), "whole file"),
    ):
        done = run(*arguments)
        assert (done.returncode, complaint in done.stderr) == (2, True), (arguments, done.stderr)
    assert not files.passwords.exists()
    files.passwords.write_text("ada:plain\n", encoding="utf-8")
    assert run("passwd", "-U", file).returncode == 0
    assert "plain" not in files.passwords.read_text(encoding="utf-8")
    assert run("passwd", "-D", file, "bob").returncode == 2
