"""The pytest plugin that comes with the package, used as its users use it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from quantumqtt.client import Backoff, SyncClient
from quantumqtt.config.listen import SCHEMES
from quantumqtt.errors import ConfigError, TlsFailed, TransportError
from quantumqtt.testing import BrokerProcess, Certificates, Recorder
from tests.harness.node_process import clean_environment
from tests.harness.waiting import wait_until

DEADLINE_S = 20.0
QUICK = Backoff(first_s=0.01, most_s=0.05)


def test_a_broker_and_what_came_to_it(
    broker: BrokerProcess, record: Callable[..., Recorder]
) -> None:
    readings, everything = record("sensors/+", qos=1), record()
    with SyncClient(broker.url) as client:
        client.publish("sensors/1", "20.5", qos=1).wait(DEADLINE_S)
        client.publish("other", b"x", qos=2).wait(DEADLINE_S)
    (reading,) = readings.wait_for(1)
    assert (reading.topic, reading.payload) == ("sensors/1", b"20.5")
    everything.wait_for(lambda came: [one.topic for one in came] == ["sensors/1", "other"])
    assert readings.payloads() == [b"20.5"]
    assert everything.payloads("other") == [b"x"]
    everything.clear()
    assert everything.messages == ()


def test_what_did_not_come_is_told(record: Callable[..., Recorder], broker: BrokerProcess) -> None:
    recorder = record("a")
    with SyncClient(broker.url) as client:
        client.publish("a", b"only one", qos=1).wait(DEADLINE_S)
    recorder.wait_for(1)
    with pytest.raises(TimeoutError, match="only 1 messages came: a: b'only one'"):
        recorder.wait_for(2, timeout=0.05)


def test_a_broker_that_is_killed_comes_back_in_its_place(
    broker: BrokerProcess,
    kill_and_restart: Callable[[], None],
    record: Callable[..., Recorder],
) -> None:
    recorder, port, process_id = record("a"), broker.port, broker.process_id
    with SyncClient(broker.url, reconnect=QUICK) as client:
        before = client.statistics().connections_total
        kill_and_restart()
        assert broker.running
        assert (broker.port, broker.process_id != process_id) == (port, True)
        recorder.wait_subscribed()
        wait_until(lambda: client.statistics().connections_total > before, what="connected again")
        assert isinstance(client.last_disconnect, TransportError)
        client.publish("a", b"after", qos=1).wait(DEADLINE_S)
        assert recorder.wait_for(1)[0].payload == b"after"


@pytest.mark.quantumqtt("--log-level", "debug")
def test_a_test_gives_its_broker_flags(broker: BrokerProcess) -> None:
    assert broker.stop() == 0
    assert not broker.running
    assert broker.logs()
    with pytest.raises(TransportError, match="not running"):
        _ = broker.process_id


def test_a_broker_that_cannot_start_shows_its_last_words(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, "--shards", "no-number")
    with pytest.raises(TransportError, match="shards"):
        broker.start()
    with pytest.raises(ConfigError, match="--listen"):
        BrokerProcess(tmp_path, "--listen", "tcp://127.0.0.1:1")


@pytest.mark.skipif("tls" not in SCHEMES, reason="the broker has no tls:// listeners yet")
def test_a_broker_behind_tls(broker_tls: BrokerProcess, broker_certificates: Certificates) -> None:
    assert broker_tls.url.startswith("mqtts://localhost:")
    with SyncClient(broker_tls.url, tls=broker_certificates.context()) as client:
        client.publish("a", b"x", qos=1).wait(DEADLINE_S)
    with pytest.raises(TlsFailed):
        SyncClient(broker_tls.url).connect()


def test_a_project_that_has_the_package_has_the_fixtures(tmp_path: Path) -> None:
    """Found through the package's entry point, in a tree that names no plugin and is strict."""
    (tmp_path / "test_users_own.py").write_text(
        "import pytest\n"
        "from quantumqtt import SyncClient\n\n\n"
        "@pytest.mark.quantumqtt('--shards', '1')\n"
        "def test_greeting(broker, record):\n"
        "    recorder = record('greeting')\n"
        "    with SyncClient(broker.url) as client:\n"
        "        client.publish('greeting', 'hello', qos=1).wait(timeout=10)\n"
        "    assert recorder.wait_for(1)[0].payload == b'hello'\n"
    )
    ran = subprocess.run(
        [
            *(sys.executable, "-W", "error", "-m", "pytest", "-q", "--strict-markers"),
            *("-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)),
        ],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout


def test_the_plugin_costs_a_run_nothing_until_a_fixture_is_asked_for() -> None:
    program = (
        "import sys, quantumqtt.testing._plugin\n"
        "heavy = {'quantumqtt.client', 'quantumqtt._core', 'quantumqtt.config'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert ran.stdout.strip() == "[]"
