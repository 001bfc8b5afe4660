"""SUBSCRIBE and UNSUBSCRIBE: what is granted, and what a subscriber then gets."""

import pytest

from quantumqtt.config import Limits
from tests.conformance.conftest import Broker, StartBroker, our_broker
from tests.harness import packets
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.packets import Key, Publish, SubAck, Version, subscribe_options, value, values

each_version = pytest.mark.parametrize("version", Version)
with_sessions = pytest.mark.parametrize("clean", [True, False], ids=["transient", "stored"])


def topics_received(subscriber: MqttPeer, publisher: MqttPeer, topics: list[str]) -> list[str]:
    """Publish to each topic, then to a marker the subscriber asked for; tell what arrived."""
    for topic in [*topics, "marker"]:
        publisher.publish(topic, b"", qos=1)
    received: list[str] = []
    while "marker" not in received:
        received.append(subscriber.take().topic)
    return received[:-1]


@pytest.mark.requirement("SUB-04")
@pytest.mark.clause("MQTT-3.8.4-5", "MQTT-3.8.4-6", "MQTT-3.9.3-1")
@each_version
@with_sessions
def test_suback_has_one_code_per_filter_in_order(
    broker: Broker, version: Version, clean: bool
) -> None:
    peer = broker.client(version, "peer", clean=clean)
    wanted = [("a", 2), ("b/#", 0), ("+/c", 1), ("a", 1)]
    peer.send(packets.subscribe(513, *wanted, version=version))
    assert peer.receive_a(SubAck) == SubAck(513, (2, 0, 1, 1))


@pytest.mark.requirement("SUB-02", "SUB-01")
@pytest.mark.clause("MQTT-4.7.1-1", "MQTT-4.7.1-2", "MQTT-4.7.3-4")
@with_sessions
@pytest.mark.parametrize(
    ("wanted", "matching", "other"),
    [
        ("sport/tennis/#", ["sport/tennis", "sport/tennis/1", "sport/tennis/1/2"], ["sport"]),
        ("#", ["a", "a/b", "/"], []),
        ("sport/+", ["sport/", "sport/1"], ["sport", "sport/1/2"]),
        ("+", ["finance"], ["/finance", "a/b"]),
        ("+/+", ["/finance", "a/b"], ["finance"]),
        ("/+", ["/finance"], ["finance", "//"]),
        ("a/+/c/#", ["a/b/c", "a//c/d"], ["a/c", "a/b/d"]),
        ("A", ["A"], ["a", "A/"]),
    ],
)
def test_filters_match_what_the_standard_says(
    broker: Broker, clean: bool, wanted: str, matching: list[str], other: list[str]
) -> None:
    subscriber = broker.client(Version.V311, "subscriber", clean=clean)
    subscriber.subscribe(wanted, options=1)
    if wanted not in {"#", "+"}:
        subscriber.subscribe("marker", options=1)
    publisher = broker.client(Version.V311, "publisher")
    assert topics_received(subscriber, publisher, matching + other) == matching


@pytest.mark.requirement("SUB-03")
@pytest.mark.clause("MQTT-4.7.2-1")
@with_sessions
def test_a_leading_wildcard_does_not_match_dollar_topics(broker: Broker, clean: bool) -> None:
    subscriber = broker.client(Version.V311, "subscriber", clean=clean)
    subscriber.subscribe("#", "+/x", "$app/#", options=1)
    publisher = broker.client(Version.V311, "publisher")
    received = topics_received(subscriber, publisher, ["$app/x", "$other/x", "a/$x"])
    assert received == ["$app/x", "a/$x"]


@pytest.mark.clause("MQTT-4.7.1-1", "MQTT-4.7.1-2", "MQTT-4.7.3-1", "MQTT-3.8.3-2")
@each_version
@pytest.mark.parametrize("wrong", ["", "a/#/b", "a#", "a+", "+a/b", "#/a", "a/#/"])
def test_a_filter_that_breaks_the_rules_ends_the_connection(
    broker: Broker, version: Version, wrong: str
) -> None:
    peer = broker.client(version)
    peer.send(packets.subscribe(1, (wrong, 0), version=version))
    peer.expect_end(0x8F, 0x81, 0x82)


@pytest.mark.clause("MQTT-3.8.3-2", "MQTT-3.10.3-2")
@each_version
def test_a_request_without_filters_ends_the_connection(broker: Broker, version: Version) -> None:
    for built in (packets.subscribe, packets.unsubscribe):
        peer = broker.client(version)
        peer.send(built(1, version=version))
        peer.expect_end(0x82, 0x81)


@pytest.mark.clause("MQTT-3.8.3-5", "MQTT-3-8.3-4", "MQTT-3.8.3-4")
@pytest.mark.parametrize(
    ("version", "options"),
    [
        (Version.V31, 3),
        (Version.V311, 3),
        (Version.V311, 4),
        (Version.V311, 0x80),
        (Version.V5, 3),
        (Version.V5, 0x30),
        (Version.V5, 0x40),
        (Version.V5, 0x80),
    ],
)
def test_reserved_subscription_options_end_the_connection(
    broker: Broker, version: Version, options: int
) -> None:
    peer = broker.client(version)
    peer.send(packets.subscribe(1, ("t", options), version=version))
    peer.expect_end(0x81, 0x82)


@pytest.mark.requirement("SUB-08", "DP-21", "WIRE-14")
@pytest.mark.clause("MQTT-3.3.4-2", "MQTT-3.3.4-3", "MQTT-3.3.4-4")
@with_sessions
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_overlapping_filters_give_one_copy_at_the_highest_qos_with_all_identifiers(
    broker: Broker, clean: bool, qos: int
) -> None:
    subscriber = broker.client(Version.V5, "subscriber", clean=clean)
    wanted = [("a/#", 0, 1), ("a/+", 2, 268_435_455), ("a/b", 1, 300), ("other", 2, 7)]
    for name, granted, identifier in wanted:
        properties = ((Key.SUBSCRIPTION_ID, identifier),)
        subscriber.subscribe(name, options=granted, properties=properties)
    publisher = broker.client(Version.V5, "publisher")
    publisher.publish("a/b", b"one", qos=qos)
    publisher.publish("a/b", b"two", qos=qos)
    for payload in (b"one", b"two"):
        message = subscriber.take()
        assert (message.payload, message.qos) == (payload, qos)
        identifiers = values(message.properties, Key.SUBSCRIPTION_ID)
        assert set(identifiers) == {1, 300, 268_435_455}
        assert len(identifiers) == 3


@pytest.mark.requirement("SUB-08", "DP-21")
@pytest.mark.parametrize("version", [Version.V31, Version.V311])
@with_sessions
def test_overlapping_filters_of_older_clients_give_one_copy_too(
    broker: Broker, version: Version, clean: bool
) -> None:
    subscriber = broker.client(version, "subscriber", clean=clean)
    for name, granted in (("a/#", 0), ("a/b", 1), ("+/b", 2)):
        subscriber.subscribe(name, options=granted)
    publisher = broker.client(version, "publisher")
    publisher.publish("a/b", b"one", qos=2)
    publisher.publish("a/b", b"two", qos=2)
    received = [subscriber.take() for _ in range(2)]
    assert [(one.payload, one.qos) for one in received] == [(b"one", 2), (b"two", 2)]


@pytest.mark.clause("MQTT-3.8.3-1")
@pytest.mark.parametrize("identifier", [b"\x00", b"\xff\xff\xff\xff\x01"])
def test_a_subscription_identifier_out_of_range_ends_the_connection(
    broker: Broker, identifier: bytes
) -> None:
    peer = broker.client(Version.V5)
    block = bytes([len(identifier) + 1, Key.SUBSCRIPTION_ID]) + identifier
    built = b"\x00\x01" + block + b"\x00\x01t\x00"
    peer.send(bytes([0x82, len(built)]) + built)
    peer.expect_end(0x81, 0x82)


@pytest.mark.requirement("SUB-05")
@pytest.mark.clause("MQTT-3.8.4-3")
@each_version
@with_sessions
def test_subscribing_again_replaces_the_options(
    broker: Broker, version: Version, clean: bool
) -> None:
    subscriber = broker.client(version, "subscriber", clean=clean)
    publisher = broker.client(version, "publisher")
    for granted in (2, 0, 1):
        assert subscriber.subscribe("t", options=granted) == (granted,)
        publisher.publish("t", b"%d" % granted, qos=2)
        message = subscriber.take()
        assert (message.payload, message.qos) == (b"%d" % granted, granted)


@pytest.mark.requirement("SUB-05", "SUB-07")
@with_sessions
def test_subscribing_again_replaces_the_identifier(broker: Broker, clean: bool) -> None:
    subscriber = broker.client(Version.V5, "subscriber", clean=clean)
    publisher = broker.client(Version.V5, "publisher")
    for properties in (((Key.SUBSCRIPTION_ID, 5),), ((Key.SUBSCRIPTION_ID, 6),), ()):
        subscriber.subscribe("t", options=1, properties=properties)
        publisher.publish("t", b"", qos=1)
        assert subscriber.take().properties == properties


@pytest.mark.requirement("SUB-05")
@with_sessions
def test_no_message_is_lost_while_a_client_subscribes_again(broker: Broker, clean: bool) -> None:
    subscriber = broker.client(Version.V311, "subscriber", clean=clean)
    subscriber.subscribe("t", options=1)
    publisher = broker.client(Version.V311, "publisher")
    for number in range(100):
        publisher.send_publish("t", b"%d" % number, qos=1, packet_id=number + 1)
        subscriber.send(packets.subscribe(number + 1, ("t", 1)))
    received = [subscriber.receive() for _ in range(200)]
    messages = [one for one in received if isinstance(one, Publish)]
    assert [one.payload for one in messages] == [b"%d" % number for number in range(100)]
    assert sum(isinstance(one, SubAck) for one in received) == 100


@pytest.mark.requirement("SUB-07")
@pytest.mark.clause("MQTT-3.8.3-3")
@with_sessions
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_no_local_keeps_a_message_from_its_publisher_only(
    broker: Broker, clean: bool, qos: int
) -> None:
    talker = broker.client(Version.V5, "talker", clean=clean)
    listener = broker.client(Version.V5, "listener", clean=clean)
    for peer in (talker, listener):
        peer.subscribe("t", options=subscribe_options(2, no_local=True))
    talker.publish("t", b"own", qos=qos)
    assert listener.take().payload == b"own"
    listener.publish("t", b"other", qos=qos)
    assert talker.take().payload == b"other"


@pytest.mark.requirement("SUB-07")
@with_sessions
@pytest.mark.parametrize("qos", [0, 1])
def test_without_no_local_a_publisher_hears_itself(broker: Broker, clean: bool, qos: int) -> None:
    peer = broker.client(Version.V5, "peer", clean=clean)
    peer.subscribe("t", options=subscribe_options(1))
    peer.send_publish("t", b"own", qos=qos)
    received = [peer.receive() for _ in range(2 if qos else 1)]
    assert any(isinstance(one, Publish) and one.payload == b"own" for one in received)


@pytest.mark.requirement("SUB-11")
@pytest.mark.clause("MQTT-4.8.2-1", "MQTT-4.8.2-2")
@pytest.mark.parametrize(
    "wrong", ["$share/g", "$share//t", "$share/g/", "$share/+/t", "$share/g#/t"]
)
def test_a_malformed_shared_filter_ends_the_connection(broker: Broker, wrong: str) -> None:
    peer = broker.client(Version.V5)
    peer.send(packets.subscribe(1, (wrong, 0), version=Version.V5))
    peer.expect_end(0x8F, 0x81, 0x82)


@pytest.mark.requirement("SUB-11")
@pytest.mark.clause("MQTT-3.8.3-4")
def test_no_local_on_a_shared_subscription_is_an_error(broker: Broker) -> None:
    peer = broker.client(Version.V5)
    options = subscribe_options(1, no_local=True)
    peer.send(packets.subscribe(1, ("$share/g/t", options), version=Version.V5))
    peer.expect_end(0x82)


@pytest.mark.requirement("SUB-06")
@pytest.mark.clause("MQTT-3.10.4-4", "MQTT-3.10.4-5", "MQTT-3.11.3-1")
@each_version
@with_sessions
def test_unsuback_comes_whether_or_not_anything_matched(
    broker: Broker, version: Version, clean: bool
) -> None:
    peer = broker.client(version, "peer", clean=clean)
    peer.subscribe("a", "b/#", options=1)
    codes = peer.unsubscribe("a", "never", "b/#", packet_id=300)
    assert codes == ((0, 0x11, 0) if version == Version.V5 else ())


@pytest.mark.requirement("SUB-06")
@pytest.mark.clause("MQTT-3.10.4-1", "MQTT-3.10.4-2")
@each_version
@with_sessions
def test_after_unsuback_nothing_more_comes(broker: Broker, version: Version, clean: bool) -> None:
    subscriber = broker.client(version, "subscriber", clean=clean)
    subscriber.subscribe("a/+", "a/#", "marker", options=1)
    publisher = broker.client(version, "publisher")
    subscriber.unsubscribe("a/+")
    assert topics_received(subscriber, publisher, ["a/b"]) == ["a/b"]  # by the other filter
    subscriber.unsubscribe("a/#")
    assert topics_received(subscriber, publisher, ["a/b", "a"]) == []


@pytest.mark.requirement("SUB-06")
@pytest.mark.clause("MQTT-3.10.4-3")
@with_sessions
def test_an_exchange_that_began_is_finished_after_unsubscribe(broker: Broker, clean: bool) -> None:
    subscriber = broker.client(Version.V311, "subscriber", clean=clean)
    subscriber.subscribe("t", options=2)
    broker.client(Version.V311, "publisher").publish("t", b"x", qos=2)
    message = subscriber.receive_a(Publish)
    subscriber.unsubscribe("t")
    subscriber.acknowledge(message)


@pytest.mark.requirement("SUB-09", "WIRE-04", "SUB-04")
@each_version
@with_sessions
def test_the_subscription_after_the_last_is_refused(
    start_broker: StartBroker, version: Version, clean: bool
) -> None:
    peer = start_broker(subscriptions_max=2).client(version, "peer", clean=clean)
    assert peer.subscribe("a", "b") == (0, 0)
    peer.send(packets.subscribe(2, ("a", 1), ("c", 0), version=version))
    if version == Version.V31:
        peer.expect_closed()  # it has no word for a refused filter (WIRE-04)
        return
    assert peer.receive_a(SubAck).codes == (1, 0x97 if version == Version.V5 else 0x80)
    peer.unsubscribe("b")
    assert peer.subscribe("c") == (0,)


def test_without_a_log_there_is_no_replay_and_the_client_hears_why() -> None:
    with our_broker(1, Limits()) as broker:
        peer = broker.client(Version.V5, "reader")
        peer.send(packets.subscribe(3, ("$replay/earliest/t", 1), version=Version.V5))
        refused = peer.receive_a(SubAck)
        assert refused.codes == (0x83,)
        assert "durability memory" in str(value(refused.properties, Key.REASON_STRING))
