"""What a running broker does about its own log: reads it again, and watches its disk."""

from pathlib import Path

import httpx
import pytest

from tests.durability.test_log_tools import damage
from tests.harness import packets
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.node_process import NodeProcess
from tests.harness.packets import Key, Version, value
from tests.harness.ports import LOOPBACK
from tests.harness.waiting import wait_until

MIB = 1024 * 1024
SMALL = {
    "QUANTUMQTT_STORAGE__SEGMENT_BYTES": str(2 * MIB),
    "QUANTUMQTT_LIMITS__PACKET_BYTES_MAX": str(128 * 1024),
    "QUANTUMQTT_STORAGE__SCRUB_INTERVAL_S": "1",
    "QUANTUMQTT_STORAGE__SCRUB_BYTES_PER_S": str(1024 * MIB),
}
BOUNDED = {**SMALL, "QUANTUMQTT_STORAGE__DISK_BYTES_MAX": str(32 * MIB)}


def log_of(broker: NodeProcess) -> dict[str, object]:
    statistics = httpx.get(f"{broker.admin_url}/v1/statistics", trust_env=False).json()
    log = statistics["statistics"]["log"]
    assert isinstance(log, dict)
    return log


def readiness(broker: NodeProcess) -> tuple[int, str]:
    reply = httpx.get(f"{broker.admin_url}/readyz", trust_env=False)
    return reply.status_code, reply.text


@pytest.mark.requirement("LOG-22")
def test_a_byte_that_rots_in_an_old_file_is_found_while_the_broker_runs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodeProcess("--data", str(data), environment=SMALL) as broker:
        with MqttPeer(LOOPBACK, broker.port, Version.V5) as publisher:
            publisher.open("publisher", clean=True)
            for _ in range(10):
                publisher.publish("t", b"x" * 200, qos=1)
        broker.kill()
    arguments = ("--data", str(data), "--admin", "127.0.0.1:0")
    with NodeProcess(
        *arguments, environment=SMALL, announced_errors=("damaged at rest",)
    ) as broker:
        wait_until(lambda: log_of(broker)["scrub_passes_total"] != 0, what="a pass was made")
        assert log_of(broker)["scrub_findings_total"] == 0
        segment = damage(data)
        wait_until(lambda: log_of(broker)["scrub_findings_total"] != 0, what="rot was found")
        # A checkpoint is made at once, and with it the file is not needed any more.
        wait_until(lambda: not segment.exists(), what="the broker can do without the file")
        wait_until(lambda: log_of(broker)["scrub_damage"] is None, what="all at rest is whole")
        assert broker.stop() == 0
    with NodeProcess(*arguments, environment=SMALL) as broker:
        assert readiness(broker)[0] == 200


@pytest.mark.requirement("LOG-37")
def test_a_disk_that_fills_slows_then_refuses_and_recovers_without_a_restart(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    ballast = data / "ballast"
    arguments = ("--data", str(data), "--admin", "127.0.0.1:0")
    with NodeProcess(*arguments, environment=BOUNDED) as broker:
        sleeper = MqttPeer(LOOPBACK, broker.port, Version.V5)
        whole = value(sleeper.open("sleeper", clean=True).properties, Key.RECEIVE_MAXIMUM)
        sleeper.subscribe("t", options=1)
        publisher = MqttPeer(LOOPBACK, broker.port, Version.V5)
        publisher.open("publisher", clean=True)
        made = log_of(broker)["checkpoints_total"]
        assert isinstance(made, int)

        ballast.write_bytes(bytes(25 * MIB))
        wait_until(lambda: log_of(broker)["disk_level"] == "tight", what="80 % are reached")
        status, text = readiness(broker)
        assert status == 200
        assert "getting full" in text
        with MqttPeer(LOOPBACK, broker.port, Version.V5) as late:
            halved = value(late.open("late", clean=True).properties, Key.RECEIVE_MAXIMUM)
            assert isinstance(whole, int)
            assert halved == whole // 2
        publisher.publish("t", b"before", qos=1)
        wait_until(lambda: log_of(broker)["checkpoints_total"] != made, what="the log is cut")

        ballast.write_bytes(bytes(31 * MIB))
        wait_until(lambda: log_of(broker)["disk_level"] == "full", what="90 % are reached")
        status, text = readiness(broker)
        assert status == 503
        assert "nothing new is taken" in text
        publisher.send_publish("t", b"refused", qos=1, packet_id=9)
        publisher.expect_ack(packets.Kind.PUBACK, 9, reason=0x97)
        assert sleeper.take().payload == b"before", "reading goes on"

        ballast.unlink()
        wait_until(lambda: log_of(broker)["disk_level"] == "roomy", what="there is room again")
        publisher.publish("t", b"after", qos=1)
        assert sleeper.take().payload == b"after"
        assert readiness(broker)[0] == 200
        publisher.close()
        sleeper.close()
