"""Every packet, in every state a connection can be in, has an answer we can name.

Mosquitto's CVE-2021-34432, CVE-2018-12543 and CVE-2021-28166, rumqtt's pull request 812, mochi's
issue 501 and sol's issue 15 are one mistake: a packet nobody expected at that moment.
"""

from enum import Enum
from typing import Final

import pytest

from tests.conformance.conftest import Broker
from tests.harness import packets
from tests.harness.packets import Kind, Version
from tests.harness.raw_peer import packet, text


class Answer(Enum):
    """What a client hears."""

    REFUSED = "closed; told 0x82 or 0x81 in MQTT 5"
    SILENCE = "nothing, and it goes on"
    ANSWERED = "an acknowledgement, and it goes on"
    GOODBYE = "closed without a word, as asked"


def server_only(kind: Kind, body: str) -> bytes:
    return packet(kind << 4, body)


def whole_packets(version: Version) -> dict[Kind, bytes]:
    """Build a well-formed packet of every type, those of servers included."""
    is_v5 = version == Version.V5
    return {
        Kind.CONNECT: packets.connect("again", version=version),
        Kind.CONNACK: server_only(Kind.CONNACK, "00 00 00" if is_v5 else "00 00"),
        Kind.PUBLISH: packets.publish("t", b"x", version=version, qos=1, packet_id=9),
        Kind.PUBACK: packets.ack(Kind.PUBACK, 9),
        Kind.PUBREC: packets.ack(Kind.PUBREC, 9),
        Kind.PUBREL: packets.ack(Kind.PUBREL, 9),
        Kind.PUBCOMP: packets.ack(Kind.PUBCOMP, 9),
        Kind.SUBSCRIBE: packets.subscribe(9, ("t", 1), version=version),
        Kind.SUBACK: server_only(Kind.SUBACK, "00 09 00 00" if is_v5 else "00 09 00"),
        Kind.UNSUBSCRIBE: packets.unsubscribe(9, "t", version=version),
        Kind.UNSUBACK: server_only(Kind.UNSUBACK, "00 09 00 00" if is_v5 else "00 09"),
        Kind.PINGREQ: packets.PACKET_PINGREQ,
        Kind.PINGRESP: server_only(Kind.PINGRESP, ""),
        Kind.DISCONNECT: packets.PACKET_DISCONNECT,
        Kind.AUTH: packet(Kind.AUTH << 4, "18 00"),
    }


WHILE_CONNECTED: Final = {
    Kind.PUBLISH: Answer.ANSWERED,
    Kind.PUBACK: Answer.SILENCE,  # for nothing we sent: no answer exists
    Kind.PUBREC: Answer.ANSWERED,
    Kind.PUBREL: Answer.ANSWERED,
    Kind.PUBCOMP: Answer.SILENCE,
    Kind.SUBSCRIBE: Answer.ANSWERED,
    Kind.UNSUBSCRIBE: Answer.ANSWERED,
    Kind.PINGREQ: Answer.ANSWERED,
    Kind.DISCONNECT: Answer.GOODBYE,
}

each_packet = pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)
each_version = pytest.mark.parametrize("version", Version, ids=lambda version: version.name)


@pytest.mark.hardening("every-state")
@pytest.mark.requirement("WIRE-21", "DP-06", "DP-30")
@each_version
@each_packet
def test_before_connect_everything_else_is_the_end(
    broker: Broker, version: Version, kind: Kind
) -> None:
    if kind == Kind.CONNECT:
        assert broker.client(version, "first").version == version
        return
    stranger = broker.peer(version)
    stranger.send(whole_packets(version)[kind])
    stranger.expect_closed()
    broker.client(version, "bystander").ping()


@pytest.mark.hardening("every-state")
@pytest.mark.requirement("WIRE-21", "DP-06", "DP-30")
@each_version
@each_packet
def test_a_connected_client_gets_the_answer_we_name(
    broker: Broker, version: Version, kind: Kind
) -> None:
    peer, bystander = broker.client(version, "peer"), broker.client(version, "bystander")
    peer.send(whole_packets(version)[kind])
    match WHILE_CONNECTED.get(kind, Answer.REFUSED):
        case Answer.REFUSED:
            peer.expect_end(0x82, 0x81)
        case Answer.GOODBYE:
            peer.expect_closed()
        case Answer.ANSWERED:
            peer.receive()
            peer.ping()
        case Answer.SILENCE:
            peer.ping()
    bystander.ping()


@pytest.mark.hardening("every-state")
@pytest.mark.requirement("DP-06")
@each_version
@each_packet
def test_what_follows_a_goodbye_is_not_heard(broker: Broker, version: Version, kind: Kind) -> None:
    watcher = broker.client(version, "watcher")
    watcher.subscribe("t", options=1)
    peer = broker.client(version, "peer")
    peer.send(packets.PACKET_DISCONNECT, whole_packets(version)[kind])
    assert peer.receive_until_closed() == b""
    watcher.ping()


@pytest.mark.hardening("every-state")
@pytest.mark.requirement("WIRE-21")
@each_version
@each_packet
@pytest.mark.parametrize("connected", [False, True], ids=["fresh", "connected"])
def test_an_empty_body_is_answered_too(
    broker: Broker, version: Version, kind: Kind, connected: bool
) -> None:
    """Truncated SUBSCRIBE and friends reached asserts elsewhere."""
    flags = 2 if kind in {Kind.PUBREL, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE} else 0
    peer = broker.client(version, "peer") if connected else broker.peer(version)
    peer.send(packet(kind << 4 | flags))
    peer.shut_writing()
    peer.receive_until_closed()
    broker.client(version, "bystander").ping()


@pytest.mark.hardening("every-state")
@pytest.mark.requirement("WIRE-21", "SUB-06")
@each_version
@pytest.mark.parametrize("topic", ["", "#", "a/+", "$", "$x", "$share/g/t", "/", "\x00"])
def test_strange_topics_to_publish_are_refused_or_reach_nobody_wrong(
    broker: Broker, version: Version, topic: str
) -> None:
    """CVE-2021-34432 (zero-length topic), CVE-2018-12543 (`$x` topics)."""
    watcher = broker.client(version, "watcher")
    watcher.subscribe("+", "+/+/+")
    peer = broker.client(version, "peer")
    body = text(topic) + b"\x00\x01" + (b"\x00" if version == Version.V5 else b"") + b"x"
    peer.send(packet(0x32, body))
    if topic in {"$", "$x", "$share/g/t", "/"}:
        peer.expect_ack(Kind.PUBACK, 1)
    else:
        peer.expect_end(0x81, 0x82, 0x90)
    watcher.ping()
