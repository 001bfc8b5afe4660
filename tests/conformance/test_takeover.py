"""Two connections, one client id: the newer one wins, and the session loses nothing by it.

With two shards the kernel spreads connections over both, so across these tests a client id moves
within a shard and between shards; each test takes an id over several times to see both.
"""

import pytest

from tests.conformance.conftest import Broker
from tests.harness import packets
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.packets import Ack, Key, Kind, Properties, Publish, Version
from tests.harness.waiting import wait_until

TAKEOVERS = 200
MOVES = 8
KEEP: Properties = ((Key.SESSION_EXPIRY, 60),)

each_version = pytest.mark.parametrize("version", Version)


def kept(version: Version, *, stored: bool) -> Properties:
    """What CONNECT says about how long the session is to be kept."""
    return KEEP if version == Version.V5 and stored else ()


@pytest.mark.requirement("SES-15", "WIRE-16", "SES-17")
@pytest.mark.clause("MQTT-3.1.4-3")
@each_version
@pytest.mark.parametrize("clean", [True, False])
def test_the_older_connection_is_told_and_closed(
    broker: Broker, version: Version, clean: bool
) -> None:
    properties = kept(version, stored=not clean)
    owner = broker.client(version, "same", clean=clean, properties=properties)
    for _ in range(MOVES):
        newer = broker.client(version, "same", clean=clean, properties=properties)
        owner.expect_end(0x8E)
        newer.ping()
        owner = newer


@pytest.mark.requirement("SES-15")
@pytest.mark.clause("MQTT-3.1.4-3")
def test_versions_take_over_from_each_other(broker: Broker) -> None:
    owner = broker.client(Version.V5, "same", clean=False, properties=KEEP)
    owner.subscribe("t", options=2)
    for version in (Version.V311, Version.V31, Version.V5, Version.V311):
        newer = broker.client(version, "same", clean=False, properties=kept(version, stored=True))
        owner.expect_end(0x8E)
        newer.send_publish("t", b"%d" % version, qos=0)
        assert newer.receive_a(Publish).payload == b"%d" % version
        owner = newer


@pytest.mark.requirement("SES-17", "SES-19", "SES-20", "WIRE-11", "SES-15")
@each_version
def test_a_takeover_between_delivery_and_acknowledgement_repeats_the_message(
    broker: Broker, version: Version
) -> None:
    properties = kept(version, stored=True)
    owner = broker.client(version, "same", clean=False, properties=properties)
    owner.subscribe("t", options=1)
    publisher = broker.client(version, "publisher")
    publisher.publish("t", b"x", qos=1)
    first = again = owner.receive_a(Publish)
    for _ in range(MOVES):
        owner = broker.client(version, "same", clean=False, properties=properties)
        again = owner.receive_a(Publish)
        assert (again.packet_id, again.payload, again.dup) == (first.packet_id, b"x", True)
    owner.acknowledge(again)
    publisher.publish("t", b"next", qos=1)
    assert owner.take().payload == b"next"


@pytest.mark.requirement("SES-18", "SES-19", "QOS-04")
@each_version
def test_a_takeover_between_publish_and_pubrel_delivers_once(
    broker: Broker, version: Version
) -> None:
    subscriber = broker.client(version, "subscriber")
    subscriber.subscribe("t", options=0)
    properties = kept(version, stored=True)
    owner = broker.client(version, "same", clean=False, properties=properties)
    owner.send_publish("t", b"once", qos=2, packet_id=1)
    owner.expect_ack(Kind.PUBREC, 1)
    for _ in range(MOVES):
        owner = broker.client(version, "same", clean=False, properties=properties)
        owner.send_publish("t", b"once", qos=2, packet_id=1, dup=True)
        owner.expect_ack(Kind.PUBREC, 1)
    owner.send(packets.ack(Kind.PUBREL, 1))
    owner.expect_ack(Kind.PUBCOMP, 1, reason=0)
    owner.publish("t", b"marker", qos=2)
    assert [subscriber.receive_a(Publish).payload for _ in range(2)] == [b"once", b"marker"]


@pytest.mark.requirement("SES-15", "SES-17")
@each_version
def test_no_message_is_lost_or_doubled_while_a_session_moves_under_load(
    broker: Broker, version: Version
) -> None:
    count = 400
    properties = kept(version, stored=True)
    owner = broker.client(version, "same", clean=False, properties=properties)
    owner.subscribe("t", options=2)
    publisher = broker.client(version, "publisher")
    numbers = range(1, count + 1)
    publisher.send(
        *(
            packets.publish("t", b"%d" % number, version=version, qos=2, packet_id=number)
            for number in numbers
        )
    )
    open_ids: dict[int, bytes] = {}
    order: list[bytes] = []
    for _ in range(MOVES):
        for _ in range(20):
            take_exactly_once(owner, open_ids, order)
        owner = broker.client(version, "same", clean=False, properties=properties)
    while len(order) < count:
        take_exactly_once(owner, open_ids, order)
    assert order == [b"%d" % number for number in numbers]
    for number in numbers:
        publisher.expect_ack(Kind.PUBREC, number)


def take_exactly_once(peer: MqttPeer, open_ids: dict[int, bytes], order: list[bytes]) -> None:
    """Do one step of a QoS 2 receiver that keeps its ids over connections, as a client must."""
    received = peer.receive()
    if isinstance(received, Publish):
        assert received.packet_id is not None
        if received.packet_id not in open_ids:
            open_ids[received.packet_id] = received.payload
            order.append(received.payload)
        assert open_ids[received.packet_id] == received.payload
        peer.send(packets.ack(Kind.PUBREC, received.packet_id))
        return
    assert isinstance(received, Ack)
    assert received.kind == Kind.PUBREL
    open_ids.pop(received.packet_id, None)
    peer.send(packets.ack(Kind.PUBCOMP, received.packet_id))


@pytest.mark.requirement("SES-15", "DP-30")
@each_version
@pytest.mark.parametrize("clean", [True, False])
def test_rapid_takeovers_leave_exactly_one_connection(
    broker: Broker, version: Version, clean: bool
) -> None:
    properties = kept(version, stored=not clean)
    before = [broker.peer(version) for _ in range(TAKEOVERS)]
    for peer in before:  # nobody waits for an answer: many claims are under way at a time
        peer.send(packets.connect("same", version=version, clean=clean, properties=properties))
    wait_until(lambda: closes(broker) == TAKEOVERS - 1, what="one connection is left")
    last = broker.client(version, "same", clean=clean, properties=properties)
    wait_until(lambda: closes(broker) == TAKEOVERS, what="only the last one is left")
    last.subscribe("t", options=1)
    last.send_publish("t", b"own", qos=0)
    assert last.receive_a(Publish).payload == b"own"
    for peer in before:
        peer.close()
    wait_until(lambda: broker.statistics().connections == 1, what="no connection lingers")
    statistics = broker.statistics()
    assert statistics.sessions_stored == (0 if clean else 1)
    assert statistics.connections_total == TAKEOVERS + 1
    assert closes(broker) == TAKEOVERS


def closes(broker: Broker) -> int:
    """Count the connections that ended, whatever for."""
    return sum(broker.statistics().closes_total.values())
