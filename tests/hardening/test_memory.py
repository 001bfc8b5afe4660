"""What attackers used to fill other brokers' memory with costs ours nothing that stays."""

import socket
from typing import Final

import pytest

from tests.hardening.conftest import Victim, run_victim
from tests.harness import packets
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.packets import Kind, Publish, Version, Will
from tests.harness.ports import LOOPBACK
from tests.harness.raw_peer import packet, text
from tests.harness.storm import crowd, open_socket, receive_exactly, send_and_wait_for_the_end

MIB_KIB: Final = 1024
# The allocator keeps a little of what it was given; what grows without end passes any of these.
FLAT_KIB: Final = 2 * MIB_KIB


@pytest.mark.hardening("announced-length")
@pytest.mark.requirement("WIRE-21")
@pytest.mark.parametrize(
    "announced",
    ["10 ff ff ff 7f", "10 ff ff ff 07", "30 ff ff ff 07"],
    ids=["connect-256-MiB", "connect-16-MiB", "publish-16-MiB"],
)
def test_200_announced_packets_cost_less_than_10_mib(victim: Victim, announced: str) -> None:
    """CVE-2017-7651, CVE-2023-0809, CVE-2019-0222: the announced length was believed."""
    opening = packets.connect("") if announced.startswith("30") else b""
    before = victim.facts()
    with crowd(victim.port, 200, opening + bytes.fromhex(announced)) as members:
        if opening:
            for member in members:
                receive_exactly(member, 4)
        victim.still_serves()
        assert victim.facts().memory_kib - before.memory_kib < 10 * MIB_KIB
    victim.wait_connections(0)


def refused_connects() -> list[bytes]:
    """Make CONNECTs that fail late, with much already read: each leaked in some broker."""
    will = Will("will/topic", bytes(2_000), 1, properties=())
    good = packets.connect("refused", version=Version.V5, will=will, user_name="u" * 500)
    user_properties = b"".join(b"\x26" + text("key") + text("value" * 20) for _ in range(20))
    bad_will = packets.varint(len(user_properties) + 2) + user_properties + b"\x18\x00"
    head = text("MQTT") + bytes([5, 0x06]) + b"\x00\x3c" + b"\x00" + text("refused")
    return [
        good[:-1] + b"\xff",
        packet(0x10, head + bad_will + text("t") + text("p")),
        packet(0x10, text("MQTT") + bytes([9, 2, 0, 60]) + text("future")),
        packet(0x10, text("MQIsdp") + bytes([3, 2, 0, 60]) + text("i" * 200)),
        packets.connect("", version=Version.V311, clean=False, will=will),
        packets.connect("x", version=Version.V5, properties=((packets.Key.RECEIVE_MAXIMUM, 0),)),
    ]


@pytest.mark.hardening("refused-connects", "refused-socket")
@pytest.mark.requirement("DP-30", "WIRE-21")
def test_20_000_refused_connects_leave_nothing(victim: Victim) -> None:
    """CVE-2021-34431, CVE-2023-3592, CVE-2017-7654: the error paths of CONNECT leaked."""
    kinds = refused_connects()
    storm = [kinds[at % len(kinds)] for at in range(20_000)]
    send_and_wait_for_the_end(victim.port, storm[:2_000])
    before = victim.facts()
    send_and_wait_for_the_end(victim.port, storm[2_000:])
    victim.wait_connections(0)
    after = victim.facts()
    assert after.memory_kib - before.memory_kib < FLAT_KIB
    victim.wait_descriptors(before.descriptors)
    victim.still_serves()


def publish_again_and_again(peer: socket.socket, count: int) -> None:
    repeated = packets.publish("twice", b"once", qos=2, packet_id=7, dup=True)
    in_one_go = 1_000
    for _ in range(count // in_one_go):
        peer.sendall(repeated * in_one_go)
        answers = receive_exactly(peer, 4 * in_one_go)
        assert answers == packet(Kind.PUBREC << 4, "00 07") * in_one_go


@pytest.mark.hardening("repeated-qos-2")
@pytest.mark.requirement("QOS-04", "WIRE-21")
@pytest.mark.parametrize("clean", [True, False], ids=["transient", "stored"])
def test_100_000_repeats_of_one_id_are_one_message(victim: Victim, clean: bool) -> None:
    """CVE-2023-28366: a QoS 2 id repeated without PUBREL leaked."""
    with victim.peer("subscriber") as subscriber, open_socket(victim.port) as publisher:
        subscriber.subscribe("twice", options=2)
        publisher.sendall(packets.connect("repeater", clean=clean))
        receive_exactly(publisher, 4)
        publish_again_and_again(publisher, 5_000)
        message = subscriber.take()
        assert (message.topic, message.payload, message.qos) == ("twice", b"once", 2)
        # What batches of any size need is taken once; a leak would go on.
        publish_again_and_again(publisher, 45_000)
        before = victim.facts()
        publish_again_and_again(publisher, 50_000)
        assert victim.facts().memory_kib - before.memory_kib < FLAT_KIB
        subscriber.ping()  # nothing else came before the answer
        publisher.sendall(packets.ack(Kind.PUBREL, 7))
        assert receive_exactly(publisher, 4) == packets.ack(Kind.PUBCOMP, 7)
    with victim.peer("repeater"):
        pass  # a clean start discards what was stored


@pytest.mark.hardening("alias-tables")
@pytest.mark.requirement("WIRE-21")
def test_aliases_of_one_client_are_bounded_by_bytes() -> None:
    """An alias is two bytes to the client and a topic of up to 64 KiB to us."""
    topic = "t" * 65_000
    with run_victim(topic_alias_max=65_535) as victim:
        before = victim.facts()
        with victim.peer("hoarder") as hoarder:
            for alias in range(1, 200):
                hoarder.send_publish(topic, properties=((packets.Key.TOPIC_ALIAS, alias),), qos=0)
            hoarder.expect_end(0x97)
        assert victim.facts().memory_kib - before.memory_kib < 8 * MIB_KIB
        with victim.peer("modest") as modest:
            modest.subscribe(topic)
            modest.send_publish(topic, properties=((packets.Key.TOPIC_ALIAS, 65_535),))
            modest.send_publish("", b"short", properties=((packets.Key.TOPIC_ALIAS, 65_535),))
            assert [modest.receive_a(Publish).payload for _ in range(2)] == [b"", b"short"]


@pytest.mark.hardening("deep-topics")
@pytest.mark.requirement("WIRE-21")
@pytest.mark.parametrize("retain", [False, True], ids=["live", "retained"])
def test_65_000_levels_pass_as_topic_and_as_filter(victim: Victim, retain: bool) -> None:
    """CVE-2019-11779: recursion per topic level."""
    topic = "/" * 65_000
    plus = "+/" * 30_000 + "#"
    with victim.peer("deep") as deep:
        assert deep.subscribe(topic, "#", plus) == (0, 0, 0)
        deep.publish(topic, b"deep", retain=retain)
        message = deep.receive_a(Publish)
        assert (len(message.topic), message.payload) == (65_000, b"deep")
        deep.ping()
        if retain:
            with MqttPeer(LOOPBACK, victim.port, Version.V311) as late:
                late.open("late")
                late.subscribe(plus)
                assert late.receive_a(Publish).retain
            deep.publish(topic, b"", retain=True)
            assert deep.receive_a(Publish).payload == b""
        deep.unsubscribe(topic, "#", plus)


@pytest.mark.hardening("many-properties")
@pytest.mark.requirement("WIRE-21")
def test_30_000_user_properties_pass_whole(victim: Victim) -> None:
    """CVE-2021-41039: many user properties were quadratic; growth is counted in crates/wire."""
    many = tuple((packets.Key.USER_PROPERTY, (f"k{at}", "v")) for at in range(30_000))
    with victim.peer("wordy") as wordy:
        wordy.subscribe("t")
        wordy.send_publish("t", properties=many)
        assert wordy.receive_a(Publish).properties == many
