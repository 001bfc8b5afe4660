"""Properties that travel with a message, and what expires on the way."""

import pytest

from tests.conformance.conftest import Broker
from tests.harness.packets import Key, Properties, Version, value

KEEP: Properties = ((Key.SESSION_EXPIRY, 60),)
SAID: Properties = (
    (Key.PAYLOAD_FORMAT, 1),
    (Key.CONTENT_TYPE, "text/plain; charset=utf-8"),
    (Key.RESPONSE_TOPIC, "answers/ü"),
    (Key.CORRELATION_DATA, bytes(range(256))),
    (Key.USER_PROPERTY, ("b", "2")),
    (Key.USER_PROPERTY, ("a", "1")),
    (Key.USER_PROPERTY, ("b", "")),
    (Key.USER_PROPERTY, ("b", "2")),
)

with_sessions = pytest.mark.parametrize("session", [(), KEEP], ids=["transient", "stored"])


def others(properties: Properties) -> Properties:
    """List what is not a user property: their order means nothing."""
    return tuple(sorted(one for one in properties if one[0] != Key.USER_PROPERTY))


def user_properties(properties: Properties) -> Properties:
    """List the user properties: their order is part of the message."""
    return tuple(one for one in properties if one[0] == Key.USER_PROPERTY)


@pytest.mark.requirement("WIRE-14", "WIRE-02")
@pytest.mark.clause("MQTT-3.3.2-4", "MQTT-3.3.2-15", "MQTT-3.3.2-17", "MQTT-3.3.2-18")
@with_sessions
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_properties_reach_the_subscriber_unchanged(
    broker: Broker, session: Properties, qos: int
) -> None:
    subscriber = broker.client(Version.V5, "subscriber", clean=False, properties=session)
    subscriber.subscribe("t", options=2)
    publisher = broker.client(Version.V5, "publisher", clean=False, properties=session)
    publisher.publish("t", "tëxt".encode(), qos=qos, properties=SAID)
    message = subscriber.take()
    assert others(message.properties) == others(SAID)
    assert user_properties(message.properties) == user_properties(SAID)
    assert message.payload == "tëxt".encode()


@pytest.mark.requirement("WIRE-14", "SES-22")
def test_properties_wait_with_their_message(broker: Broker) -> None:
    subscriber = broker.client(Version.V5, "subscriber", clean=False, properties=KEEP)
    subscriber.subscribe("t", options=2, properties=((Key.SUBSCRIPTION_ID, 4),))
    subscriber.leave()
    publisher = broker.client(Version.V5, "publisher")
    publisher.publish("t", b"x", qos=2, properties=SAID)
    back = broker.client(Version.V5, "subscriber", clean=False, properties=KEEP)
    message = back.take()
    assert set(SAID) <= set(message.properties)
    assert value(message.properties, Key.SUBSCRIPTION_ID) == 4
    assert user_properties(message.properties) == user_properties(SAID)


@pytest.mark.requirement("WIRE-05", "WIRE-14")
@pytest.mark.parametrize("version", [Version.V31, Version.V311])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_older_subscribers_get_the_message_without_properties(
    broker: Broker, version: Version, qos: int
) -> None:
    for clean in (True, False):
        subscriber = broker.client(version, f"subscriber-{clean}", clean=clean)
        subscriber.subscribe("t", options=0)
        broker.client(Version.V5, "publisher").publish("t", b"x", qos=qos, properties=SAID)
        subscriber.expect("30 04 00 01 74 78")


@pytest.mark.requirement("QOS-19")
@pytest.mark.clause("MQTT-3.3.2-6")
@with_sessions
def test_message_expiry_is_passed_on(broker: Broker, session: Properties) -> None:
    subscriber = broker.client(Version.V5, "subscriber", clean=False, properties=session)
    subscriber.subscribe("t", options=1)
    publisher = broker.client(Version.V5, "publisher")
    for qos in (0, 1):
        publisher.publish("t", b"x", qos=qos, properties=((Key.MESSAGE_EXPIRY, 600),))
        left = value(subscriber.take().properties, Key.MESSAGE_EXPIRY)
        assert isinstance(left, int)
        assert 595 <= left <= 600


@pytest.mark.requirement("WIRE-14")
@pytest.mark.clause("MQTT-3.1.2-29")
@pytest.mark.parametrize("asked", [0, 1])
def test_request_problem_information_0_hides_reason_strings(broker: Broker, asked: int) -> None:
    wish: Properties = ((Key.REQUEST_PROBLEM_INFORMATION, asked),)
    peer = broker.client(Version.V5, "peer", properties=wish)
    peer.subscribe("t", options=1)
    codes = peer.unsubscribe("never")
    assert codes == (0x11,)
    peer.publish("nobody", qos=1)
    peer.publish("nobody", qos=2)


@pytest.mark.requirement("WIRE-02", "WIRE-14")
@pytest.mark.clause("MQTT-3.1.2-28")
def test_response_information_is_not_sent_unasked(broker: Broker) -> None:
    connack = broker.peer(Version.V5).open("peer")
    assert value(connack.properties, Key.RESPONSE_INFORMATION) is None
