"""CONNECT and CONNACK: who may come in, and what the others hear."""

import pytest

from tests.conformance.conftest import Broker, StartBroker
from tests.harness import packets
from tests.harness.packets import ConnAck, Key, Kind, Version, Will, value
from tests.harness.raw_peer import packet, text

CONNECT_BODY_END = bytes.fromhex("00 3c 00 01 61")


@pytest.mark.requirement("WIRE-03")
@pytest.mark.clause("MQTT-3.1.2-1", "MQTT-3.2.0-1")
def test_each_version_is_answered_in_its_own_form(broker: Broker) -> None:
    for version in (Version.V31, Version.V311):
        peer = broker.peer(version)
        peer.send(packets.connect("a", version=version))
        peer.expect("20 02 00 00")
    newest = broker.peer(Version.V5)
    newest.send(packets.connect("b", version=Version.V5))
    connack = newest.receive_a(ConnAck)
    assert (connack.session_present, connack.reason) == (False, 0)


@pytest.mark.hardening("refused-socket")
@pytest.mark.requirement("WIRE-03")
@pytest.mark.clause("MQTT-3.1.2-2")
@pytest.mark.parametrize("level", [0, 1, 2, 3, 6, 127])
def test_an_unknown_level_is_refused_and_closed(broker: Broker, level: int) -> None:
    peer = broker.raw_peer()
    peer.send(packet(0x10, text("MQTT"), bytes([level, 2]), CONNECT_BODY_END))
    assert peer.receive_packet().hex() in {"20020001", "2003008400"}
    peer.expect_closed()


@pytest.mark.requirement("WIRE-03")
@pytest.mark.clause("MQTT-3.1.2-1")
@pytest.mark.parametrize(
    ("name", "level"), [("MQIsdp", 4), ("mqtt", 4), ("MQTTX", 5), ("", 4), ("HTTP", 1)]
)
def test_an_unknown_name_is_closed_without_success(broker: Broker, name: str, level: int) -> None:
    peer = broker.peer(Version.V311)
    peer.send(packet(0x10, text(name), bytes([level, 2]), CONNECT_BODY_END))
    answer = peer.receive_until_closed()
    assert answer.hex() in {"", "20020001", "2003008400"}


@pytest.mark.requirement("WIRE-11", "WIRE-01")
@pytest.mark.clause("MQTT-3.1.0-1")
@pytest.mark.parametrize(
    "first",
    [
        packets.publish("t", b"x"),
        packets.publish("t", b"x", qos=1, packet_id=1),
        packets.ack(Kind.PUBACK, 1),
        packets.ack(Kind.PUBREC, 1),
        packets.ack(Kind.PUBREL, 1),
        packets.ack(Kind.PUBCOMP, 1),
        packets.subscribe(1, ("t", 0)),
        packets.unsubscribe(1, "t"),
        packets.PACKET_PINGREQ,
        packets.PACKET_DISCONNECT,
        bytes.fromhex("20 02 00 00"),
        bytes.fromhex("d0 00"),
        bytes.fromhex("f0 00"),
    ],
    ids=lambda first: Kind(first[0] >> 4).name,
)
def test_anything_before_connect_closes_without_a_word(broker: Broker, first: bytes) -> None:
    peer = broker.raw_peer()
    peer.send(first)
    peer.expect_closed()


@pytest.mark.requirement("WIRE-11")
@pytest.mark.clause("MQTT-3.1.0-2")
@pytest.mark.parametrize("version", Version)
def test_a_second_connect_ends_the_connection(broker: Broker, version: Version) -> None:
    peer = broker.client(version, "twice")
    peer.send(packets.connect("twice", version=version))
    peer.expect_end(0x82)


@pytest.mark.hardening("silent-socket")
@pytest.mark.requirement("WIRE-11")
def test_a_connect_that_never_comes_is_not_waited_for(start_broker: StartBroker) -> None:
    peer = start_broker(connect_timeout_ms=100).raw_peer()
    peer.send("10")
    peer.expect_closed()


@pytest.mark.requirement("WIRE-11", "WIRE-07")
@pytest.mark.clause("MQTT-3.1.4-5")
@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("clean", [True, False])
def test_packets_right_behind_connect_are_answered_behind_connack(
    broker: Broker, version: Version, clean: bool
) -> None:
    peer = broker.peer(version)
    peer.send(
        packets.connect("eager", version=version, clean=clean),
        packets.subscribe(7, ("t", 1), version=version),
        packets.publish("t", b"own", version=version, qos=1, packet_id=8),
        packets.PACKET_PINGREQ,
    )
    assert peer.receive_a(ConnAck).reason == 0
    rest = [peer.receive() for _ in range(4)]
    assert packets.SubAck(7, (1,)) in rest
    kinds = {type(one) for one in rest}
    assert kinds == {packets.SubAck, packets.Ack, packets.Publish, packets.PingResp}


@pytest.mark.requirement("WIRE-04", "WIRE-18")
@pytest.mark.parametrize("client_id", ["", "x" * 24])
def test_3_1_refuses_client_ids_it_does_not_allow(broker: Broker, client_id: str) -> None:
    peer = broker.peer(Version.V31)
    peer.send(packets.connect(client_id, version=Version.V31))
    peer.expect("20 02 00 02")
    peer.expect_closed()


@pytest.mark.requirement("WIRE-04")
@pytest.mark.parametrize("client_id", ["x", "x" * 23])
def test_3_1_takes_client_ids_of_1_to_23_characters(broker: Broker, client_id: str) -> None:
    broker.client(Version.V31, client_id).ping()


@pytest.mark.requirement("WIRE-04")
def test_3_1_1_and_5_take_long_client_ids(broker: Broker) -> None:
    for version in (Version.V311, Version.V5):
        broker.client(version, "ü" * 5_000 + version.name).ping()


@pytest.mark.hardening("refused-socket")
@pytest.mark.requirement("WIRE-18")
@pytest.mark.clause("MQTT-3.1.3-8")
def test_3_1_1_needs_a_client_id_to_keep_a_session(broker: Broker) -> None:
    peer = broker.peer(Version.V311)
    peer.send(packets.connect("", clean=False))
    peer.expect("20 02 00 02")
    peer.expect_closed()


@pytest.mark.requirement("WIRE-18")
@pytest.mark.clause("MQTT-3.1.3-6")
def test_clients_without_an_id_do_not_displace_each_other(broker: Broker) -> None:
    peers = [broker.peer(version) for version in (Version.V311, Version.V5) for _ in range(3)]
    for peer in peers:
        peer.open("")
    for peer in peers:
        peer.ping()


@pytest.mark.requirement("WIRE-12", "WIRE-18")
@pytest.mark.clause("MQTT-3.1.3-7", "MQTT-3.2.2-16")
def test_5_is_told_the_id_it_was_given_and_owns_it(broker: Broker) -> None:
    keep = ((Key.SESSION_EXPIRY, 60),)
    first = broker.peer(Version.V5)
    connack = first.open("", clean=False, properties=keep)
    assigned = value(connack.properties, Key.ASSIGNED_CLIENT_ID)
    assert isinstance(assigned, str)
    assert assigned
    first.leave()
    again = broker.peer(Version.V5).open(assigned, clean=False, properties=keep)
    assert again.session_present
    assert value(again.properties, Key.ASSIGNED_CLIENT_ID) is None


@pytest.mark.clause("MQTT-3.1.2-3")
@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_the_reserved_connect_flag_must_be_zero(broker: Broker, version: Version) -> None:
    built = bytearray(packets.connect("a", version=version))
    built[9] |= 0x01
    peer = broker.peer(version)
    peer.send(bytes(built))
    assert peer.receive_until_closed()[3:4] in {b"", b"\x81"}


@pytest.mark.clause("MQTT-3.1.2-9", "MQTT-3.1.2-11", "MQTT-3.1.2-12")
@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("flags", [0x0A, 0x22, 0x1E], ids=["qos", "retain", "qos-3"])
def test_will_flags_must_make_sense(broker: Broker, version: Version, flags: int) -> None:
    will = Will("w") if flags & 0x04 else None
    built = bytearray(packets.connect("a", version=version, will=will))
    built[9] = flags
    peer = broker.peer(version)
    peer.send(bytes(built))
    assert peer.receive_until_closed()[3:4] in {b"", b"\x81"}


@pytest.mark.clause("MQTT-3.1.2-22")
def test_3_1_1_needs_a_user_name_beside_a_password(broker: Broker) -> None:
    peer = broker.peer(Version.V311)
    peer.send(packets.connect("a", password=b"secret"))
    assert peer.receive_until_closed() == b""


def test_5_takes_a_password_alone(broker: Broker) -> None:
    peer = broker.peer(Version.V5)
    peer.send(packets.connect("a", version=Version.V5, password=b"secret"))
    assert peer.receive_a(ConnAck).reason == 0


@pytest.mark.clause("MQTT-4.12.0-1")
def test_an_unknown_authentication_method_is_refused(broker: Broker) -> None:
    method = ((Key.AUTHENTICATION_METHOD, "SCRAM-SHA-1"),)
    peer = broker.peer(Version.V5)
    peer.send(packets.connect("a", version=Version.V5, properties=method))
    assert peer.receive_a(ConnAck).reason == 0x8C
    peer.expect_closed()


@pytest.mark.requirement("WIRE-01", "WIRE-19")
@pytest.mark.clause("MQTT-3.14.4-1")
@pytest.mark.parametrize("version", Version)
def test_a_ping_is_answered_and_a_disconnect_is_followed_by_a_close(
    broker: Broker, version: Version
) -> None:
    peer = broker.client(version)
    peer.ping()
    peer.leave()


@pytest.mark.requirement("WIRE-01")
@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize(
    "wrong",
    ["20 02 00 00", "90 03 00 01 00", "b0 02 00 01", "d0 00"],
    ids=["CONNACK", "SUBACK", "UNSUBACK", "PINGRESP"],
)
def test_a_packet_only_servers_send_ends_the_connection(
    broker: Broker, version: Version, wrong: str
) -> None:
    peer = broker.client(version)
    peer.send(wrong)
    peer.expect_end(0x81, 0x82)
