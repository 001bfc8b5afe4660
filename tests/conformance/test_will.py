"""Will messages: when they are published, when not, and what they look like."""

import time

import pytest

from tests.conformance.conftest import Broker
from tests.harness import packets
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.packets import ConnAck, Key, Properties, Publish, Version, Will, value

each_version = pytest.mark.parametrize("version", Version)
with_sessions = pytest.mark.parametrize("clean", [True, False], ids=["transient", "stored"])

KEEP: Properties = ((Key.SESSION_EXPIRY, 60),)
NO_DELAY: Properties = ()
LONG_DELAY: Properties = ((Key.WILL_DELAY, 30),)


def session_of(version: Version, *, clean: bool) -> Properties:
    """A session that is kept says so by Clean Session 0 before MQTT 5, by its expiry there."""
    return KEEP if version == Version.V5 and not clean else ()


def mourner(broker: Broker) -> MqttPeer:
    """Connect somebody who hears every will."""
    peer = broker.client(Version.V5, "mourner")
    peer.subscribe("will", options=2)
    return peer


def expect_no_will(broker: Broker, peer: MqttPeer) -> None:
    """A message that is published now, the way a will would be, is the first to arrive."""
    broker.client(Version.V311, "marker").publish("will", b"marker", qos=1)
    assert peer.take().payload == b"marker"


@pytest.mark.requirement("WILL-03", "WILL-08")
@pytest.mark.clause("MQTT-3.1.2-8", "MQTT-3.1.2-14", "MQTT-3.1.2-15")
@each_version
@with_sessions
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_a_lost_socket_publishes_the_will(
    broker: Broker, version: Version, clean: bool, qos: int, retain: bool
) -> None:
    listener = mourner(broker)
    will = Will("will", b"lost", qos, retain)
    properties = session_of(version, clean=clean)
    broker.client(version, "dying", clean=clean, will=will, properties=properties).close()
    message = listener.take()
    assert (message.payload, message.qos, message.retain) == (b"lost", qos, False)
    late = broker.client(version, "late")
    late.subscribe("will", "marker", options=2)
    broker.client(version, "marker").publish("marker", qos=1)
    first = late.take()
    assert (first.topic, first.retain) == (("will", True) if retain else ("marker", False))


@pytest.mark.requirement("WILL-02")
@pytest.mark.clause("MQTT-3.14.4-3", "MQTT-3.1.2-10")
@each_version
@with_sessions
def test_a_normal_disconnect_deletes_the_will(
    broker: Broker, version: Version, clean: bool
) -> None:
    listener = mourner(broker)
    properties = session_of(version, clean=clean)
    will = Will("will", qos=1)
    broker.client(version, "leaving", clean=clean, will=will, properties=properties).leave()
    expect_no_will(broker, listener)


@pytest.mark.requirement("WILL-02", "WIRE-19")
@with_sessions
@pytest.mark.parametrize("reason", [0x04, 0x81])
def test_a_disconnect_with_another_reason_publishes_it(
    broker: Broker, clean: bool, reason: int
) -> None:
    listener = mourner(broker)
    properties = session_of(Version.V5, clean=clean)
    peer = broker.client(
        Version.V5, "leaving", clean=clean, will=Will("will"), properties=properties
    )
    peer.send(packets.disconnect(Version.V5, reason=reason))
    assert listener.take().payload == b"gone"


@pytest.mark.requirement("WILL-03")
@each_version
@with_sessions
def test_a_protocol_error_publishes_the_will(broker: Broker, version: Version, clean: bool) -> None:
    listener = mourner(broker)
    properties = session_of(version, clean=clean)
    peer = broker.client(version, "bad", clean=clean, will=Will("will"), properties=properties)
    peer.send("f3 00")
    assert listener.take().payload == b"gone"


@pytest.mark.requirement("WILL-03", "DP-31")
@pytest.mark.clause("MQTT-3.1.2-22")
def test_silence_publishes_the_will_after_one_and_a_half_keep_alives(broker: Broker) -> None:
    listener = mourner(broker)
    begun_at = time.monotonic()
    for version in Version:
        for clean in (True, False):
            properties = session_of(version, clean=clean)
            will = Will("will", f"{version} {clean}".encode())
            broker.client(
                version,
                f"silent {version} {clean}",
                clean=clean,
                keep_alive_s=1,
                will=will,
                properties=properties,
            )
    payloads = {listener.take().payload for _ in range(6)}
    assert len(payloads) == 6
    assert 1.5 <= time.monotonic() - begun_at < 4


@pytest.mark.requirement("WILL-05")
def test_a_refused_connection_leaves_no_will(broker: Broker) -> None:
    listener = mourner(broker)
    refused = [
        packets.connect("x" * 24, version=Version.V31, will=Will("will", qos=1)),
        packets.connect("", version=Version.V311, clean=False, will=Will("will", qos=1)),
        packets.connect(
            "peer",
            version=Version.V5,
            will=Will("will", qos=1),
            properties=((Key.AUTHENTICATION_METHOD, "none"),),
        ),
    ]
    for version, connect in zip(Version, refused, strict=True):
        peer = broker.peer(version)
        peer.send(connect)
        assert peer.receive_a(ConnAck).reason != 0
        peer.expect_closed()
    expect_no_will(broker, listener)


@pytest.mark.hardening("bad-text")
@pytest.mark.requirement("WIRE-10")
@pytest.mark.parametrize("topic", ["", "a/#", "+"])
@each_version
def test_a_will_nobody_could_publish_is_refused(
    broker: Broker, version: Version, topic: str
) -> None:
    peer = broker.peer(version)
    peer.send(packets.connect("peer", version=version, will=Will(topic)))
    answer = peer.receive_until_closed()
    assert answer[:1] != b"\x20" or answer[3] != 0


@pytest.mark.requirement("WILL-10", "WILL-03")
@pytest.mark.clause("MQTT-3.1.3-9")
def test_a_delayed_will_waits_and_is_then_published(broker: Broker) -> None:
    listener = mourner(broker)
    will = Will("will", properties=((Key.WILL_DELAY, 1),))
    begun_at = time.monotonic()
    broker.client(Version.V5, "delayed", clean=False, will=will, properties=KEEP).close()
    assert listener.take().payload == b"gone"
    assert 1 <= time.monotonic() - begun_at < 4


@pytest.mark.requirement("WILL-10")
@pytest.mark.clause("MQTT-3.1.3-9", "MQTT-3.1.2-8")
def test_the_end_of_the_session_cuts_the_delay_short(broker: Broker) -> None:
    listener = mourner(broker)
    will = Will("will", properties=LONG_DELAY)
    broker.client(Version.V5, "transient", will=will).close()
    assert listener.take().payload == b"gone"
    expiry = ((Key.SESSION_EXPIRY, 1),)
    broker.client(Version.V5, "stored", clean=False, will=will, properties=expiry).close()
    assert listener.take().payload == b"gone"


@pytest.mark.requirement("WILL-10")
@pytest.mark.clause("MQTT-3.1.3-9")
def test_a_return_before_the_delay_cancels_the_will(broker: Broker) -> None:
    listener = mourner(broker)
    will = Will("will", properties=((Key.WILL_DELAY, 1),))
    broker.client(Version.V5, "back", clean=False, will=will, properties=KEEP).close()
    back = broker.client(Version.V5, "back", clean=False, properties=KEEP)
    # A second client whose will waits as long, but from later on, tells when the time has passed.
    later = Will("will", b"later", properties=((Key.WILL_DELAY, 1),))
    broker.client(Version.V5, "other", clean=False, will=later, properties=KEEP).close()
    assert listener.take().payload == b"later"
    back.ping()


@pytest.mark.requirement("WILL-04")
@pytest.mark.clause("MQTT-3.1.4-3", "MQTT-3.1.2-8")
@pytest.mark.parametrize("version", [Version.V31, Version.V311])
@with_sessions
@pytest.mark.parametrize("next_clean", [True, False])
def test_before_5_a_takeover_publishes_the_will(
    broker: Broker, version: Version, clean: bool, next_clean: bool
) -> None:
    listener = mourner(broker)
    broker.client(version, "same", clean=clean, will=Will("will", b"old", qos=1))
    broker.client(version, "same", clean=next_clean, will=Will("will", b"new", qos=1)).ping()
    assert listener.take().payload == b"old"
    expect_no_will(broker, listener)


@pytest.mark.requirement("WILL-04", "WILL-10")
@pytest.mark.clause("MQTT-3.1.4-3", "MQTT-3.1.3-9")
@pytest.mark.parametrize("stored", [False, True], ids=["transient", "stored"])
@pytest.mark.parametrize("clean", [False, True], ids=["resume", "clean-start"])
@pytest.mark.parametrize("delay", [NO_DELAY, LONG_DELAY], ids=["no-delay", "delay"])
def test_in_5_a_takeover_publishes_the_will_unless_it_waits_and_the_session_goes_on(
    broker: Broker, stored: bool, clean: bool, delay: Properties
) -> None:
    listener = mourner(broker)
    will = Will("will", b"old", qos=1, properties=delay)
    properties = KEEP if stored else ()
    broker.client(Version.V5, "same", clean=False, will=will, properties=properties)
    broker.client(Version.V5, "same", clean=clean, properties=properties).ping()
    goes_on = stored and not clean
    if not (delay and goes_on):
        assert listener.take().payload == b"old"
    expect_no_will(broker, listener)


@pytest.mark.requirement("WIRE-14", "WILL-08")
def test_a_will_carries_its_properties_but_not_its_delay(broker: Broker) -> None:
    listener = mourner(broker)
    said: Properties = (
        (Key.PAYLOAD_FORMAT, 1),
        (Key.CONTENT_TYPE, "text/plain"),
        (Key.RESPONSE_TOPIC, "answers"),
        (Key.CORRELATION_DATA, b"\x00\x01"),
        (Key.USER_PROPERTY, ("k", "1")),
        (Key.USER_PROPERTY, ("k", "2")),
    )
    will = Will("will", properties=((Key.WILL_DELAY, 0), (Key.MESSAGE_EXPIRY, 600), *said))
    for properties in ((), KEEP):
        broker.client(Version.V5, "dying", clean=False, will=will, properties=properties).close()
        message = listener.take()
        left = value(message.properties, Key.MESSAGE_EXPIRY)
        assert isinstance(left, int)
        assert 595 <= left <= 600
        rest = tuple(one for one in message.properties if one[0] != Key.MESSAGE_EXPIRY)
        assert sorted(rest, key=lambda one: one[0]) == sorted(said, key=lambda one: one[0])


@pytest.mark.requirement("WILL-01")
@each_version
@with_sessions
def test_a_will_of_the_largest_size_is_kept_whole(
    broker: Broker, version: Version, clean: bool
) -> None:
    listener = mourner(broker)
    payload = bytes(65_535)
    properties = session_of(version, clean=clean)
    will = Will("will", payload, qos=1)
    broker.client(version, "dying", clean=clean, will=will, properties=properties).close()
    message = listener.receive_a(Publish)
    assert message.payload == payload
