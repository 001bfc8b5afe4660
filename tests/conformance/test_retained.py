"""Retained messages: kept, replaced, cleared, and sent to new subscriptions."""

import pytest

from tests.conformance.conftest import Broker
from tests.harness import packets
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.packets import (
    Key,
    Publish,
    SubAck,
    UnsubAck,
    Version,
    subscribe_options,
    value,
    values,
)
from tests.harness.waiting import wait_until

each_version = pytest.mark.parametrize("version", Version)
with_sessions = pytest.mark.parametrize("clean", [True, False], ids=["transient", "stored"])
each_qos = pytest.mark.parametrize("qos", [0, 1, 2])


def retained_by(subscriber: MqttPeer, *filters: str, options: int = 2) -> list[Publish]:
    """Subscribe and collect what is sent from the store, up to a retained marker behind it."""
    with MqttPeer(*subscriber.server, subscriber.version) as marker:
        marker.open("marker")
        marker.publish("$end", b"x", qos=1, retain=True)
    wanted = [*((name, options) for name in filters), ("$end", 1)]
    subscriber.send(packets.subscribe(1, *wanted, version=subscriber.version))
    assert max(subscriber.receive_a(SubAck).codes) <= 2
    received: list[Publish] = []
    while (message := subscriber.take()).topic != "$end":
        received.append(message)
    # Later calls begin at the same point, and nothing of this one reaches them.
    subscriber.send(packets.unsubscribe(2, "$end", version=subscriber.version))
    subscriber.receive_a(UnsubAck)
    return received


@pytest.mark.requirement("RET-01", "RET-03", "RET-11")
@pytest.mark.clause("MQTT-3.3.1-5", "MQTT-3.3.1-8", "MQTT-3.3.1-9")
@each_version
@each_qos
@with_sessions
def test_a_new_subscription_gets_the_last_retained_message(
    broker: Broker, version: Version, qos: int, clean: bool
) -> None:
    publisher = broker.client(version, "publisher", clean=clean)
    for payload in (b"old", b"new"):
        publisher.publish("t", payload, qos=qos, retain=True)
    publisher.publish("t", b"not retained", qos=qos)
    publisher.ping()
    subscriber = broker.client(version, "subscriber", clean=clean)
    (message,) = retained_by(subscriber, "t", options=1)
    assert (message.payload, message.retain, message.dup) == (b"new", True, False)
    assert message.qos == min(qos, 1)


@pytest.mark.requirement("RET-02")
@pytest.mark.clause("MQTT-3.3.1-6", "MQTT-3.3.1-7")
@each_version
@each_qos
@with_sessions
def test_an_empty_retained_message_clears_and_is_still_delivered(
    broker: Broker, version: Version, qos: int, clean: bool
) -> None:
    watcher = broker.client(version, "watcher")
    watcher.subscribe("t", options=2)
    publisher = broker.client(version, "publisher", clean=clean)
    for payload in (b"kept", b""):
        publisher.publish("t", payload, qos=qos, retain=True)
        message = watcher.take()
        assert (message.payload, message.retain) == (payload, False)
    assert retained_by(broker.client(version, "late", clean=clean), "t") == []


@pytest.mark.requirement("RET-03")
@with_sessions
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("#", {"a", "a/b", "a/b/c", "/a"}),
        ("a/#", {"a", "a/b", "a/b/c"}),
        ("+", {"a"}),
        ("+/b", {"a/b"}),
        ("+/+/c", {"a/b/c"}),
        ("/+", {"/a"}),
        ("$app/#", {"$app/x"}),
        ("none", set()),
    ],
)
def test_wildcards_find_retained_messages_each_once(
    broker: Broker, clean: bool, wanted: str, expected: set[str]
) -> None:
    publisher = broker.client(Version.V311, "publisher")
    for topic in ("a", "a/b", "a/b/c", "/a", "$app/x"):
        publisher.publish(topic, b"x", qos=1, retain=True)
    found = retained_by(broker.client(Version.V311, "subscriber", clean=clean), wanted)
    topics = [message.topic for message in found]
    assert sorted(topics) == sorted(expected)
    assert all(message.retain for message in found)


@pytest.mark.requirement("SUB-05", "RET-03", "SUB-07")
@pytest.mark.clause("MQTT-3.3.1-9", "MQTT-3.3.1-10", "MQTT-3.3.1-11")
@with_sessions
@pytest.mark.parametrize(("handling", "counts"), [(0, [1, 1]), (1, [1, 0]), (2, [0, 0])])
def test_retain_handling_decides_what_a_subscription_gets(
    broker: Broker, clean: bool, handling: int, counts: list[int]
) -> None:
    broker.client(Version.V5, "publisher").publish("t", b"x", qos=1, retain=True)
    subscriber = broker.client(Version.V5, "subscriber", clean=clean)
    options = subscribe_options(1, retain_handling=handling)
    assert [len(retained_by(subscriber, "t", options=options)) for _ in range(2)] == counts


@pytest.mark.requirement("SUB-05")
@pytest.mark.clause("MQTT-3.8.4-3")
@pytest.mark.parametrize("version", [Version.V31, Version.V311])
@with_sessions
def test_before_5_every_subscription_gets_retained_messages_again(
    broker: Broker, version: Version, clean: bool
) -> None:
    broker.client(version, "publisher").publish("t", b"x", qos=1, retain=True)
    subscriber = broker.client(version, "subscriber", clean=clean)
    assert [len(retained_by(subscriber, "t", options=1)) for _ in range(2)] == [1, 1]


@pytest.mark.requirement("RET-04", "SUB-07")
@pytest.mark.clause("MQTT-3.3.1-12", "MQTT-3.3.1-13")
@with_sessions
@each_qos
def test_retain_as_published_decides_the_flag_of_live_messages(
    broker: Broker, clean: bool, qos: int
) -> None:
    plain = broker.client(Version.V5, "plain", clean=clean)
    plain.subscribe("t", options=subscribe_options(2))
    curious = broker.client(Version.V5, "curious", clean=clean)
    curious.subscribe("t", options=subscribe_options(2, retain_as_published=True))
    publisher = broker.client(Version.V5, "publisher")
    for retain in (True, False):
        publisher.publish("t", b"x", qos=qos, retain=retain)
        assert not plain.take().retain
        assert curious.take().retain == retain


@pytest.mark.requirement("SUB-07", "WIRE-14")
@pytest.mark.clause("MQTT-3.3.4-3")
@with_sessions
def test_a_retained_message_carries_properties_and_the_new_identifier(
    broker: Broker, clean: bool
) -> None:
    said = ((Key.CONTENT_TYPE, "text/plain"), (Key.USER_PROPERTY, ("a", "b")))
    publisher = broker.client(Version.V5, "publisher")
    publisher.publish("t", b"x", qos=1, retain=True, properties=said)
    subscriber = broker.client(Version.V5, "subscriber", clean=clean)
    subscriber.subscribe("t", options=1, properties=((Key.SUBSCRIPTION_ID, 9),))
    message = subscriber.take()
    assert values(message.properties, Key.SUBSCRIPTION_ID) == [9]
    assert set(said) <= set(message.properties)


@pytest.mark.requirement("RET-11", "QOS-19")
@pytest.mark.clause("MQTT-3.3.2-5", "MQTT-3.3.2-6")
@with_sessions
def test_a_retained_message_expires(broker: Broker, clean: bool) -> None:
    publisher = broker.client(Version.V5, "publisher")
    for topic, expiry_s in (("short", 1), ("long", 600)):
        expiry = ((Key.MESSAGE_EXPIRY, expiry_s),)
        publisher.publish(topic, b"x", qos=1, retain=True, properties=expiry)
    subscriber = broker.client(Version.V5, "subscriber", clean=clean)

    def is_expired() -> bool:
        found = retained_by(subscriber, "short", "long", options=1)
        left = value(found[-1].properties, Key.MESSAGE_EXPIRY)
        assert isinstance(left, int)
        assert 595 <= left <= 600
        return [message.topic for message in found] == ["long"]

    wait_until(is_expired, what="only the long message is left")


@pytest.mark.clause("MQTT-3.3.1-5")
@with_sessions
def test_a_retained_qos_0_publish_keeps_its_place_among_its_neighbours(
    broker: Broker, clean: bool
) -> None:
    subscriber = broker.client(Version.V311, "subscriber")
    subscriber.subscribe("t", options=0)
    publisher = broker.client(Version.V311, "publisher", clean=clean)
    for number in range(300):
        publisher.send_publish("t", b"%d" % number, retain=number % 3 == 1)
    received = [subscriber.receive_a(Publish).payload for _ in range(300)]
    assert received == [b"%d" % number for number in range(300)]
    publisher.ping()


@pytest.mark.clause("MQTT-3.3.1-6")
def test_clearing_what_was_never_kept_is_no_error(broker: Broker) -> None:
    for version in Version:
        publisher = broker.client(version, f"p{version}")
        publisher.publish("never", b"", qos=1, retain=True)
        publisher.publish("never", b"", qos=0, retain=True)
        publisher.ping()


@pytest.mark.requirement("RET-03", "QOS-11")
@pytest.mark.clause("MQTT-4.6.0-6")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_live_message_does_not_overtake_what_was_retained_before_it(
    broker: Broker, qos: int
) -> None:
    publisher = broker.client(Version.V5, "publisher")
    count = 600  # of which a page holds some
    for number in range(count):
        publisher.send_publish(f"t/{number:03}", b"old", retain=True)
    publisher.publish("end", b"old", qos=1, retain=True)
    # With two shards one of them lives where what is retained is known, and one does not.
    for name in ("one", "other"):
        peer = broker.client(Version.V5, name, properties=((Key.RECEIVE_MAXIMUM, 1000),))
        asked = packets.subscribe(1, ("t/#", qos), ("end", 0), version=Version.V5)
        live = [
            packets.publish(
                topic, b"live", version=Version.V5, qos=qos, packet_id=2 + at if qos else None
            )
            for at, topic in enumerate(("t/000", "end", f"t/{count - 1}"))
        ]
        peer.send(asked + b"".join(live))
        seen: dict[str, list[bytes]] = {}
        messages = 0
        while messages < count + 1 + len(live):
            message = peer.receive()
            if isinstance(message, Publish):
                seen.setdefault(message.topic, []).append(message.payload)
                messages += 1
        for topic in ("t/000", "end", f"t/{count - 1}"):
            assert seen[topic] == [b"old", b"live"]


def test_a_subscription_taken_back_meanwhile_holds_nothing_back(broker: Broker) -> None:
    broker.client(Version.V5, "publisher").publish("t", b"old", qos=1, retain=True)
    for name in ("one", "other"):
        peer = broker.client(Version.V5, name)
        asked = packets.subscribe(1, ("t", 0), ("u", 0), version=Version.V5)
        taken_back = packets.unsubscribe(2, "t", "u", version=Version.V5)
        live = packets.publish("u", b"live", version=Version.V5)
        peer.send(asked + live + taken_back)
        received = [peer.receive() for _ in range(3)]
        payloads = [one.payload for one in received if isinstance(one, Publish)]
        while b"live" not in payloads:
            payloads.append(peer.take().payload)
        peer.ping()


def test_more_live_messages_than_can_be_held_back_go_out_all_the_same(broker: Broker) -> None:
    publisher = broker.client(Version.V5, "publisher")
    for number in range(300):
        publisher.send_publish(f"t/{number}", b"old", retain=True)
    publisher.ping()
    for name in ("one", "other"):
        peer = broker.client(Version.V5, name)
        asked = packets.subscribe(1, ("t/#", 0), ("live", 0), version=Version.V5)
        payloads = [b"%d" % number for number in range(3_000)]
        live = b"".join(packets.publish("live", one, version=Version.V5) for one in payloads)
        peer.send(asked + live)
        messages: list[Publish] = []
        while len(messages) < 300 + len(payloads):
            if isinstance(message := peer.receive(), Publish):
                messages.append(message)
        assert [one.payload for one in messages if one.topic == "live"] == payloads
        assert sum(one.retain for one in messages) == 300


@pytest.mark.requirement("RET-01", "QOS-11")
@with_sessions
def test_a_message_behind_a_retained_one_of_qos_0_does_not_overtake_it(
    broker: Broker, clean: bool
) -> None:
    """Acknowledgements of other messages come meanwhile, and must not let it go on too early."""
    watcher = broker.client(Version.V5, "watcher")
    watcher.subscribe("t", options=0)
    for name in ("one", "other"):
        publisher = broker.client(Version.V5, name, clean=clean)
        for number in range(0, 400, 2):
            publisher.send_publish("acknowledged", qos=1, packet_id=number + 1)
            publisher.send_publish("t", b"%d" % number, retain=True)
            publisher.send_publish("t", b"%d" % (number + 1))
        received = [int(watcher.take().payload) for _ in range(400)]
        assert received == sorted(received)
        publisher.close()
