"""A broker and its data directory: what survives, what is refused, and that nothing is overwritten.

The processes are real and end by SIGKILL; what a crash may do to the bytes on disk is asked in
`tests/faults` and in `crates/journal`.
"""

import hashlib
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.harness import packets
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.node_process import (
    END_DEADLINE_S,
    PROGRAM,
    NodeProcess,
    clean_environment,
)
from tests.harness.packets import Key, Version, Will, value, values
from tests.harness.ports import LOOPBACK
from tests.harness.waiting import wait_until

SEGMENT_BEGINNING = 64 * 1024
# A checkpoint whenever a little was written, so that a short test meets several.
OFTEN = {
    "QUANTUMQTT_STORAGE__CHECKPOINT_INTERVAL_S": "1",
    "QUANTUMQTT_STORAGE__CHECKPOINT_LOG_BYTES": str(1024 * 1024),
}
LIVES_ON = ((Key.SESSION_EXPIRY, 3600),)


def node(data: Path, *arguments: str, environment: dict[str, str] | None = None) -> NodeProcess:
    return NodeProcess("--data", str(data), *arguments, environment=environment)


def client(broker: NodeProcess, name: str, *, clean: bool = False) -> MqttPeer:
    peer = MqttPeer(LOOPBACK, broker.port, Version.V5)
    peer.open(name, clean=clean, properties=LIVES_ON)
    return peer


def refused(*arguments: str, code: int = 2) -> tuple[str, str]:
    """Run `serve` with a data directory that cannot work; gives the complaint and the remedy."""
    ran = subprocess.run(
        [*PROGRAM, "serve", "--listen", "tcp://127.0.0.1:0", "--admin", "off", *arguments],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=END_DEADLINE_S,
        check=False,
    )
    assert ran.returncode == code, ran.stderr
    assert ran.stdout == "", "nothing that cannot work says ready"
    lines = ran.stderr.splitlines()
    return lines[-2], lines[-1]


def contents(data: Path, *, but: Sequence[str] = ("quantumqtt.lock", "lock")) -> dict[str, str]:
    """Name every file with the sum of what it holds."""
    files = [path for path in data.rglob("*") if path.is_file() and path.name not in but]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """A data directory that a broker was killed on."""
    data = tmp_path / "data"
    with node(data) as broker:
        with client(broker, "keeper") as peer:
            for number in range(20):
                peer.publish("kept", b"x" * 200, qos=1, retain=True, packet_id=number + 1)
        broker.kill()
    return data


@pytest.mark.requirement("SES-08", "RET-01", "QOS-03")
def test_everything_a_client_was_told_is_still_true_after_a_kill(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with node(data) as broker:
        assert broker.ready["durability"] == "strict"
        sleeper = client(broker, "sleeper")
        sleeper.subscribe("t/#", options=2)
        sleeper.leave()
        with client(broker, "publisher") as publisher:
            publisher.publish("t/1", b"once", qos=1)
            publisher.publish("t/2", b"exactly", qos=2)
            publisher.publish("t/kept", b"retained", qos=1, retain=True)
            # Taken over by the broker, and not finished by the client.
            publisher.send_publish("t/half", b"half", qos=2, packet_id=7)
            publisher.expect_ack(packets.Kind.PUBREC, 7)
        broker.kill()
    with node(data) as broker:
        publisher = MqttPeer(LOOPBACK, broker.port, Version.V5)
        assert publisher.open("publisher", clean=False, properties=LIVES_ON).session_present
        publisher.send_publish("t/half", b"half", qos=2, packet_id=7, dup=True)
        publisher.expect_ack(packets.Kind.PUBREC, 7)
        sleeper = MqttPeer(LOOPBACK, broker.port, Version.V5)
        assert sleeper.open("sleeper", clean=False, properties=LIVES_ON).session_present
        got = [sleeper.take() for _ in range(4)]
        assert [(one.topic, one.payload, one.qos) for one in got] == [
            ("t/1", b"once", 1),
            ("t/2", b"exactly", 2),
            ("t/kept", b"retained", 1),
            ("t/half", b"half", 2),
        ]
        sleeper.ping()  # nothing else came: the repeated PUBLISH was no second message
        with client(broker, "late", clean=True) as late:
            late.subscribe("t/+", options=1)
            message = late.take()
            assert (message.topic, message.payload, message.retain) == ("t/kept", b"retained", True)
        publisher.close()
        sleeper.close()


def test_a_repeat_after_a_kill_is_known(tmp_path: Path) -> None:
    """Once from the log behind the checkpoint, once from a checkpoint."""
    data = tmp_path / "data"
    for life in range(3):
        with node(data, environment=OFTEN) as broker, client(broker, "sink", clean=True) as sink:
            watcher = client(broker, "watcher", clean=True)
            watcher.subscribe("t", options=1)
            for number in range(life + 1):
                key = ((Key.USER_PROPERTY, ("qmq-dedupe-key", f"batch-{number}")),)
                sink.publish("t", f"{number}".encode(), qos=1, properties=key)
            assert watcher.take().payload == f"{life}".encode(), "only the last is new"
            watcher.ping()
            watcher.close()
            if life == 1:
                wait_until(is_new(data, set(manifests(data))), what="a checkpoint")
            broker.kill()


@pytest.mark.requirement("LOG-39", "LOG-25")
def test_a_start_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for life in range(3):
        with node(data, environment=OFTEN) as broker:
            sleeper = MqttPeer(LOOPBACK, broker.port, Version.V5)
            opened = sleeper.open("sleeper", clean=False, properties=LIVES_ON)
            assert opened.session_present == (life > 0)
            sleeper.subscribe("t", options=1)
            sleeper.leave()
            made = len(manifests(data))
            with client(broker, "publisher") as publisher:
                sent = 0

                def publish_until_made(
                    publisher: MqttPeer = publisher, life: int = life, made: int = made
                ) -> bool:
                    nonlocal sent
                    publisher.publish("t", f"{life}.{sent}".encode(), qos=1)
                    sent += 1
                    return len(manifests(data)) > min(made, 1)

                wait_until(publish_until_made, what="another checkpoint was made")
            broker.kill()
        with node(data, environment=OFTEN) as broker:
            sleeper = client(broker, "sleeper")
            got = [sleeper.take().payload.decode() for _ in range(sent)]
            assert got == [f"{life}.{number}" for number in range(sent)]
            sleeper.ping()
            sleeper.close()
            assert broker.stop() == 0


def manifests(data: Path) -> list[Path]:
    return list((data / "checkpoints").rglob("*.json"))


def is_new(data: Path, known: set[Path]) -> Callable[[], bool]:
    """Ask whether there is a checkpoint that was not there."""
    return lambda: not set(manifests(data)) <= known


@pytest.mark.requirement("WILL-01", "WILL-03", "WILL-06")
def test_after_a_kill_wills_go_out_of_those_who_do_not_return_in_time(tmp_path: Path) -> None:
    data = tmp_path / "data"
    grace = {"QUANTUMQTT_LIMITS__WILL_GRACE_S": "3"}
    with node(data) as broker:
        watcher = client(broker, "watcher")
        watcher.subscribe("wills", options=1)
        watcher.leave()
        mortals = [MqttPeer(LOOPBACK, broker.port, Version.V5) for _ in range(3)]
        for mortal, name in zip(mortals, ("back", "back-anew", "gone"), strict=True):
            will = Will("wills", name.encode(), qos=1)
            mortal.open(name, clean=False, will=will, properties=LIVES_ON)
        broker.kill()
        for mortal in mortals:
            mortal.close()
    with node(data, environment=grace) as broker:
        back = [client(broker, "back"), client(broker, "back-anew", clean=True)]
        watcher = client(broker, "watcher")
        # All three were due at the same moment, in the order of their names.
        assert watcher.take().payload == b"gone"
        watcher.ping()
        for peer in (watcher, *back):
            peer.leave()


def test_connack_names_the_durability(tmp_path: Path) -> None:
    for arguments, word in (
        (("--data", str(tmp_path / "d")), "strict"),
        (("--data", str(tmp_path / "d"), "--durability", "group"), "group"),
        (("--durability", "memory"), "memory"),
    ):
        with NodeProcess(*arguments) as broker, MqttPeer(LOOPBACK, broker.port, Version.V5) as peer:
            facts = peer.open("curious").properties
            assert ("qmq-durability", word) in values(facts, Key.USER_PROPERTY)
            assert value(facts, Key.RECEIVE_MAXIMUM) is not None


def test_a_directory_belongs_to_one_broker(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with node(data):
        complaint, remedy = refused("--data", str(data))
        assert str(data) in complaint
        assert "remedy:" in remedy


def test_a_lost_key_is_not_replaced(used: Path) -> None:
    before = contents(used)
    (used / "keys").rename(used.parent / "copy")
    complaint, remedy = refused("--data", str(used))
    assert "key file" in complaint
    assert "put the key file back" in remedy
    assert not (used / "keys").exists(), "a new key would hide that the old one is needed"
    (used.parent / "copy").rename(used / "keys")
    assert contents(used) == before
    with node(used) as broker, client(broker, "late", clean=True) as late:
        late.subscribe("kept", options=1)
        assert late.take().retain


def test_the_key_of_another_log_opens_nothing(used: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with node(other):
        pass
    before = contents(used, but=("keys", "quantumqtt.lock", "lock"))
    shutil.copy(other / "keys", used / "keys")
    complaint, remedy = refused("--data", str(used))
    assert "key" in complaint
    assert "put back the key file" in remedy
    assert contents(used, but=("keys", "quantumqtt.lock", "lock")) == before


def crc32c(content: bytes) -> int:
    crc = 0xFFFF_FFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F6_3B78 if crc & 1 else 0)
    return crc ^ 0xFFFF_FFFF


@pytest.mark.requirement("LOG-40")
def test_a_log_of_a_newer_format_is_refused_by_name(used: Path) -> None:
    (segment,) = (path for path in (used / "wal").iterdir() if path.suffix == ".seg")
    header = bytearray(segment.read_bytes()[:256])
    header[8:12] = (9).to_bytes(4, "little")
    header[252:256] = crc32c(bytes(header[:252])).to_bytes(4, "little")
    with segment.open("r+b") as file:
        file.write(header)
    before = contents(used)
    complaint, remedy = refused("--data", str(used))
    assert "format 9" in complaint
    assert "start the version that wrote it" in remedy
    looked = subprocess.run(
        [*PROGRAM, "log", "verify", str(used)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=END_DEADLINE_S,
        check=False,
    )
    assert looked.returncode == 2
    assert "format 9" in looked.stderr
    assert contents(used) == before


def test_a_key_that_others_may_read_is_refused(used: Path) -> None:
    os.chmod(used / "keys", 0o644)
    complaint, remedy = refused("--data", str(used))
    assert "644" in complaint
    assert "0600" in remedy


@pytest.mark.requirement("LOG-20")
def test_damage_below_the_watermark_stops_the_start_and_changes_nothing(used: Path) -> None:
    (segment,) = (path for path in (used / "wal").iterdir() if path.suffix == ".seg")
    content = bytearray(segment.read_bytes()[:SEGMENT_BEGINNING])
    # Between batches stand zeros, which mean nothing; the payloads are encrypted and hardly any.
    middle = next(at for at in range(8192, len(content)) if 0 not in content[at : at + 64])
    with segment.open("r+b") as file:
        file.seek(middle)
        file.write(bytes([content[middle] ^ 0x10]))
    before = contents(used)
    for _ in range(2):
        complaint, remedy = refused("--data", str(used), code=1)
        assert "damaged" in complaint
        assert segment.stem in complaint
        assert "nothing was overwritten" in remedy
        assert contents(used) == before, "no file is added either, however often it is tried"


def test_metrics_and_health_speak_of_the_log(tmp_path: Path) -> None:
    with node(tmp_path / "data", "--admin", "127.0.0.1:0") as broker:
        with client(broker, "publisher") as publisher:
            publisher.publish("t", b"x", qos=1)
        with urllib.request.urlopen(f"{broker.admin_url}/metrics") as answer:
            text = answer.read().decode()
        assert 'quantumqtt_durability{durability="strict"} 1.0' in text
        assert 'quantumqtt_log_state{state="ok"} 1.0' in text
        assert "quantumqtt_log_syncs_total" in text
        assert "quantumqtt_message_log_end_offset 1.0" in text
        with urllib.request.urlopen(f"{broker.admin_url}/readyz") as answer:
            assert answer.status == 200
