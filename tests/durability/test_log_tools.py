"""Looking at a log from outside: the commands on a stopped directory, and questions to a broker.

Real brokers write the directories and end by SIGKILL; every command must leave each byte as it was.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from quantumqtt.cli.main import app
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.node_process import NodeProcess
from tests.harness.packets import Key, Version, Will
from tests.harness.ports import LOOPBACK
from tests.harness.waiting import wait_until

LIVES_ON = ((Key.SESSION_EXPIRY, 3600),)
HEADER_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Said:
    stdout: str
    stderr: str


def command(*arguments: str, code: int = 0) -> Said:
    """Run a command in this process; the directories and brokers it looks at are others'."""
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == code, (ran.stdout, ran.stderr, ran.exception)
    return Said(ran.stdout, ran.stderr)


def told(*arguments: str, code: int = 0) -> dict[str, object]:
    document = json.loads(command(*arguments, "--json", code=code).stdout)
    assert isinstance(document, dict)
    return document


def contents(data: Path) -> Mapping[str, tuple[int, bytes]]:
    files = [path for path in data.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def fill(broker: NodeProcess) -> None:
    with MqttPeer(LOOPBACK, broker.port, Version.V5) as sleeper:
        will = Will("wills", b"secret word", qos=1)
        sleeper.open("sleeper", clean=False, will=will, properties=LIVES_ON)
        sleeper.subscribe("t/#", options=1)
        sleeper.leave()
    with MqttPeer(LOOPBACK, broker.port, Version.V5) as publisher:
        publisher.open("publisher", clean=True)
        for number in range(5):
            publisher.publish(f"t/{number}", b"secret word", qos=1)
        publisher.publish("kept", b"x" * 300, qos=1, retain=True)


def damage(data: Path) -> Path:
    """Flip a bit of a record that later ones prove to have been durable."""
    segment = min((data / "wal").glob("*.seg"))
    content = segment.read_bytes()
    # Between batches stand zeros, which mean nothing; records are encrypted and hardly any.
    middle = next(at for at in range(HEADER_BYTES, len(content)) if 0 not in content[at : at + 64])
    with segment.open("r+b") as file:
        file.seek(middle)
        file.write(bytes([content[middle] ^ 0x10]))
    return segment


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[int, str]]:
    """A directory a broker was killed on, and the digest it had told just before."""
    data = tmp_path_factory.mktemp("log") / "data"
    with NodeProcess("--data", str(data), "--admin", "127.0.0.1:0") as broker:
        fill(broker)
        admin = broker.admin_url.removeprefix("http://")
        live = told("ctl", "digest", "--admin", admin)
        index, digest = live["index"], live["digest"]
        assert isinstance(index, int)
        assert isinstance(digest, str)
        broker.kill()
    return data, (index, digest)


def test_a_whole_log_is_verified_counted_and_dumped_and_no_byte_changes(
    stopped: tuple[Path, tuple[int, str]],
) -> None:
    data, _ = stopped
    before = contents(data)
    found = told("log", "verify", str(data))
    assert (found["sound"], found["damages"], found["clean"]) == (True, [], False)
    assert command("log", "verify", str(data)).stdout.startswith("whole: ")
    counted = told("log", "stats", str(data))
    commands = counted["commands"]
    assert isinstance(commands, dict)
    assert commands["Publish"] == 6
    assert commands["Subscribe"] == 1
    assert counted["unreadable"] == 0
    assert "Publish" in command("log", "stats", str(data)).stdout
    text = command("log", "dump", str(data)).stdout
    assert "topic=t/4" in text
    assert "payload_bytes=11" in text
    assert "secret word" not in text
    assert "secret word" in command("log", "dump", str(data), "--payloads").stdout
    assert contents(data) == before


def test_a_dump_can_be_narrowed(stopped: tuple[Path, tuple[int, str]]) -> None:
    data, (last, _) = stopped
    lines = command("log", "dump", str(data), "--from", "2", "--to", "3", "--json").stdout
    records = [json.loads(line) for line in lines.splitlines()]
    indexes = [entry["index"] for record in records for entry in record["entries"]]
    assert {2, 3} <= set(indexes)
    assert max(indexes) <= last
    limited = command("log", "dump", str(data), "--limit", "2", "--json").stdout.splitlines()
    assert len(limited) == 2
    command("log", "dump", str(data), "--from", "3", "--to", "2", code=2)


@pytest.mark.requirement("LOG-20")
def test_damage_is_named_and_ends_with_1(
    stopped: tuple[Path, tuple[int, str]], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(stopped[0], tmp_path / "copy"))
    segment = damage(copy)
    before = contents(copy)
    ran = command("log", "verify", str(copy), code=1)
    assert ran.stdout.startswith(f"damaged: wal/{segment.name}, offset ")
    assert "DAMAGED: " in ran.stdout
    found = told("log", "verify", str(copy), code=1)
    assert found["sound"] is False
    command("log", "stats", str(copy), code=1)
    dumped = command("log", "dump", str(copy), code=1)
    assert "Table" in dumped.stdout, "what stands before the damage is shown"
    assert segment.stem in dumped.stderr
    command("log", "digest", str(copy), code=1)
    assert contents(copy) == before


def test_bad_input_ends_with_2(stopped: tuple[Path, tuple[int, str]], tmp_path: Path) -> None:
    data, (last, _) = stopped
    for verb in ("verify", "stats", "dump", "digest"):
        ran = command("log", verb, str(tmp_path), code=2)
        assert "holds no log" in ran.stderr
    copy = Path(shutil.copytree(data, tmp_path / "copy"))
    (copy / "keys").unlink()
    assert "keys" in command("log", "verify", str(copy), code=2).stderr
    other = tmp_path / "other"
    with NodeProcess("--data", str(other)):
        assert "locked" in command("log", "verify", str(other), code=2).stderr
    wrong = command("log", "verify", str(data), "--key-file", str(other / "keys"), code=2)
    assert "key" in wrong.stderr
    command("log", "digest", str(data), "--at", str(last + 1_000), code=2)


def test_a_copy_nobody_may_write_is_read(
    stopped: tuple[Path, tuple[int, str]], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(stopped[0], tmp_path / "copy"))
    (copy / "lock").unlink()
    for path in copy.rglob("*"):
        path.chmod(0o400 if path.is_file() else 0o500)
    found = told("log", "verify", str(copy))
    for path in copy.rglob("*"):
        path.chmod(0o600 if path.is_file() else 0o700)
    assert found["sound"] is True
    assert not (copy / "lock").exists()


@pytest.mark.requirement("LOG-27")
def test_replays_of_copies_lead_to_the_state_the_broker_had(
    stopped: tuple[Path, tuple[int, str]], tmp_path: Path
) -> None:
    data, (index, digest) = stopped
    for name in ("one", "two"):
        copy = shutil.copytree(data, tmp_path / name)
        found = told("log", "digest", str(copy), "--at", str(index))
        assert (found["index"], found["digest"]) == (index, digest)
    earlier = told("log", "digest", str(data), "--at", str(index - 1))
    assert earlier["digest"] != digest


@pytest.mark.requirement("LOG-27", "LOG-39")
def test_a_checkpoint_holds_the_state_that_all_entries_lead_to(tmp_path: Path) -> None:
    data = tmp_path / "data"
    often = {"QUANTUMQTT_STORAGE__CHECKPOINT_INTERVAL_S": "1"}
    with NodeProcess("--data", str(data), "--admin", "127.0.0.1:0", environment=often) as broker:
        fill(broker)
        wait_until(
            lambda: list((data / "checkpoints").rglob("*.json")) != [], what="a checkpoint was made"
        )
        admin = broker.admin_url.removeprefix("http://")
        live = told("ctl", "digest", "--admin", admin)
        broker.kill()
    found = told("log", "digest", str(data), "--at", str(live["index"]))
    assert found["digest"] == live["digest"]
    assert isinstance(found["checkpoint_index"], int)
    assert found["checkpoint_index"] > 0
    counted = told("log", "stats", str(data))
    checkpoints = counted["checkpoints"]
    assert isinstance(checkpoints, list)
    at = checkpoints[-1]["index"]
    assert (
        told("log", "digest", str(data), "--at", str(at))["digest"]
        == checkpoints[-1]["state_digest"]
    )


def test_a_stored_session_is_shown_as_json(tmp_path: Path) -> None:
    with NodeProcess("--data", str(tmp_path / "data"), "--admin", "127.0.0.1:0") as broker:
        with MqttPeer(LOOPBACK, broker.port, Version.V5) as sleeper:
            will = Will("wills", b"gone", qos=1)
            sleeper.open("a/b ü", clean=False, will=will, properties=LIVES_ON)
            sleeper.subscribe("t/#", options=1)
            admin = broker.admin_url.removeprefix("http://")
            online = told("ctl", "session", "a/b ü", "--admin", admin)
            shown = online["will"]
            assert isinstance(shown, dict)
            assert (shown["topic"], shown["payload_bytes"]) == ("wills", 4)
            assert online["expires_at_ms"] is None
            sleeper.leave()
        with MqttPeer(LOOPBACK, broker.port, Version.V5) as publisher:
            publisher.open("publisher", clean=True)
            for _ in range(3):
                publisher.publish("t/1", b"x", qos=1)
        away = told("ctl", "session", "a/b ü", "--admin", admin)
        assert away["client_id"] == "a/b ü"
        assert away["expiry_s"] == 3600
        assert away["origin"] is None
        assert isinstance(away["expires_at_ms"], int)
        subscriptions, waiting = away["subscriptions"], away["waiting"]
        assert isinstance(subscriptions, list)
        assert [(one["filter"], one["qos"]) for one in subscriptions] == [("t/#", 1)]
        assert isinstance(waiting, list)
        assert len(waiting) == 3
        ran = command("ctl", "session", "nobody", "--admin", admin, code=2)
        assert "no session is stored for client id 'nobody'" in ran.stderr
        reply = httpx.get(f"{broker.admin_url}/v1/sessions/nobody", trust_env=False)
        assert reply.status_code == 404
