"""Mosquitto's command-line clients against `quantumqtt serve`."""

import pytest

from tests.harness.mosquitto_tools import MosquittoSub, mosquitto_pub
from tests.harness.node_process import NodeProcess

pytestmark = [
    pytest.mark.needs_program("mosquitto_pub", "mosquitto_sub"),
    pytest.mark.requirement("WIRE-22"),
]

VERSIONS = ("mqttv31", "mqttv311", "mqttv5")
each_version = pytest.mark.parametrize("version", VERSIONS)
LINES = 200


@each_version
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_a_message_passes_at_each_qos(server: NodeProcess, version: str, qos: str) -> None:
    topic = f"plain/{version}/{qos}"
    with MosquittoSub(server.port, "-V", version, "-q", "2", "-t", topic, "-C", "1") as subscriber:
        mosquitto_pub(server.port, "-V", version, "-q", qos, "-t", topic, "-m", "hello world")
        assert subscriber.messages() == [f"{qos} 0 {topic} hello world"]


@pytest.mark.requirement("QOS-11")
@each_version
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_many_lines_arrive_in_order(server: NodeProcess, version: str, qos: str) -> None:
    topic = f"lines/{version}/{qos}"
    sent = [str(number) for number in range(LINES)]
    arguments = ("-V", version, "-q", qos, "-t", topic)
    with MosquittoSub(server.port, *arguments, "-C", str(LINES)) as subscriber:
        mosquitto_pub(server.port, *arguments, "-l", lines="\n".join(sent))
        assert subscriber.messages() == [f"{qos} 0 {topic} {number}" for number in sent]


@pytest.mark.requirement("RET-01", "RET-02", "RET-03")
@each_version
def test_a_retained_message_is_kept_and_cleared(server: NodeProcess, version: str) -> None:
    topic = f"kept/{version}"
    publish = ("-V", version, "-q", "1", "-r", "-t", topic)
    mosquitto_pub(server.port, *publish, "-m", "on")
    with MosquittoSub(server.port, "-V", version, "-t", topic, "-C", "1") as subscriber:
        assert subscriber.messages() == [f"0 1 {topic} on"]
    mosquitto_pub(server.port, *publish, "-n")
    with MosquittoSub(server.port, "-V", version, "-t", topic, "-C", "1") as subscriber:
        mosquitto_pub(server.port, "-V", version, "-t", topic, "-m", "live")
        assert subscriber.messages() == [f"0 0 {topic} live"]


@pytest.mark.requirement("WILL-03")
@each_version
def test_a_killed_client_leaves_its_will(server: NodeProcess, version: str) -> None:
    topic = f"will/{version}"
    will = ("--will-topic", topic, "--will-payload", "gone", "--will-qos", "1")
    with MosquittoSub(server.port, "-V", version, "-q", "1", "-t", topic, "-C", "1") as listener:
        with MosquittoSub(server.port, "-V", version, "-t", "other", *will) as dying:
            dying.kill()
        assert listener.messages() == [f"1 0 {topic} gone"]


@pytest.mark.requirement("SES-02", "SES-05", "SES-06")
@each_version
def test_a_persistent_session_gets_what_it_missed(server: NodeProcess, version: str) -> None:
    """Scenario 1 of the persistence seed, with QoS 1 so that there is something to miss (X-79)."""
    topic = f"missed/{version}"
    session = ("-V", version, "-c", "-i", f"sensor-{version}", "-q", "1", "-t", topic)
    with MosquittoSub(server.port, *session, "-E") as subscriber:
        assert subscriber.messages() == []
    for payload in ("first", "second"):
        mosquitto_pub(server.port, "-V", version, "-q", "1", "-t", topic, "-m", payload)
    with MosquittoSub(server.port, *session, "-C", "2") as subscriber:
        assert subscriber.messages() == [f"1 0 {topic} first", f"1 0 {topic} second"]


@pytest.mark.requirement("SES-01", "SES-04")
@each_version
def test_a_clean_session_misses_what_came_meanwhile(server: NodeProcess, version: str) -> None:
    """Scenario 2 of the persistence seed."""
    topic = f"clean/{version}"
    session = ("-V", version, "-i", f"clean-{version}", "-q", "1", "-t", topic)
    with MosquittoSub(server.port, *session, "-E") as subscriber:
        assert subscriber.messages() == []
    mosquitto_pub(server.port, "-V", version, "-q", "1", "-t", topic, "-m", "missed")
    with MosquittoSub(server.port, *session, "-C", "1") as subscriber:
        mosquitto_pub(server.port, "-V", version, "-q", "1", "-t", topic, "-m", "live")
        assert subscriber.messages() == [f"1 0 {topic} live"]
