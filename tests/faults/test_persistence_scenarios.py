"""The persistence scenarios with stock clients, one client each and QoS 1 (X-79), over `kill -9`.

The small journalling broker shows that what is expected here can be had; `memory` shows that these
scenarios tell a broker that forgets.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.crash_runs import Restartable, journal_broker, needs_strict, ours
from tests.harness.mosquitto_tools import MosquittoSub, mosquitto_pub

pytestmark = pytest.mark.needs_program("mosquitto_pub", "mosquitto_sub")

durable = pytest.mark.parametrize(
    "broker",
    [journal_broker(), pytest.param(ours("strict"), marks=needs_strict)],
    ids=["journal", "strict"],
    indirect=True,
)
forgetful = pytest.mark.parametrize("broker", [ours("memory")], ids=["memory"], indirect=True)
each_version = pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
FENCE = "fence"


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Restartable]:
    with Restartable(request.param, tmp_path) as one:
        yield one


def session(version: str, *more: str) -> tuple[str, ...]:
    """A stored session; for MQTT 5 the program wishes for one without an end by itself."""
    return ("-V", version, "-c", "-i", "sensor", "-q", "1", *more)


def publish(broker: Restartable, topic: str, *payloads: str) -> None:
    for payload in payloads:
        mosquitto_pub(broker.port, "-V", "mqttv311", "-q", "1", "-t", topic, "-m", payload)


def received(broker: Restartable, version: str, count: int, *more: str) -> list[str]:
    """Come back and take what there is."""
    arguments = session(version, "-t", FENCE, "-C", str(count), *more)
    with MosquittoSub(broker.port, *arguments) as subscriber:
        return subscriber.messages()


def subscribe(broker: Restartable, version: str, topic: str) -> None:
    with MosquittoSub(broker.port, *session(version, "-t", topic, "-t", FENCE, "-E")) as one:
        assert one.messages() == []


@durable
@each_version
@pytest.mark.requirement("SES-02", "SES-05", "SES-06", "SES-14")
def test_scenario_1_a_session_gets_what_it_missed_over_a_kill(
    broker: Restartable, version: str
) -> None:
    subscribe(broker, version, "missed")
    publish(broker, "missed", "first")
    broker.kill_and_restart()
    publish(broker, "missed", "second")
    assert received(broker, version, 2) == ["1 0 missed first", "1 0 missed second"]


@forgetful
def test_scenario_1_tells_a_broker_that_forgets(broker: Restartable) -> None:
    subscribe(broker, "mqttv311", "missed")
    publish(broker, "missed", "first")
    broker.kill_and_restart()
    with MosquittoSub(broker.port, *session("mqttv311", "-t", FENCE, "-C", "1")) as subscriber:
        publish(broker, FENCE, "here")
        assert subscriber.messages() == ["1 0 fence here"]


@durable
@pytest.mark.requirement("SES-01", "SES-04", "SES-14")
def test_scenario_2_a_clean_session_stays_gone_over_a_kill(broker: Restartable) -> None:
    subscribe(broker, "mqttv311", "missed")
    clean = ("-V", "mqttv311", "-i", "sensor", "-q", "1", "-t", "missed", "-E")
    with MosquittoSub(broker.port, *clean) as subscriber:
        assert subscriber.messages() == []
    publish(broker, "missed", "nobody waits for this")
    broker.kill_and_restart()
    with MosquittoSub(broker.port, *session("mqttv311", "-t", FENCE, "-C", "1")) as subscriber:
        publish(broker, "missed", "nor for this")
        publish(broker, FENCE, "here")
        assert subscriber.messages() == ["1 0 fence here"]


@durable
@pytest.mark.requirement("SES-14")
def test_scenario_3_an_unsubscribe_holds_over_a_kill(broker: Restartable) -> None:
    subscribe(broker, "mqttv311", "missed")
    leaving = session("mqttv311", "-t", FENCE, "-U", "missed")
    with MosquittoSub(broker.port, *leaving) as subscriber:
        subscriber.wait_said("received UNSUBACK")
    broker.kill_and_restart()
    publish(broker, "missed", "nobody waits for this")
    publish(broker, FENCE, "here")
    assert received(broker, "mqttv311", 1) == ["1 0 fence here"]
