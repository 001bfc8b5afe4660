"""What waits for a client: retained messages by the page, and expiry in every queue."""

import pytest

from quantumqtt.config import Limits
from quantumqtt.node.native import ListenerPlan, NodePlan, open_native_node
from tests.conformance.conftest import CONNECTIONS_MAX, TARGET, Broker
from tests.harness import packets
from tests.harness.packets import Ack, Key, Kind, Properties, Publish, SubAck, Version, value
from tests.harness.ports import LOOPBACK
from tests.harness.waiting import wait_until

ONE_AT_A_TIME: Properties = ((Key.RECEIVE_MAXIMUM, 1),)
MANY = 10_000


@pytest.mark.requirement("RET-03", "FC-18")
@pytest.mark.parametrize("qos", [0, 1])
def test_ten_thousand_retained_messages_come_in_order_and_delay_nobody(
    broker: Broker, qos: int
) -> None:
    publisher = broker.client(Version.V5, "publisher")
    topics = [f"many/{number:05}" for number in range(MANY)]
    for start in range(0, MANY, 500):
        burst = [
            packets.publish(
                topic, b"kept", version=Version.V5, qos=1, packet_id=number + 1, retain=True
            )
            for number, topic in enumerate(topics[start : start + 500])
        ]
        publisher.send(*burst)
        for _ in burst:
            assert publisher.receive_a(Ack).kind == Kind.PUBACK
    reader, other = broker.client(Version.V5, "reader"), broker.client(Version.V5, "other")
    other.subscribe("live", options=1)
    reader.send(packets.subscribe(1, ("many/#", qos), version=Version.V5))
    assert reader.receive_a(SubAck).codes == (qos,)
    # Nothing of the replay has been read, and it is nobody else's business.
    publisher.publish("live", b"now", qos=1)
    assert other.take().payload == b"now"
    found = [reader.take() for _ in topics]
    assert [message.topic for message in found] == topics
    assert {(message.retain, message.qos) for message in found} == {(True, qos)}
    reader.ping()


@pytest.mark.requirement("RET-03", "SUB-06")
@pytest.mark.clause("MQTT-3.10.4-2")
def test_a_subscription_that_is_taken_back_stops_its_replay(broker: Broker) -> None:
    publisher = broker.client(Version.V5, "publisher")
    for number in range(1_000):
        publisher.publish(f"many/{number:04}", bytes(2_000), qos=1, retain=True)
    reader = broker.client(Version.V5, "reader", properties=ONE_AT_A_TIME)
    reader.send(packets.subscribe(1, ("many/#", 1), version=Version.V5))
    assert reader.receive_a(SubAck).codes == (1,)
    first = reader.receive_a(Publish)
    reader.send(packets.unsubscribe(2, "many/#", version=Version.V5))
    assert reader.receive_a(packets.UnsubAck).codes == (0,)
    # What was on its way may still come [MQTT-3.10.4-3]; it is a page of them and not all.
    reader.acknowledge(first)
    reader.send(packets.PACKET_PINGREQ)
    count = 0
    while isinstance(message := reader.receive(), Publish):
        reader.acknowledge(message)
        reader.send(packets.PACKET_PINGREQ)
        count += 1
    assert count < 900


@pytest.mark.requirement("QOS-19", "FC-06")
@pytest.mark.clause("MQTT-3.3.2-5", "MQTT-3.3.2-6")
def test_a_message_that_expires_behind_a_full_window_is_not_sent(broker: Broker) -> None:
    subscriber = broker.client(Version.V5, "subscriber", properties=ONE_AT_A_TIME)
    subscriber.subscribe("t", options=1)
    publisher = broker.client(Version.V5, "publisher")
    publisher.publish("t", b"first", qos=1)
    publisher.publish("t", b"short", qos=1, properties=((Key.MESSAGE_EXPIRY, 1),))
    publisher.publish("t", b"long", qos=1, properties=((Key.MESSAGE_EXPIRY, 100),))
    first = subscriber.receive_a(Publish)
    publisher.publish("gone", b"x", qos=1, retain=True, properties=((Key.MESSAGE_EXPIRY, 2),))

    def is_gone() -> bool:
        # A stored session: what it is sent from the store stands right behind SUBACK.
        keep: Properties = ((Key.SESSION_EXPIRY, 60),)
        with broker.client(Version.V5, "looker", properties=keep) as looker:
            looker.subscribe("gone", options=1)
            looker.send(packets.PACKET_PINGREQ)
            return not isinstance(looker.receive(), Publish)

    wait_until(is_gone, what="two seconds have passed by the broker's clock")
    subscriber.acknowledge(first)
    message = subscriber.receive_a(Publish)
    assert message.payload == b"long"
    left_s = value(message.properties, Key.MESSAGE_EXPIRY)
    assert isinstance(left_s, int)
    assert 0 < left_s < 100, "what it waited is taken off"


@pytest.mark.requirement("QOS-10")
@pytest.mark.skipif(TARGET != "quantumqtt", reason="asks for our own node")
def test_a_lenient_broker_keeps_clients_that_send_too_much_at_once() -> None:
    listener = ListenerPlan("tcp", LOOPBACK, 0, allow_anonymous=True)
    plan = NodePlan(
        (listener,),
        1,
        Limits(receive_maximum=2),
        CONNECTIONS_MAX,
        ask_admission=False,
        tolerates_excess=True,
    )
    node = open_native_node(plan)
    bound = node.start()[0]
    broker = Broker(bound.host, bound.port, node)
    try:
        peer = broker.client(Version.V5, "peer")
        for packet_id in range(1, 9):
            peer.send_publish("t", qos=2, packet_id=packet_id)
            peer.expect_ack(Kind.PUBREC, packet_id)
        peer.ping()
    finally:
        broker.close_peers()
        node.stop()


@pytest.mark.requirement("WIRE-04")
def test_3_1_may_set_dup_on_what_it_sends_again(broker: Broker) -> None:
    peer = broker.client(Version.V31, "peer")
    subscribe = bytearray(packets.subscribe(7, ("t", 1), version=Version.V31))
    subscribe[0] |= 8
    peer.send(bytes(subscribe))
    assert peer.receive_a(SubAck).packet_id == 7
    peer.send_publish("x", qos=2, packet_id=3)
    peer.expect_ack(Kind.PUBREC, 3)
    peer.send("6a 02 00 03")
    peer.expect_ack(Kind.PUBCOMP, 3)
    unsubscribe = bytearray(packets.unsubscribe(8, "t", version=Version.V31))
    unsubscribe[0] |= 8
    peer.send(bytes(unsubscribe))
    assert peer.receive_a(packets.UnsubAck).packet_id == 8


@pytest.mark.requirement("WIRE-04", "WIRE-10")
@pytest.mark.clause("MQTT-3.6.1-1", "MQTT-3.8.1-1")
@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_later_versions_may_not(broker: Broker, version: Version) -> None:
    peer = broker.client(version, "peer")
    peer.send("6a 02 00 03")
    peer.expect_end(0x81)
