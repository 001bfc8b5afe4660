"""Sessions: what is kept while a client is away, and what it finds when it returns."""

import pytest

from tests.conformance.conftest import Broker, StartBroker
from tests.harness import packets
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.packets import Ack, ConnAck, Key, Kind, Properties, Publish, Version, value
from tests.harness.waiting import wait_until

each_version = pytest.mark.parametrize("version", Version)

KEEP: Properties = ((Key.SESSION_EXPIRY, 60),)
OFFLINE_COUNT = 50


def kept(version: Version) -> Properties:
    """What a CONNECT must say beside clean=0 for its session to outlive the connection."""
    return KEEP if version == Version.V5 else ()


def resume(broker: Broker, version: Version, client_id: str = "kept") -> MqttPeer:
    """Connect without a clean start; the session is to be kept."""
    return broker.client(version, client_id, clean=False, properties=kept(version))


def session_present(broker: Broker, version: Version, *, clean: bool) -> bool:
    """Connect, tell what CONNACK said about the session, leave."""
    peer = broker.peer(version)
    connack = peer.open("kept", clean=clean, properties=kept(version))
    peer.leave()
    return connack.session_present


@pytest.mark.requirement("SES-01", "SES-02", "SES-03")
@pytest.mark.clause("MQTT-3.2.2-2", "MQTT-3.2.2-3", "MQTT-3.1.2-4", "MQTT-3.1.2-5")
@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_session_present_tells_the_truth(broker: Broker, version: Version) -> None:
    steps = [(False, False), (False, True), (True, False)]
    for clean, expected in steps:
        assert session_present(broker, version, clean=clean) == expected
    # The clean session of 3.1.1 is gone; the clean start of 5 began one that is kept.
    assert session_present(broker, version, clean=False) == (version == Version.V5)


@pytest.mark.requirement("WIRE-04")
def test_3_1_has_no_session_present_bit(broker: Broker) -> None:
    for _ in range(2):
        peer = broker.peer(Version.V31)
        peer.send(packets.connect("kept", version=Version.V31, clean=False))
        peer.expect("20 02 00 00")
        peer.leave()


@pytest.mark.requirement("SES-02", "SES-05", "SES-06", "SES-22", "QOS-20")
@pytest.mark.clause("MQTT-4.5.0-1", "MQTT-3.1.2-5")
@each_version
def test_messages_wait_in_order_while_the_client_is_away_and_qos_0_does_not(
    broker: Broker, version: Version
) -> None:
    subscriber = resume(broker, version)
    subscriber.subscribe("a/#", options=2)
    subscriber.leave()
    publisher = broker.client(version, "publisher")
    for number in range(OFFLINE_COUNT):
        publisher.publish(f"a/{number % 3}", b"%d" % number, qos=number % 3)
    back = resume(broker, version)
    expected = [(b"%d" % number, number % 3) for number in range(OFFLINE_COUNT) if number % 3]
    received = [back.take() for _ in expected]
    assert [(message.payload, message.qos) for message in received] == expected
    assert not any(message.dup or message.retain for message in received)
    publisher.publish("a/live", b"live", qos=1)
    assert back.take().payload == b"live"


@pytest.mark.requirement("SES-02", "SES-05")
@each_version
def test_qos_0_reaches_a_session_that_came_back(broker: Broker, version: Version) -> None:
    subscriber = resume(broker, version)
    subscriber.subscribe("t", options=0)
    subscriber.leave()
    back = resume(broker, version)
    broker.client(version, "publisher").publish("t", b"live", qos=0)
    assert back.receive_a(Publish).payload == b"live"


@pytest.mark.requirement("SES-05", "SES-06")
@each_version
def test_a_lost_socket_keeps_the_session_too(broker: Broker, version: Version) -> None:
    subscriber = resume(broker, version)
    subscriber.subscribe("t", options=1)
    subscriber.close()
    broker.client(version, "publisher").publish("t", b"x", qos=1)
    back = resume(broker, version)
    assert back.take().payload == b"x"


@pytest.mark.requirement("SES-01", "SES-04")
@pytest.mark.clause("MQTT-3.1.2-4", "MQTT-3.1.2-6")
@each_version
def test_a_clean_start_discards_subscriptions_and_messages(
    broker: Broker, version: Version
) -> None:
    subscriber = resume(broker, version)
    subscriber.subscribe("t", options=1)
    subscriber.leave()
    publisher = broker.client(version, "publisher")
    publisher.publish("t", b"discarded", qos=1)
    clean = broker.client(version, "kept", clean=True)
    publisher.publish("t", b"not wanted", qos=1)
    clean.subscribe("marker", options=1)
    publisher.publish("marker", b"", qos=1)
    assert clean.take().topic == "marker"


@pytest.mark.requirement("SES-04")
@each_version
@pytest.mark.parametrize("ends", ["disconnect", "close"])
def test_nothing_is_kept_of_a_session_that_ends_with_its_connection(
    broker: Broker, version: Version, ends: str
) -> None:
    first = broker.client(version, "kept", clean=True)
    first.subscribe("t", options=1)
    publisher = broker.client(version, "publisher")
    if ends == "disconnect":
        first.leave()
    else:
        first.close()
        # Its end is seen when its id has been taken over and answered.
        broker.client(version, "kept", clean=True).leave()
    publisher.publish("t", b"lost", qos=1)
    peer = broker.peer(version)
    assert not peer.open("kept", clean=False, properties=kept(version)).session_present
    peer.subscribe("marker", options=1)
    publisher.publish("marker", b"", qos=1)
    assert peer.take().topic == "marker"


@pytest.mark.requirement("SES-11", "SES-04")
@pytest.mark.clause("MQTT-3.1.2-23")
def test_in_5_clean_start_0_without_expiry_ends_at_close(broker: Broker) -> None:
    broker.client(Version.V5, "kept", clean=False).leave()
    assert not broker.peer(Version.V5).open("kept", clean=False).session_present
    assert broker.statistics().sessions_stored == 0


@pytest.mark.requirement("SES-11", "SES-09")
@pytest.mark.clause("MQTT-3.1.2-23", "MQTT-4.1.0-1")
def test_a_session_ends_when_its_expiry_has_passed_and_not_while_connected(broker: Broker) -> None:
    expiry = ((Key.SESSION_EXPIRY, 1),)
    broker.client(Version.V5, "away", clean=False, properties=expiry).leave()
    broker.client(Version.V5, "here", clean=False, properties=expiry)
    assert broker.statistics().sessions_stored == 2
    wait_until(lambda: broker.statistics().sessions_stored == 1, what="one session expired")
    for client_id, is_there in (("here", True), ("away", False)):
        peer = broker.peer(Version.V5)
        connack = peer.open(client_id, clean=False, properties=expiry)
        assert connack.session_present == is_there


@pytest.mark.requirement("SES-11", "WIRE-19")
@pytest.mark.clause("MQTT-3.14.2-2")
def test_a_disconnect_may_change_the_expiry(broker: Broker) -> None:
    peer = resume(broker, Version.V5)
    none = ((Key.SESSION_EXPIRY, 0),)
    peer.send(packets.disconnect(Version.V5, properties=none))
    peer.expect_closed()
    assert not session_present(broker, Version.V5, clean=False)


@pytest.mark.requirement("SES-11")
@pytest.mark.clause("MQTT-3.14.2-2")
def test_a_disconnect_cannot_make_a_session_out_of_none(broker: Broker) -> None:
    peer = broker.client(Version.V5, "kept")
    peer.send(packets.disconnect(Version.V5, properties=KEEP))
    peer.expect_end(0x82)
    assert not session_present(broker, Version.V5, clean=False)


@pytest.mark.requirement("SES-11", "SES-10", "WIRE-12")
@pytest.mark.clause("MQTT-3.2.2-21")
def test_an_expiry_above_the_ceiling_is_cut_and_told(start_broker: StartBroker) -> None:
    broker = start_broker(session_expiry_s_max=1)
    never = ((Key.SESSION_EXPIRY, 0xFFFF_FFFF),)
    peer = broker.peer(Version.V5)
    connack = peer.open("kept", clean=False, properties=never)
    assert value(connack.properties, Key.SESSION_EXPIRY) == 1
    peer.leave()
    wait_until(lambda: broker.statistics().sessions_stored == 0, what="the session expired")


@pytest.mark.requirement("SES-20", "QOS-07")
@pytest.mark.clause("MQTT-4.4.0-1", "MQTT-3.3.1-1", "MQTT-4.6.0-1", "MQTT-4.3.3-6")
@each_version
def test_what_is_unfinished_is_repeated_after_connack_in_its_order(
    broker: Broker, version: Version
) -> None:
    subscriber = resume(broker, version)
    subscriber.subscribe("t", options=2)
    publisher = broker.client(version, "publisher")
    for number, qos in enumerate((1, 2, 2, 1, 2)):
        publisher.publish("t", b"%d" % number, qos=qos)
    first = [subscriber.receive_a(Publish) for _ in range(5)]
    ids = [message.packet_id or 0 for message in first]
    subscriber.send(packets.ack(Kind.PUBACK, ids[0]))
    subscriber.send(packets.ack(Kind.PUBREC, ids[1]))
    subscriber.expect_ack(Kind.PUBREL, ids[1])
    subscriber.close()

    back = broker.peer(version)
    connack = back.open("kept", clean=False, properties=kept(version))
    assert connack.session_present == (version != Version.V31)
    assert back.receive() == Ack(Kind.PUBREL, ids[1])
    for before in first[2:]:
        again = back.receive_a(Publish)
        assert again.dup
        assert (again.packet_id, again.payload, again.qos) == (
            before.packet_id,
            before.payload,
            before.qos,
        )
    back.send(packets.ack(Kind.PUBCOMP, ids[1]))
    publisher.publish("t", b"new", qos=1)
    fresh = back.receive_a(Publish)
    assert (fresh.payload, fresh.dup) == (b"new", False)
    assert fresh.packet_id not in ids[2:]


@pytest.mark.requirement("SES-20")
@pytest.mark.clause("MQTT-4.4.0-1")
@each_version
def test_nothing_finished_is_repeated(broker: Broker, version: Version) -> None:
    subscriber = resume(broker, version)
    subscriber.subscribe("t", options=2)
    publisher = broker.client(version, "publisher")
    for qos in (1, 2):
        publisher.publish("t", b"done", qos=qos)
        subscriber.take()
    subscriber.ping()
    subscriber.leave()
    back = resume(broker, version)
    publisher.publish("t", b"new", qos=2)
    message = back.receive_a(Publish)
    assert (message.payload, message.dup) == (b"new", False)


@pytest.mark.requirement("QOS-04", "SES-19", "QOS-18")
@pytest.mark.clause("MQTT-4.3.3-10")
@each_version
def test_an_inbound_qos_2_exchange_survives_a_reconnect(broker: Broker, version: Version) -> None:
    subscriber = broker.client(version, "subscriber")
    subscriber.subscribe("t", options=0)
    publisher = resume(broker, version, "publisher")
    publisher.send_publish("t", b"once", qos=2, packet_id=5)
    publisher.expect_ack(Kind.PUBREC, 5)
    publisher.close()
    back = resume(broker, version, "publisher")
    back.send_publish("t", b"once", qos=2, packet_id=5, dup=True)
    back.expect_ack(Kind.PUBREC, 5)
    back.send(packets.ack(Kind.PUBREL, 5))
    back.expect_ack(Kind.PUBCOMP, 5, reason=0)
    back.publish("t", b"marker", qos=2, packet_id=5)
    received = [subscriber.receive_a(Publish).payload for _ in range(2)]
    assert received == [b"once", b"marker"]


@pytest.mark.requirement("SES-19", "QOS-06")
@each_version
def test_a_clean_start_forgets_inbound_exchanges(broker: Broker, version: Version) -> None:
    subscriber = broker.client(version, "subscriber")
    subscriber.subscribe("t", options=0)
    publisher = resume(broker, version, "publisher")
    publisher.send_publish("t", b"first", qos=2, packet_id=5)
    publisher.expect_ack(Kind.PUBREC, 5)
    publisher.close()
    clean = broker.client(version, "publisher", clean=True)
    clean.send_publish("t", b"second", qos=2, packet_id=5)
    clean.expect_ack(Kind.PUBREC, 5)
    received = [subscriber.receive_a(Publish).payload for _ in range(2)]
    assert received == [b"first", b"second"]


@pytest.mark.requirement("QOS-19", "SES-23")
@pytest.mark.clause("MQTT-3.3.2-5", "MQTT-3.3.2-6")
def test_a_waiting_message_expires_and_others_are_told_what_is_left(broker: Broker) -> None:
    resume_with_subscription(broker)
    publisher = broker.client(Version.V5, "publisher")
    for expiry_s in (1, 600):
        expiry = ((Key.MESSAGE_EXPIRY, expiry_s),)
        publisher.publish("t", b"%d" % expiry_s, qos=1, properties=expiry)
    # A session of the same length of life tells when the second has passed.
    clock = ((Key.SESSION_EXPIRY, 1),)
    broker.client(Version.V5, "clock", clean=False, properties=clock).leave()
    wait_until(lambda: broker.statistics().sessions_stored == 1, what="a second has passed")
    message = resume(broker, Version.V5).take()
    left = value(message.properties, Key.MESSAGE_EXPIRY)
    assert message.payload == b"600"
    assert isinstance(left, int)
    assert 590 <= left <= 599


def resume_with_subscription(broker: Broker) -> None:
    """Make a session that is away and wants everything about `t`."""
    subscriber = resume(broker, Version.V5)
    subscriber.subscribe("t", options=1)
    subscriber.leave()


@pytest.mark.requirement("SES-21", "SES-24")
@pytest.mark.parametrize(
    "limit", [{"offline_count_max": 5}, {"offline_bytes_max": 4_096, "packet_bytes_max": 1_024}]
)
def test_a_session_that_overflows_ends_and_its_client_is_told(
    start_broker: StartBroker, limit: dict[str, int]
) -> None:
    broker = start_broker(**limit)
    resume_with_subscription(broker)
    assert broker.statistics().sessions_stored == 1
    publisher = broker.client(Version.V5, "publisher")
    for _ in range(6):
        publisher.publish("t", bytes(900), qos=1)
    assert broker.statistics().sessions_stored == 0
    peer = broker.peer(Version.V5)
    assert not peer.open("kept", clean=False, properties=KEEP).session_present


@pytest.mark.requirement("SES-04", "SES-01")
@each_version
def test_nothing_of_a_clean_session_is_counted_as_stored(broker: Broker, version: Version) -> None:
    peer = broker.client(version, "transient")
    peer.subscribe("a", "b", options=1)
    assert broker.statistics().sessions_stored == 0
    peer.leave()
    resume(broker, version).leave()
    wait_until(lambda: broker.statistics().sessions_stored == 1, what="one session is stored")
    clean = broker.peer(version)
    clean.send(packets.connect("kept", version=version, clean=True))
    assert not clean.receive_a(ConnAck).session_present
    assert broker.statistics().sessions_stored == 0
