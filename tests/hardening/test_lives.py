"""Storms of coming and going: nothing is left over, nobody is confused with somebody else."""

import threading
from contextlib import suppress
from typing import Final

import pytest

from tests.hardening.conftest import Victim
from tests.harness import packets
from tests.harness.packets import Key, Kind, Publish, UnsubAck, Version
from tests.harness.storm import open_socket, send_and_wait_for_the_end

TAKEOVERS: Final = 20_000
THREADS: Final = 2
IDS: Final = 3
FLAT_KIB: Final = 4 * 1024


def take_over_again_and_again(port: int, count: int, offset: int) -> None:
    """Connect with ids that others use too, saying a little each time, never reading the answer."""
    for at in range(count):
        number = at + offset
        client_id, version = f"same-{number % IDS}", (Version.V311, Version.V5)[number // 2 % 2]
        clean = number % 5 != 0
        said = packets.connect(client_id, version=version, clean=clean)
        shared = "$share/g/" if number % 4 == 1 else ""
        filter_name = f"{shared}jitter/{number % 7}"
        said += packets.subscribe(1, (filter_name, number % 3), version=version)
        qos = number % 3
        said += packets.publish(
            f"jitter/{number % 5}", b"x", version=version, qos=qos, packet_id=2 if qos else None
        )
        if number % 4 < 2:
            said += packets.unsubscribe(3, filter_name, version=version)
        with open_socket(port) as peer:
            peer.sendall(said)
            if number % 3 == 0:
                # Sometimes its CONNACK is there before it goes, sometimes it is taken over first.
                with suppress(ConnectionResetError):
                    peer.recv(2)


@pytest.mark.hardening("takeover-storm")
@pytest.mark.requirement("SES-12", "SES-15", "SES-17", "DP-30")
def test_20_000_takeovers_with_jitter_leave_nothing(victim: Victim) -> None:
    """CVE-2025-59946, CVE-2026-22040: storms of reconnects with one id corrupted lists."""
    take_over_again_and_again(victim.port, 500, 0)
    victim.wait_connections(0)
    before = victim.facts()
    threads = [
        threading.Thread(
            target=take_over_again_and_again, args=(victim.port, TAKEOVERS // THREADS, at)
        )
        for at in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    victim.wait_connections(0)
    for number in range(IDS):
        with victim.peer(f"same-{number}") as last:  # a clean start ends what was stored
            last.ping()
    victim.wait_connections(0)
    statistics, after = victim.statistics(), victim.facts()
    assert (statistics["subscriptions"], statistics["sessions_stored"]) == (0, 0)
    victim.wait_descriptors(before.descriptors)
    assert after.threads <= before.threads
    assert after.memory_kib - before.memory_kib < FLAT_KIB
    victim.still_serves()


def comings_and_goings(victim: Victim, count: int) -> None:
    """Connect, subscribe and leave in every way there is."""
    opening = packets.connect("", version=Version.V5)
    subscribing = packets.subscribe(1, ("leaving/#", 1), version=Version.V5)
    ways = (
        opening + subscribing + packets.PACKET_DISCONNECT,
        opening + subscribing + b"\x00\x00",
        opening + packets.connect("again", version=Version.V5),
        b"\xff",
    )
    send_and_wait_for_the_end(victim.port, (ways[at % len(ways)] for at in range(count)))


@pytest.mark.requirement("DP-30", "SES-12")
@pytest.mark.parametrize(
    "count", [8_000, pytest.param(100_000, marks=[pytest.mark.night, pytest.mark.timeout(900)])]
)
def test_connections_come_and_go_without_growth(victim: Victim, count: int) -> None:
    comings_and_goings(victim, 2_000)
    victim.wait_connections(0)
    before = victim.facts()
    comings_and_goings(victim, count)
    victim.wait_connections(0)
    after = victim.facts()
    assert victim.statistics()["subscriptions"] == 0
    victim.wait_descriptors(before.descriptors)
    assert after.threads <= before.threads
    assert after.memory_kib - before.memory_kib < FLAT_KIB


@pytest.mark.hardening("lifetimes")
@pytest.mark.requirement("SUB-06")
@pytest.mark.parametrize("stored", [False, True], ids=["transient", "stored"])
def test_a_thousand_filters_are_unsubscribed_during_delivery(victim: Victim, stored: bool) -> None:
    """CVE-2024-8376 and its kin: what had begun is finished, and nothing comes behind UNSUBACK."""
    keep = ((Key.SESSION_EXPIRY, 60),) if stored else ()
    with victim.peer("leaver", keep=keep) as leaver, victim.peer("publisher") as publisher:
        for number in range(1_000):
            leaver.subscribe("leaving", options=1 + number % 2)
            for packet_id in (1, 2):
                publisher.send_publish("leaving", b"%d" % number, qos=1, packet_id=packet_id)
            begun = [leaver.receive_a(Publish)]
            leaver.send(packets.unsubscribe(9, "leaving", version=Version.V5))
            while isinstance(received := leaver.receive(), Publish):
                begun.append(received)
            assert isinstance(received, UnsubAck)
            for packet_id in (1, 2):
                publisher.expect_ack(Kind.PUBACK, packet_id)
            publisher.publish("leaving", b"too late", qos=1)
            for message in begun:
                assert message.payload == b"%d" % number
                leaver.acknowledge(message)
            leaver.ping()
    with victim.peer("leaver"):
        pass  # a clean start discards what was stored
    victim.wait_connections(0)
    assert victim.statistics()["subscriptions"] == 0


@pytest.mark.requirement("DP-29")
def test_what_another_shards_subscriber_never_acknowledged_comes_again(victim: Victim) -> None:
    keep = ((Key.SESSION_EXPIRY, 60),)
    # Connections rotate over two shards, so two publishers in a row sit on both.
    with victim.peer("left") as left, victim.peer("right") as right:
        subscriber = victim.peer("kept", keep=keep)
        subscriber.subscribe("resend", options=1)
        for publisher in (left, right):
            publisher.publish("resend", b"again", qos=1)
            assert subscriber.receive_a(Publish).dup is False
        subscriber.close()
        with victim.peer("kept", clean=False, keep=keep) as again:
            messages = [again.take() for _ in range(2)]
            assert [(m.payload, m.dup) for m in messages] == [(b"again", True)] * 2
        with victim.peer("kept"):
            pass
