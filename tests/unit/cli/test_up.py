"""`quantumqtt up` as a process: with and without a pipeline, with devices, ended by one Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from quantumqtt.cli.demo import SITES, devices
from quantumqtt.cli.up import Household, Wishes
from quantumqtt.client import SyncClient
from quantumqtt.client.sync import Subscription
from quantumqtt.config import Settings
from quantumqtt.errors import ConfigError
from tests.harness.node_process import END_DEADLINE_S, PROGRAM, NodeProcess, clean_environment
from tests.harness.waiting import wait_until

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


# Stands where Spark's Python would: asks the log service as it was told to, and reports.
LANDS = """#!{python}
import json, os, signal, sys
from pathlib import Path
from quantumqtt.logreader import LogReader
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
words = sys.argv
assert words[1:6] == ["-m", "quantumqtt", "pipeline", "run", "land"]
log = LogReader(words[words.index("--endpoint") + 1], token=os.environ["QUANTUMQTT_LOG_TOKEN"])
end = log.wait({{0: 2}}, timeout_s=60)[0].end
with Path("{pids}").open("a") as pids:
    print(os.getpid(), file=pids)
print(json.dumps({{"batch": 0, "rows": end, "rows_per_s": 8.0, "batch_s": 0.25, "lag": 0,
                  "offsets": {{"0": end}}}}), flush=True)
signal.sigwait([signal.SIGTERM])
"""
JAVA = """#!/bin/sh
echo 'openjdk version "17.0.1"' >&2
"""


def test_a_pipeline_is_watched_started_again_and_never_hurts_the_broker(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    texts = {"java": JAVA, "lands": LANDS.format(python=sys.executable, pids=pids)}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    flags = ("--data", str(tmp_path / "data"), "--flight", "127.0.0.1:0", "--admin", "127.0.0.1:0")
    land = ("--lake", str(tmp_path / "lake"), "--spark-python", str(tmp_path / "lands"))
    found = {"PATH": f"{tmp_path}:/bin:/usr/bin", "JAVA_HOME": ""}
    with NodeProcess(*flags, *land, command="up", environment=found) as node:
        with SyncClient(f"mqtt://127.0.0.1:{node.port}") as client:
            told = client.subscribe("$SYS/broker/pipeline/land/rows")
            for number in range(3):
                client.publish("a", f"{number}", qos=1).wait(END_DEADLINE_S)
            wait_for_payload(told, b"3")
            lines = httpx.get(f"{node.admin_url}/metrics", trust_env=False).text.splitlines()
            assert 'quantumqtt_pipeline_rows_total{job="land"} 3.0' in lines
            assert 'quantumqtt_pipeline_lag_rows{job="land"} 0.0' in lines
            os.kill(int(pids.read_text()), signal.SIGKILL)
            warning = json.loads(node.wait_log("a job has died"))
            assert warning["job"] == "land"
            wait_for_payload(told, b"6")
            client.publish("a", "still here", qos=1).wait(END_DEADLINE_S)
        first, second = pids.read_text().split()
        assert first != second
        node.signal(signal.SIGINT)
        assert node.wait_ended() == 0
    wait_until(lambda: not Path(f"/proc/{second}").exists(), what="the pipeline is gone")


def wait_for_payload(told: Subscription, wanted: bytes) -> None:
    while told.get(timeout=END_DEADLINE_S).payload != wanted:
        pass


def test_devices_come_measure_and_leave_with_one_signal() -> None:
    with NodeProcess("--demo", "--no-pipeline", command="up") as node:
        with SyncClient(f"mqtt://127.0.0.1:{node.port}") as client:
            heard = client.subscribe("demo/#", qos=1)
            latest: dict[tuple[str, str], dict[str, object]] = {}
            topics = set()
            pump = "demo/north/pump/1/status"
            while len(latest) < len(KINDS) * 2 or pump not in topics:
                message = heard.get(timeout=END_DEADLINE_S)
                topics.add(message.topic)
                _, _site, kind, _number, what = message.topic.split("/")
                latest[kind, what] = json.loads(message.payload)
            assert {kind for kind, _ in latest} == KINDS
            assert latest["climate", "telemetry"].keys() == {"at", "celsius", "humidity"}
            late = client.subscribe(pump, qos=1)
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
