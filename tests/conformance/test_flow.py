"""Flow control and sizes: what the client says it takes, and what the broker says it takes."""

import time

import pytest

from quantumqtt.config import Limits
from tests.conformance.conftest import Broker, StartBroker, our_broker
from tests.harness import packets
from tests.harness.packets import (
    Ack,
    ConnAck,
    Disconnect,
    Key,
    Kind,
    Properties,
    Publish,
    Version,
    value,
)
from tests.harness.waiting import wait_until

KEEP: Properties = ((Key.SESSION_EXPIRY, 60),)
with_sessions = pytest.mark.parametrize("session", [(), KEEP], ids=["transient", "stored"])


@pytest.mark.requirement("WIRE-12")
@pytest.mark.clause("MQTT-3.2.2-15")
def test_connack_states_what_the_broker_takes(start_broker: StartBroker) -> None:
    broker = start_broker(receive_maximum=7, topic_alias_max=3, packet_bytes_max=2_048)
    facts = broker.peer(Version.V5).open("peer").properties
    assert value(facts, Key.RECEIVE_MAXIMUM) == 7
    assert value(facts, Key.TOPIC_ALIAS_MAXIMUM) == 3
    assert value(facts, Key.MAXIMUM_PACKET_SIZE) == 2_048
    for available in (
        Key.MAXIMUM_QOS,
        Key.RETAIN_AVAILABLE,
        Key.WILDCARD_SUBSCRIPTION_AVAILABLE,
        Key.SUBSCRIPTION_ID_AVAILABLE,
    ):
        assert value(facts, available) in {None, 1}, "it is available, as other tests show"


@pytest.mark.requirement("WIRE-12", "SUB-11")
@pytest.mark.clause("MQTT-3.2.2-17")
def test_shared_subscriptions_are_what_connack_says(broker: Broker) -> None:
    peer = broker.peer(Version.V5)
    facts = peer.open("peer").properties
    is_available = value(facts, Key.SHARED_SUBSCRIPTION_AVAILABLE) != 0
    assert peer.subscribe("$share/g/t", options=1) == ((1,) if is_available else (0x9E,))


@pytest.mark.requirement("WIRE-12", "SES-29", "DP-31")
@pytest.mark.clause("MQTT-3.2.2-21", "MQTT-3.2.2-22")
@pytest.mark.parametrize("asked_s", [0, 6, 65_535])
def test_a_keep_alive_above_the_ceiling_is_replaced_in_5(
    start_broker: StartBroker, asked_s: int
) -> None:
    broker = start_broker(keep_alive_s_max=5)
    facts = broker.peer(Version.V5).open("peer", keep_alive_s=asked_s).properties
    assert value(facts, Key.SERVER_KEEP_ALIVE) == 5
    facts = broker.peer(Version.V5).open("other", keep_alive_s=5).properties
    assert value(facts, Key.SERVER_KEEP_ALIVE) is None


@pytest.mark.requirement("WIRE-12", "SES-29", "DP-31")
@pytest.mark.clause("MQTT-3.2.2-21")
def test_a_keep_alive_the_broker_imposes_is_the_one_that_counts() -> None:
    """Half as much again, on the broker's clock; one shard will do for seven seconds."""
    with our_broker(1, Limits(keep_alive_s_max=5)) as broker:
        begun_at = time.monotonic()
        imposed = broker.client(Version.V5, "imposed", keep_alive_s=0)
        older = broker.client(Version.V311, "older", keep_alive_s=0)
        imposed.expect_end(0x8D)
        assert time.monotonic() - begun_at >= 7.5
        older.ping()  # no word exists to impose it on 3.1.1


@pytest.mark.requirement("QOS-10", "WIRE-12")
@pytest.mark.clause("MQTT-3.3.4-7", "MQTT-3.3.4-9")
@with_sessions
def test_one_publish_more_than_receive_maximum_ends_the_connection(
    start_broker: StartBroker, session: Properties
) -> None:
    broker = start_broker(receive_maximum=3)
    peer = broker.client(Version.V5, "peer", clean=False, properties=session)
    # Unfinished QoS 2 exchanges count, answered with PUBREC or not.
    for packet_id in (1, 2, 3):
        peer.send_publish("t", qos=2, packet_id=packet_id)
        peer.expect_ack(Kind.PUBREC, packet_id)
    peer.send_publish("t", b"qos 0 does not count")
    peer.ping()
    peer.send_publish("t", qos=1, packet_id=4)
    peer.expect_end(0x93)


@pytest.mark.requirement("QOS-10")
@pytest.mark.clause("MQTT-3.3.4-7", "MQTT-4.9.0-1", "MQTT-4.9.0-2")
@with_sessions
def test_finished_exchanges_make_room_for_new_ones(
    start_broker: StartBroker, session: Properties
) -> None:
    broker = start_broker(receive_maximum=2)
    peer = broker.client(Version.V5, "peer", clean=False, properties=session)
    peer.send_publish("t", qos=2, packet_id=9)
    peer.expect_ack(Kind.PUBREC, 9)
    for number in range(20):
        peer.publish("t", qos=1 + number % 2, packet_id=1)
    peer.send(packets.ack(Kind.PUBREL, 9))
    peer.expect_ack(Kind.PUBCOMP, 9)
    peer.send_publish("t", qos=2, packet_id=1)
    peer.send_publish("t", qos=2, packet_id=2)
    for packet_id in (1, 2):
        peer.expect_ack(Kind.PUBREC, packet_id)


@pytest.mark.requirement("QOS-10", "WIRE-05")
@pytest.mark.parametrize("version", [Version.V31, Version.V311])
def test_older_clients_know_no_receive_maximum(start_broker: StartBroker, version: Version) -> None:
    peer = start_broker(receive_maximum=2).client(version, "peer")
    burst = [
        packets.publish("t", version=version, qos=1, packet_id=number + 1) for number in range(500)
    ]
    peer.send(*burst)
    assert [peer.receive_a(Ack).packet_id for _ in burst] == list(range(1, 501))


@pytest.mark.requirement("QOS-09", "QOS-10", "SES-26")
@pytest.mark.clause("MQTT-3.3.4-9", "MQTT-4.9.0-1", "MQTT-4.9.0-3")
@with_sessions
@pytest.mark.parametrize("qos", [1, 2])
def test_the_receive_maximum_of_a_client_is_honoured_and_qos_0_goes_past(
    broker: Broker, session: Properties, qos: int
) -> None:
    window: Properties = ((Key.RECEIVE_MAXIMUM, 2),)
    subscriber = broker.client(
        Version.V5, "subscriber", clean=False, properties=(*session, *window)
    )
    subscriber.subscribe("t", "free", options=2)
    publisher = broker.client(Version.V5, "publisher")
    for number in range(6):
        publisher.publish("t", b"%d" % number, qos=qos)
    publisher.publish("free", b"", qos=0)
    waiting = [subscriber.receive_a(Publish) for _ in range(3)]
    assert [message.payload for message in waiting] == [b"0", b"1", b""]
    subscriber.ping()
    for number in (2, 3, 4, 5):
        subscriber.acknowledge(waiting.pop(0))
        message = subscriber.receive_a(Publish)
        assert message.payload == b"%d" % number
        waiting = [*waiting[:1], message] if waiting[0].qos else [message]


@pytest.mark.clause("MQTT-3.1.2-24")
@pytest.mark.parametrize(
    "wrong", [(Key.RECEIVE_MAXIMUM, 0), (Key.MAXIMUM_PACKET_SIZE, 0)], ids=["receive", "size"]
)
def test_a_maximum_of_0_is_an_error(broker: Broker, wrong: tuple[Key, int]) -> None:
    peer = broker.peer(Version.V5)
    peer.send(packets.connect("peer", version=Version.V5, properties=(wrong,)))
    assert peer.receive_until_closed()[3:4] in {b"", b"\x82"}


@pytest.mark.requirement("WIRE-09")
@pytest.mark.clause("MQTT-3.1.2-24", "MQTT-3.1.2-25")
@with_sessions
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_larger_than_the_client_takes_is_left_out(
    broker: Broker, session: Properties, qos: int
) -> None:
    small: Properties = ((Key.MAXIMUM_PACKET_SIZE, 60), (Key.RECEIVE_MAXIMUM, 1))
    subscriber = broker.client(Version.V5, "subscriber", clean=False, properties=(*session, *small))
    other = broker.client(Version.V5, "other", clean=False, properties=session)
    for peer in (subscriber, other):
        peer.subscribe("t", options=2)
    publisher = broker.client(Version.V5, "publisher")
    # Fixed header 2, topic 3, packet id 2 unless QoS 0, property length 1; the rest is payload.
    largest = 60 - 2 - 3 - (2 if qos else 0) - 1
    for size in (largest + 1, largest, 70_000, 1):
        publisher.publish("t", bytes(size), qos=qos)
    assert [len(subscriber.take().payload) for _ in range(2)] == [largest, 1]
    assert len(other.take().payload) == largest + 1


@pytest.mark.requirement("WIRE-09")
@with_sessions
def test_a_message_that_does_not_fit_is_counted(broker: Broker, session: Properties) -> None:
    small: Properties = (*session, (Key.MAXIMUM_PACKET_SIZE, 60))
    subscriber = broker.client(Version.V5, "subscriber", properties=small)
    subscriber.subscribe("t", options=1)
    publisher = broker.client(Version.V5, "publisher")
    for qos in (0, 1):
        publisher.publish("t", bytes(100), qos=qos)
        publisher.publish("t", b"fits", qos=qos)
        assert subscriber.take().payload == b"fits"
    wait_until(
        lambda: broker.statistics().drops_total["packet_too_large"] == 2, what="both are counted"
    )


@pytest.mark.requirement("WIRE-09", "SES-20")
def test_a_message_that_no_longer_fits_at_resume_is_left_out(broker: Broker) -> None:
    first = broker.client(Version.V5, "subscriber", clean=False, properties=KEEP)
    first.subscribe("t", options=1)
    publisher = broker.client(Version.V5, "publisher")
    publisher.publish("t", bytes(100), qos=1)
    publisher.publish("t", b"fits", qos=1)
    assert len(first.receive_a(Publish).payload) == 100
    first.close()
    small: Properties = (*KEEP, (Key.MAXIMUM_PACKET_SIZE, 60), (Key.RECEIVE_MAXIMUM, 1))
    again = broker.client(Version.V5, "subscriber", clean=False, properties=small)
    assert again.take().payload == b"fits"
    wait_until(
        lambda: broker.statistics().drops_total["packet_too_large"] == 1, what="it is counted"
    )


@pytest.mark.requirement("WIRE-08", "WIRE-12")
@pytest.mark.clause("MQTT-3.2.2-15")
@pytest.mark.parametrize("version", Version)
def test_a_packet_of_the_announced_size_is_taken_and_a_larger_one_is_not(
    start_broker: StartBroker, version: Version
) -> None:
    broker = start_broker(packet_bytes_max=2_048)
    peer = broker.client(version, "peer")
    overhead = 3 + 3 + 2 + (1 if version == Version.V5 else 0)
    peer.publish("t", bytes(2_048 - overhead), qos=1)
    peer.send_publish("t", bytes(2_048 - overhead + 1), qos=1)
    peer.expect_end(0x95)


@pytest.mark.requirement("WIRE-08")
@pytest.mark.parametrize("version", Version)
def test_an_oversize_packet_is_refused_by_its_header_alone(
    start_broker: StartBroker, version: Version
) -> None:
    peer = start_broker(packet_bytes_max=2_048).client(version, "peer")
    peer.send("30 ff ff ff 7f")
    peer.expect_end(0x95)


@pytest.mark.requirement("SES-21", "SES-24")
def test_a_session_that_overflows_while_connected_is_told_0x97(start_broker: StartBroker) -> None:
    broker = start_broker(offline_count_max=3)
    window: Properties = (*KEEP, (Key.RECEIVE_MAXIMUM, 1))
    subscriber = broker.client(Version.V5, "subscriber", clean=False, properties=window)
    subscriber.subscribe("t", options=1)
    publisher = broker.client(Version.V5, "publisher")
    for _ in range(5):
        publisher.publish("t", qos=1)
    assert subscriber.receive_a(Publish).packet_id is not None
    assert subscriber.receive_a(Disconnect).reason == 0x97
    subscriber.expect_closed()
    connack = broker.peer(Version.V5).open("subscriber", clean=False, properties=KEEP)
    assert isinstance(connack, ConnAck)
    assert not connack.session_present
