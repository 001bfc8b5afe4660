"""`quantumqtt up` as a process: with and without a pipeline, with devices, ended by one Ctrl-C."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from quantumqtt.cli.demo import SITES, devices
from quantumqtt.cli.up import Household, Wishes
from quantumqtt.client import SyncClient
from quantumqtt.config import Settings
from quantumqtt.errors import ConfigError
from tests.harness.node_process import END_DEADLINE_S, PROGRAM, NodeProcess, clean_environment

# A machine without Java: nothing is found.
NO_JAVA = {"PATH": "/nowhere", "JAVA_HOME": ""}
HERE = sys.executable
KINDS = {"climate", "meter", "door", "pump"}


def test_without_java_the_broker_starts_and_says_how_to_get_the_pipeline(tmp_path: Path) -> None:
    flags = ("--data", str(tmp_path / "data"), "--flight", "127.0.0.1:0", "--spark-python", HERE)
    with NodeProcess(*flags, command="up", environment=NO_JAVA) as node:
        warning = json.loads(node.wait_log("there is no pipeline"))
        assert "needs Java 17 or newer" in warning["why"]
        assert "openjdk-17" in warning["remedy"]
        node.signal(signal.SIGINT)
        assert node.wait_ended() == 0


def test_a_pipeline_that_was_asked_for_and_cannot_be_is_refused(tmp_path: Path) -> None:
    where = ("--listen", "tcp://127.0.0.1:0", "--admin", "off", "--data", str(tmp_path / "data"))
    ran = subprocess.run(
        [*PROGRAM, "up", "--pipeline", *where, "--spark-python", HERE],
        env={**clean_environment(), **NO_JAVA},
        capture_output=True,
        text=True,
        timeout=END_DEADLINE_S,
        check=False,
    )
    assert ran.returncode == 2, ran.stderr
    assert ran.stdout == ""
    complaint, remedy = ran.stderr.splitlines()
    assert "needs Java 17 or newer" in complaint
    assert "openjdk-17" in remedy


@pytest.mark.parametrize(
    ("asked", "python", "complaint", "remedy"),
    [
        ({"durability": "memory"}, HERE, "keeps no message log", "data directory"),
        ({"flight": "off"}, HERE, "reads the log service", "--flight off"),
        ({}, "/nowhere/python", "/nowhere/python: no such program", "[spark]"),
    ],
)
def test_what_a_pipeline_lacks_is_named(
    tmp_path: Path, asked: dict[str, str], python: str, complaint: str, remedy: str
) -> None:
    settings = Settings.model_validate({"data": tmp_path / "data", **asked})
    wishes = Wishes(tmp_path, demo=False, pipeline=True, python=Path(python), master=None)
    with pytest.raises(ConfigError, match=re.escape(complaint)) as refused:
        Household(wishes).prepare(settings)
    assert remedy in str(refused.value.hint)


def test_devices_come_measure_and_leave_with_one_signal() -> None:
    with NodeProcess("--demo", "--no-pipeline", command="up") as node:
        with SyncClient(f"mqtt://127.0.0.1:{node.port}") as client:
            heard = client.subscribe("demo/#", qos=1)
            latest: dict[tuple[str, str], dict[str, object]] = {}
            while len(latest) < len(KINDS) * 2:
                message = heard.get(timeout=END_DEADLINE_S)
                _, _site, kind, _number, what = message.topic.split("/")
                latest[kind, what] = json.loads(message.payload)
            assert {kind for kind, _ in latest} == KINDS
            assert latest["climate", "telemetry"].keys() == {"at", "celsius", "humidity"}
            late = client.subscribe("demo/north/pump/1/status", qos=1)
            status = late.get(timeout=END_DEADLINE_S)
            assert json.loads(status.payload) == {"online": True}
            assert status.retain, "who comes later is told as well"
            node.signal(signal.SIGINT)
            offline = late.get(timeout=END_DEADLINE_S)
            assert json.loads(offline.payload) == {"online": False}, "the will goes out"
        assert node.wait_ended() == 0


def test_a_device_is_a_function_of_its_seed_and_the_time() -> None:
    first = [device.read(1_000.0) for device in devices()]
    assert first == [device.read(1_000.0) for device in devices()]
    names = [device.name for device in devices()]
    assert len(set(names)) == len(names)
    assert {device.site for device in devices()} == set(SITES)
