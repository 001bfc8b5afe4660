"""3.1 and 3.1.1 hear their own bytes only: never a reason code, never a property (WIRE-05).

The conversations are compared byte by byte, because a parser that knows MQTT 5 would forgive.
"""

import pytest

from tests.conformance.conftest import Broker
from tests.harness import packets
from tests.harness.packets import Key, Kind, Properties, Version, Will

older = pytest.mark.parametrize("version", [Version.V31, Version.V311])
with_sessions = pytest.mark.parametrize("clean", [True, False], ids=["transient", "stored"])

RICH: Properties = (
    (Key.MESSAGE_EXPIRY, 600),
    (Key.CONTENT_TYPE, "text/plain"),
    (Key.USER_PROPERTY, ("a", "b")),
)


@pytest.mark.requirement("WIRE-05", "WIRE-04")
@older
@with_sessions
def test_every_acknowledgement_is_spelled_as_of_old(
    broker: Broker, version: Version, clean: bool
) -> None:
    peer = broker.peer(version)
    peer.send(packets.connect("peer", version=version, clean=clean))
    peer.expect("20 02 00 00")
    peer.send(packets.subscribe(1, ("a", 0), ("b", 1), ("c", 2), version=version))
    peer.expect("90 05 00 01 00 01 02")
    peer.send(packets.unsubscribe(2, "a", "never", version=version))
    peer.expect("b0 02 00 02")
    peer.send(packets.publish("nobody", version=version, qos=1, packet_id=3))
    peer.expect("40 02 00 03")
    peer.send(packets.publish("nobody", version=version, qos=2, packet_id=4))
    peer.expect("50 02 00 04")
    peer.send(packets.ack(Kind.PUBREL, 4))
    peer.expect("70 02 00 04")
    peer.send(packets.ack(Kind.PUBREL, 5))  # nobody knows this exchange
    peer.expect("70 02 00 05")
    peer.send(packets.ack(Kind.PUBREC, 6))  # nor this one
    peer.expect("62 02 00 06")
    peer.send(packets.PACKET_PINGREQ)
    peer.expect("d0 00")


@pytest.mark.requirement("WIRE-05", "WIRE-14")
@older
@with_sessions
def test_a_message_of_a_newer_client_loses_its_properties(
    broker: Broker, version: Version, clean: bool
) -> None:
    peer = broker.client(version, "peer", clean=clean)
    peer.subscribe("t", options=2)
    publisher = broker.client(Version.V5, "publisher")
    for qos, expected in ((0, "30 04 00 01 74 78"), (1, "32 06 00 01 74 00 01 78")):
        publisher.publish("t", b"x", qos=qos, properties=RICH)
        peer.expect(expected)
    peer.send(packets.ack(Kind.PUBACK, 1))
    publisher.publish("t", b"x", qos=2, properties=RICH)
    peer.expect("34 06 00 01 74 00 02 78")
    peer.send(packets.ack(Kind.PUBREC, 2))
    peer.expect("62 02 00 02")
    peer.send(packets.ack(Kind.PUBCOMP, 2))


@pytest.mark.requirement("WIRE-05", "RET-03")
@older
@with_sessions
def test_retained_messages_and_wills_of_newer_clients_lose_theirs(
    broker: Broker, version: Version, clean: bool
) -> None:
    broker.client(Version.V5, "publisher").publish("t", b"x", qos=1, retain=True, properties=RICH)
    peer = broker.client(version, "peer", clean=clean)
    peer.send(packets.subscribe(1, ("t", 0), version=version))
    peer.expect("90 03 00 01 00", "31 04 00 01 74 78")
    broker.client(Version.V5, "dying", will=Will("t", b"w", properties=RICH)).close()
    peer.expect("30 04 00 01 74 77")


@pytest.mark.requirement("WIRE-05", "SES-20")
@older
def test_a_message_that_waited_loses_its_properties_too(broker: Broker, version: Version) -> None:
    peer = broker.client(version, "peer", clean=False)
    peer.subscribe("t", options=1)
    peer.leave()
    broker.client(Version.V5, "publisher").publish("t", b"x", qos=1, properties=RICH)
    present = "01" if version == Version.V311 else "00"
    for first_byte in ("32", "3a"):
        back = broker.peer(version)
        back.send(packets.connect("peer", version=version, clean=False))
        back.expect("20 02", present, "00", first_byte, "06 00 01 74 00 01 78")
        back.close()


@pytest.mark.requirement("WIRE-05", "WIRE-02")
@older
def test_every_end_is_a_bare_close(broker: Broker, version: Version) -> None:
    ways_to_fail = [
        packets.connect("again", version=version),
        packets.publish("a/#", version=version),
        packets.subscribe(1, ("a/#/b", 0), version=version),
        packets.unsubscribe(1, "#/b", version=version),
        bytes.fromhex("f0 00"),
        bytes.fromhex("30 ff ff ff ff"),
        bytes.fromhex("36 05 00 01 74 00 01"),
    ]
    for sent in ways_to_fail:
        peer = broker.client(version, "peer")
        peer.send(sent)
        assert peer.receive_until_closed() == b""


@pytest.mark.requirement("WIRE-05", "SES-15")
@older
def test_a_newer_client_that_takes_over_leaves_no_trace_on_the_old_connection(
    broker: Broker, version: Version
) -> None:
    peer = broker.client(version, "same")
    broker.client(Version.V5, "same")
    assert peer.receive_until_closed() == b""
