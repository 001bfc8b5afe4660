"""PUBLISH and its acknowledgements, from a client and to a client."""

import pytest

from tests.conformance.conftest import Broker, StartBroker
from tests.harness import packets
from tests.harness.packets import Ack, Key, Kind, Properties, Publish, Version, value

ID_REUSES = 2_000
BURST = 500

each_version = pytest.mark.parametrize("version", Version)
each_qos = pytest.mark.parametrize("qos", [0, 1, 2])
with_sessions = pytest.mark.parametrize("clean", [True, False], ids=["transient", "stored"])


@pytest.mark.requirement("DP-26", "QOS-01", "QOS-20", "GEN-10", "DP-02")
@pytest.mark.clause("MQTT-3.8.4-8", "MQTT-4.3.1-1", "MQTT-4.3.2-1", "MQTT-4.3.3-1")
@each_version
@each_qos
@pytest.mark.parametrize("granted", [0, 1, 2])
@with_sessions
def test_a_message_arrives_once_at_the_lower_qos(
    broker: Broker, version: Version, qos: int, granted: int, clean: bool
) -> None:
    subscriber = broker.client(version, "subscriber", clean=clean)
    publisher = broker.client(version, "publisher", clean=clean)
    assert subscriber.subscribe("t", options=granted) == (granted,)
    for payload in (b"message", b"marker"):
        publisher.publish("t", payload, qos=qos)
    messages = [subscriber.take() for _ in range(2)]
    assert [message.payload for message in messages] == [b"message", b"marker"]
    for message in messages:
        assert message.qos == min(qos, granted)
        assert (message.topic, message.dup, message.retain) == ("t", False, False)


@pytest.mark.requirement("DP-26", "QOS-20")
@pytest.mark.parametrize("from_version", Version)
@pytest.mark.parametrize("to_version", Version)
def test_versions_talk_to_each_other(
    broker: Broker, from_version: Version, to_version: Version
) -> None:
    subscriber = broker.client(to_version, "subscriber")
    publisher = broker.client(from_version, "publisher")
    subscriber.subscribe("a/+", options=2)
    for qos in (0, 1, 2):
        publisher.publish("a/b", b"x", qos=qos)
        assert subscriber.take() == Publish("a/b", b"x", qos, False, False, (qos and qos) or None)


@pytest.mark.requirement("QOS-05")
@pytest.mark.clause("MQTT-4.3.3-12", "MQTT-2.2.1-4")
@each_version
@with_sessions
@pytest.mark.parametrize("qos", [1, 2])
def test_a_finished_packet_id_carries_a_new_message(
    broker: Broker, version: Version, clean: bool, qos: int
) -> None:
    subscriber = broker.client(version, "subscriber")
    subscriber.subscribe("t", options=0)
    publisher = broker.client(version, "publisher", clean=clean)
    for number in range(ID_REUSES):
        publisher.publish("t", b"%d" % number, qos=qos, packet_id=1)
        assert subscriber.receive_a(Publish).payload == b"%d" % number


@pytest.mark.requirement("QOS-04", "QOS-05")
@pytest.mark.clause("MQTT-4.3.3-10")
@each_version
@with_sessions
def test_a_repeat_before_pubrel_is_acknowledged_and_not_delivered_again(
    broker: Broker, version: Version, clean: bool
) -> None:
    subscriber = broker.client(version, "subscriber")
    subscriber.subscribe("t", options=0)
    publisher = broker.client(version, "publisher", clean=clean)
    for dup in (False, True, True):
        publisher.send_publish("t", b"once", qos=2, packet_id=9, dup=dup)
        publisher.expect_ack(Kind.PUBREC, 9)
    publisher.send(packets.ack(Kind.PUBREL, 9))
    publisher.expect_ack(Kind.PUBCOMP, 9, reason=0)
    publisher.publish("t", b"marker", qos=2, packet_id=9)
    received = [subscriber.receive_a(Publish).payload for _ in range(2)]
    assert received == [b"once", b"marker"]


@pytest.mark.clause("MQTT-3.3.1-3", "MQTT-4.3.2-5")
@each_version
def test_the_dup_flag_of_a_publisher_is_not_passed_on(broker: Broker, version: Version) -> None:
    subscriber = broker.client(version, "subscriber")
    subscriber.subscribe("t", options=1)
    publisher = broker.client(version, "publisher")
    publisher.send_publish("t", b"x", qos=1, dup=True, packet_id=4)
    publisher.expect_ack(Kind.PUBACK, 4)
    assert not subscriber.take().dup


@pytest.mark.requirement("QOS-06")
@pytest.mark.clause("MQTT-4.3.3-11")
@each_version
@with_sessions
def test_pubrel_of_an_unknown_id_is_answered(broker: Broker, version: Version, clean: bool) -> None:
    peer = broker.client(version, "peer", clean=clean)
    peer.send(packets.ack(Kind.PUBREL, 77))
    peer.expect_ack(Kind.PUBCOMP, 77, reason=0x92 if version == Version.V5 else 0)


@pytest.mark.requirement("WIRE-05")
def test_pubcomp_of_an_unknown_id_has_no_reason_code_before_5(broker: Broker) -> None:
    peer = broker.client(Version.V311, "peer")
    peer.send(packets.ack(Kind.PUBREL, 77))
    peer.expect("70 02 00 4d")


@pytest.mark.requirement("QOS-07")
@pytest.mark.clause("MQTT-4.3.3-4", "MQTT-4.3.3-6")
@each_version
@with_sessions
def test_outbound_qos_2_goes_publish_pubrel_and_ends_with_pubcomp(
    broker: Broker, version: Version, clean: bool
) -> None:
    subscriber = broker.client(version, "subscriber", clean=clean)
    subscriber.subscribe("t", options=2)
    broker.client(version, "publisher").publish("t", b"x", qos=2)
    message = subscriber.receive_a(Publish)
    assert message.packet_id is not None
    for _ in range(2):  # a repeated PUBREC asks for PUBREL again, not for the message
        subscriber.send(packets.ack(Kind.PUBREC, message.packet_id))
        subscriber.expect_ack(Kind.PUBREL, message.packet_id, reason=0)
    subscriber.send(packets.ack(Kind.PUBCOMP, message.packet_id))
    subscriber.ping()


@pytest.mark.requirement("QOS-21")
@pytest.mark.clause("MQTT-4.3.3-4", "MQTT-4.4.0-2")
@with_sessions
def test_an_error_pubrec_ends_the_exchange(broker: Broker, clean: bool) -> None:
    subscriber = broker.client(Version.V5, "subscriber", clean=clean)
    subscriber.subscribe("t", options=2)
    publisher = broker.client(Version.V5, "publisher")
    publisher.publish("t", b"refused", qos=2)
    first = subscriber.receive_a(Publish)
    assert first.packet_id is not None
    subscriber.send(packets.ack(Kind.PUBREC, first.packet_id, reason=0x83))
    publisher.publish("t", b"next", qos=2)
    assert subscriber.take().payload == b"next"


@pytest.mark.clause("MQTT-3.5.4-1")
@with_sessions
def test_pubrec_of_an_unknown_id_is_answered_0x92(broker: Broker, clean: bool) -> None:
    peer = broker.client(Version.V5, "peer", clean=clean)
    peer.send(packets.ack(Kind.PUBREC, 5))
    peer.expect_ack(Kind.PUBREL, 5, reason=0x92)


@each_version
@with_sessions
def test_unknown_acknowledgements_harm_nobody(
    broker: Broker, version: Version, clean: bool
) -> None:
    peer = broker.client(version, "peer", clean=clean)
    peer.send(packets.ack(Kind.PUBACK, 5), packets.ack(Kind.PUBCOMP, 6))
    peer.ping()
    peer.subscribe("t", options=1)
    peer.send_publish("t", b"x", qos=1, packet_id=3)
    assert {type(peer.receive()) for _ in range(2)} == {Ack, Publish}


@pytest.mark.requirement("QOS-11")
@pytest.mark.clause("MQTT-4.6.0-5", "MQTT-4.6.0-6")
@each_version
@each_qos
@with_sessions
def test_messages_of_a_topic_keep_their_order(
    broker: Broker, version: Version, qos: int, clean: bool
) -> None:
    subscriber = broker.client(version, "subscriber", clean=clean)
    subscriber.subscribe("t", options=qos)
    publisher = broker.client(version, "publisher", clean=clean)
    burst = [
        packets.publish(
            "t", b"%d" % number, version=version, qos=qos, packet_id=number + 1 if qos else None
        )
        for number in range(BURST)
    ]
    publisher.send(*burst)
    received = [subscriber.take() for _ in range(BURST)]
    assert [message.payload for message in received] == [b"%d" % number for number in range(BURST)]
    if qos:
        answers = [publisher.receive_a(Ack) for _ in range(BURST)]
        assert [answer.packet_id for answer in answers] == list(range(1, BURST + 1))


@pytest.mark.clause("MQTT-4.6.0-5")
def test_acknowledgements_come_in_the_order_of_the_publishes(broker: Broker) -> None:
    publisher = broker.client(Version.V311)
    ids = [3, 1, 4, 15, 9, 2, 6]
    publisher.send(*(packets.publish("t", qos=1, packet_id=packet_id) for packet_id in ids))
    assert [publisher.receive_a(Ack).packet_id for _ in ids] == ids


@pytest.mark.requirement("WIRE-10")
@pytest.mark.clause("MQTT-3.3.2-2")
@each_version
@each_qos
@pytest.mark.parametrize("topic", ["a/#", "+", "a+", "#"])
def test_a_topic_with_a_wildcard_ends_the_connection(
    broker: Broker, version: Version, qos: int, topic: str
) -> None:
    peer = broker.client(version)
    peer.send_publish(topic, qos=qos)
    peer.expect_end(0x90, 0x81)


@pytest.mark.requirement("WIRE-10")
@pytest.mark.clause("MQTT-4.7.3-1", "MQTT-3.3.2-8")
@each_version
def test_an_empty_topic_without_alias_ends_the_connection(broker: Broker, version: Version) -> None:
    peer = broker.client(version)
    peer.send_publish("", b"x")
    peer.expect_end(0x82, 0x90)


@pytest.mark.requirement("WIRE-13")
@pytest.mark.clause("MQTT-3.3.2-12")
def test_a_topic_alias_stands_for_its_topic_until_it_is_set_again(broker: Broker) -> None:
    subscriber = broker.client(Version.V5, "subscriber")
    subscriber.subscribe("#", options=2)
    publisher = broker.client(Version.V5, "publisher")
    alias = ((Key.TOPIC_ALIAS, 1),)
    steps = [("a", b"set"), ("", b"use"), ("b", b"set again"), ("", b"use again")]
    for qos in (0, 1, 2):
        for topic, payload in steps:
            publisher.publish(topic, payload, qos=qos, properties=alias)
        received = [subscriber.take() for _ in steps]
        assert [message.topic for message in received] == ["a", "a", "b", "b"]
        assert all(message.properties == () for message in received)


@pytest.mark.requirement("WIRE-13")
@pytest.mark.clause("MQTT-3.3.2-10", "MQTT-3.3.2-7")
@pytest.mark.parametrize("alias", [0, 33, 65_535])
def test_an_alias_out_of_range_ends_the_connection(broker: Broker, alias: int) -> None:
    peer = broker.client(Version.V5)
    peer.send_publish("t", b"x", properties=((Key.TOPIC_ALIAS, alias),))
    peer.expect_end(0x94)


@pytest.mark.requirement("WIRE-13")
@pytest.mark.clause("MQTT-3.3.2-7")
def test_an_alias_dies_with_its_connection(broker: Broker) -> None:
    keep = ((Key.SESSION_EXPIRY, 60),)
    alias = ((Key.TOPIC_ALIAS, 1),)
    first = broker.client(Version.V5, "peer", clean=False, properties=keep)
    first.publish("t", b"x", qos=1, properties=alias)
    first.leave()
    again = broker.client(Version.V5, "peer", clean=False, properties=keep)
    again.send_publish("", b"x", properties=alias)
    again.expect_end(0x82, 0x94)


@pytest.mark.clause("MQTT-3.3.4-6")
def test_a_client_may_not_send_subscription_identifiers(broker: Broker) -> None:
    peer = broker.client(Version.V5)
    peer.send_publish("t", b"x", properties=((Key.SUBSCRIPTION_ID, 1),))
    peer.expect_end(0x82, 0x81)


@each_version
@pytest.mark.parametrize("topic", ["/", "//", "a//b", " ", "ü/€/😀", "x" * 65_535, "/" * 65_535])
def test_unusual_topics_are_topics(broker: Broker, version: Version, topic: str) -> None:
    subscriber = broker.client(version, "subscriber")
    subscriber.subscribe(topic, options=1)
    broker.client(version, "publisher").publish(topic, b"x", qos=1)
    assert subscriber.take().topic == topic


@pytest.mark.requirement("WIRE-07")
@each_version
def test_a_packet_may_come_byte_by_byte(broker: Broker, version: Version) -> None:
    peer = broker.peer(version)
    session = packets.connect("drip", version=version)
    message = packets.publish("t", b"x" * 200, version=version, qos=1, packet_id=1)
    for byte in session:
        peer.send(bytes([byte]))
    assert peer.receive_a(packets.ConnAck).reason == 0
    for byte in message:
        peer.send(bytes([byte]))
    peer.expect_ack(Kind.PUBACK, 1)


@pytest.mark.largest_packets
@pytest.mark.requirement("WIRE-08")
@each_version
def test_a_payload_of_16_mib_goes_through(broker: Broker, version: Version) -> None:
    payload = bytes(range(256)) * (16 * 1024 * 1024 // 256)
    subscriber = broker.client(version, "subscriber")
    subscriber.subscribe("t", options=1)
    publisher = broker.client(version, "publisher")
    publisher.publish("t", payload, qos=1)
    assert subscriber.take().payload == payload


@pytest.mark.requirement("WIRE-13")
@pytest.mark.clause("MQTT-3.3.2-8", "MQTT-3.3.2-10", "MQTT-3.3.2-11", "MQTT-3.3.2-12")
@pytest.mark.parametrize("session", [(), ((Key.SESSION_EXPIRY, 60),)], ids=["transient", "stored"])
def test_the_broker_shortens_topics_only_as_far_as_the_client_lets_it(
    broker: Broker, session: Properties
) -> None:
    """A server may use aliases or not; if it does, they mean what it said before."""
    asked: Properties = (*session, (Key.TOPIC_ALIAS_MAXIMUM, 2))
    reader = broker.client(Version.V5, "reader", clean=not session, properties=asked)
    reader.subscribe("#", options=2)
    publisher = broker.client(Version.V5, "publisher")
    topics = ["first/of/two", "second/of/two", "third"] * 3
    for number, topic in enumerate(topics):
        publisher.publish(topic, b"%d" % number, qos=number % 3)
    aliases: dict[int, str] = {}
    seen: dict[bytes, str] = {}
    for _ in topics:
        message = reader.take()
        alias = value(message.properties, Key.TOPIC_ALIAS)
        topic = message.topic
        if isinstance(alias, int):
            assert alias in {1, 2}
            topic = topic or aliases[alias]
            aliases[alias] = topic
        seen[message.payload] = topic
    assert seen == {b"%d" % number: topic for number, topic in enumerate(topics)}
    other = broker.client(Version.V5, "other")
    other.subscribe("#")
    publisher.publish("first/of/two", b"x")
    assert value(other.take().properties, Key.TOPIC_ALIAS) is None


@pytest.mark.requirement("WIRE-13", "WIRE-09")
def test_our_aliases_are_bounded_by_our_own_setting_too(start_broker: StartBroker) -> None:
    broker = start_broker(topic_alias_max=1)
    asked: Properties = ((Key.TOPIC_ALIAS_MAXIMUM, 100),)
    reader = broker.client(Version.V5, "reader", properties=asked)
    reader.subscribe("#")
    publisher = broker.client(Version.V5, "publisher")
    for topic in ("a", "b", "a", "b"):
        publisher.publish(topic)
    found = [reader.take() for _ in range(4)]
    names = [message.topic for message in found]
    assert names == ["a", "b", "", "b"]
    assert [value(message.properties, Key.TOPIC_ALIAS) for message in found] == [1, None, 1, None]
