"""`$SYS`: what the broker says of itself, and that nobody says it instead."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from quantumqtt.config import FlagLayer, settings_from
from tests.conformance.conftest import TARGET
from tests.harness import packets
from tests.harness.live_broker import LiveBroker
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.packets import Key, Properties, Publish, SubAck, Version, Will

pytestmark = pytest.mark.skipif(TARGET != "quantumqtt", reason="asks for our whole broker")
KEEP: Properties = ((Key.SESSION_EXPIRY, 60),)
StartBroker = Callable[..., LiveBroker]


@pytest.fixture(params=(1, 2), ids=lambda n: f"{n}-shard")
def start(request: pytest.FixtureRequest) -> Iterator[StartBroker]:
    """Start a whole broker, Python included: half of this is said there."""
    with ExitStack() as running:

        def start_one(**keys: object) -> LiveBroker:
            asked: dict[str, object] = {
                "listen": ("tcp://127.0.0.1:0",),
                "shards": request.param,
                "allow_anonymous": True,
                "sys_interval_s": 1,
                **keys,
            }
            settings = settings_from([FlagLayer(asked, spoken_by_caller=True)])
            return running.enter_context(LiveBroker(settings))

        yield start_one


def subscribe(peer: MqttPeer, name: str, options: int = 1) -> None:
    """Subscribe; messages may come before the answer is read."""
    peer.send(packets.subscribe(1, (name, options), version=peer.version))
    assert max(peer.receive_a(SubAck).codes) <= 2


def until(peer: MqttPeer, topic: str, payload: bytes | None = None) -> Publish:
    """Read messages up to the one that is meant."""
    while True:
        message = peer.receive_a(Publish)
        if message.topic == topic and payload in {None, message.payload}:
            return message


@pytest.mark.requirement("OBS-01")
@pytest.mark.parametrize("session", [(), KEEP], ids=["transient", "stored"])
def test_reports_come_at_once_to_a_new_subscriber_and_then_when_they_change(
    start: StartBroker, session: Properties
) -> None:
    broker = start()
    first = broker.client("first")
    first.subscribe("$SYS/broker/uptime")
    until(first, "$SYS/broker/uptime")
    reader = broker.client("reader", clean=not session, properties=session)
    subscribe(reader, "$SYS/#")
    found: dict[str, Publish] = {}
    while "$SYS/broker/version" not in found:
        message = reader.receive_a(Publish)
        found[message.topic] = message
    assert {message.qos for message in found.values()} == {0}
    assert found["$SYS/broker/version"].retain
    assert found["$SYS/broker/version"].payload.startswith(b"quantumqtt version ")
    assert {
        "$SYS/broker/clients/connected",
        "$SYS/broker/bytes/received",
        "$SYS/broker/load/messages/received/1min",
        "$SYS/broker/messages/stored",
        "$SYS/broker/publish/messages/sent",
        "$SYS/broker/retained messages/count",
        "$SYS/broker/subscriptions/count",
    } <= set(found)
    broker.client("publisher").publish("kept", b"x", qos=1, retain=True)
    live = until(reader, "$SYS/broker/retained messages/count", b"1")
    assert not live.retain


@pytest.mark.requirement("SUB-03")
@pytest.mark.clause("MQTT-4.7.2-1")
def test_no_wildcard_reaches_it(start: StartBroker) -> None:
    broker = start()
    watcher, reader = broker.client("watcher"), broker.client("reader")
    for name in ("#", "+/broker/uptime", "+/#"):
        subscribe(reader, name)
    subscribe(watcher, "$SYS/broker/uptime")
    for _ in range(2):
        watcher.receive_a(Publish)
    reader.ping()


@pytest.mark.requirement("OBS-01", "SUB-03")
def test_nothing_of_it_is_a_record_or_a_retained_message(start: StartBroker) -> None:
    broker = start()
    watcher = broker.client("watcher")
    subscribe(watcher, "$SYS/broker/uptime")
    watcher.receive_a(Publish)
    assert broker.statistics().retained == 0
    assert broker.statistics().entries_applied_total == 0


@pytest.mark.requirement("SEC-18")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("topic", ["$SYS/broker/version", "$SYS"])
def test_no_client_speaks_for_the_broker(start: StartBroker, qos: int, topic: str) -> None:
    broker = start()
    reader = broker.client("reader")
    subscribe(reader, "$SYS/broker/version")
    said = reader.receive_a(Publish).payload
    liar = broker.client("liar")
    liar.send_publish(topic, b"mosquitto", qos=qos, retain=True)
    if qos:
        assert liar.receive_a(packets.Ack).reason == 0x87
    liar.expect_end(0x87)
    assert broker.knock("liar", will=Will(topic)) == 0x87
    again = broker.client("again")
    subscribe(again, "$SYS/broker/version")
    assert again.receive_a(Publish).payload == said
    reader.ping()


@pytest.mark.requirement("OBS-01")
def test_who_comes_and_goes_is_told_and_not_kept(start: StartBroker) -> None:
    broker = start(sys_interval_s=3600)
    watcher = broker.client("watcher")
    subscribe(watcher, "$SYS/brokers/+/clients/#")
    broker.client("lamp", version=Version.V311).leave()
    # The watcher may hear of itself first.
    came = until(watcher, "$SYS/brokers/1/clients/lamp/connected")
    left = until(watcher, "$SYS/brokers/1/clients/lamp/disconnected")
    facts = json.loads(came.payload)
    assert (facts["client_id"], facts["protocol"]) == ("lamp", "3.1.1")
    assert json.loads(left.payload)["reason"] == "normal"
    late = broker.client("late")
    subscribe(late, "$SYS/brokers/+/clients/lamp/#")
    late.ping()


def test_it_can_be_switched_off(start: StartBroker) -> None:
    broker = start(sys_interval_s=0)
    watcher = broker.client("watcher")
    subscribe(watcher, "$SYS/#")
    broker.client("lamp").leave()
    broker.wait_event("session_closed", client_id="lamp")
    watcher.ping()
