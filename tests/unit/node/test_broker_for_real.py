"""The broker object on the real native node: what the fake one promises holds there, too."""

import asyncio
import os
from collections.abc import Sequence

import pytest

from quantumqtt.errors import InternalError, TransportError
from quantumqtt.mqtt import ReasonCode
from quantumqtt.node import Broker
from quantumqtt.node.native import open_native_node
from quantumqtt.policy import AdmissionRequest
from tests.harness.plans import small_plan
from tests.harness.ports import taken_port
from tests.harness.raw_peer import RawPeer, connect_packet, packet, text

ANY_PORT = ("tcp://127.0.0.1:0",)


def port_of(broker: Broker) -> int:
    return broker.listeners[0].port


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_two_brokers_carry_messages_and_do_not_know_each_other() -> None:
    def talk(first: int, second: int) -> None:
        publish = packet(0x30, text("a"), b"hello")
        with RawPeer("127.0.0.1", first) as subscriber, RawPeer("127.0.0.1", second) as stranger:
            for peer in (subscriber, stranger):
                peer.send(connect_packet("c"), packet(0x82, "00 01", text("a"), "00"))
                peer.expect("20 02 00 00", "90 03 00 01 00")
            stranger.send(publish, "c0 00")
            stranger.expect(publish, "d0 00")
            subscriber.send("c0 00")
            subscriber.expect("d0 00")

    async def scenario() -> tuple[int, int]:
        async with (
            Broker(listen=ANY_PORT, shards=1) as one,
            Broker(listen=ANY_PORT, shards=2) as other,
        ):
            await asyncio.to_thread(talk, port_of(one), port_of(other))
            sent = (one.statistics().publishes_sent_total, other.statistics().publishes_sent_total)
        return sent[0][0], sent[1][0]

    assert asyncio.run(scenario()) == (0, 1)


def test_events_tell_who_came_and_why_they_left() -> None:
    async def scenario() -> list[tuple[str, str | None, str | None, str | None]]:
        async with Broker(listen=ANY_PORT, shards=1) as broker:
            stream = broker.events()

            def visit() -> None:
                with RawPeer("127.0.0.1", port_of(broker)) as peer:
                    peer.send(connect_packet("ann", level=5))
                    peer.receive_packet()
                    peer.send("e0 00")
                    peer.expect_closed()

            await asyncio.to_thread(visit)
            told = [await anext(stream), await anext(stream)]
        return [(event.kind, event.client_id, event.protocol, event.reason) for event in told]

    assert asyncio.run(scenario()) == [
        ("session_opened", "ann", "5.0", None),
        ("session_closed", "ann", "5.0", "normal"),
    ]


def test_who_comes_is_told_unasked_only_while_a_client_watches() -> None:
    node = open_native_node(small_plan())
    port = node.start()[0].port

    def visit(name: str) -> None:
        with RawPeer("127.0.0.1", port) as peer:
            peer.send(connect_packet(name))
            peer.expect("20 02 00 00")
            peer.send("e0 00")
            peer.expect_closed()

    def told() -> list[str | None]:
        return [event.client_id for event in node.poll_events() if event.kind == "session_opened"]

    try:
        visit("always")
        assert told() == ["always"]
        node.tell_sessions(always=False)
        with RawPeer("127.0.0.1", port) as watcher:
            watcher.send(connect_packet("watcher"))
            watcher.expect("20 02 00 00")
            for number, (pattern, is_watched) in enumerate(
                (
                    ("$SYS/broker/#", False),
                    ("$SYS/brokers/+/clients/#", True),
                    ("$share/g/$SYS/#", True),
                )
            ):
                watcher.send(packet(0x82, "00 01", text(pattern), "00"))
                watcher.expect("90 03 00 01 00")
                visit(f"c{number}")
                assert told() == ([f"c{number}"] if is_watched else []), pattern
                watcher.send(packet(0xA2, "00 02", text(pattern)))
                watcher.expect("b0 02 00 02")
                visit("nobody asked")
                assert told() == [], pattern
    finally:
        node.stop()


def test_the_hook_decides_and_the_client_hears_its_reason() -> None:
    asked: list[tuple[str | None, bytes | None]] = []

    async def authenticate(requests: Sequence[AdmissionRequest]) -> list[ReasonCode]:
        asked.extend((request.user_name, request.password) for request in requests)
        return [
            ReasonCode.SUCCESS if request.password == b"right" else ReasonCode.BANNED
            for request in requests
        ]

    def knock(port: int, password: str) -> int:
        flags = bytes([5, 0xC2])
        credentials = text("ann") + text(password)
        with RawPeer("127.0.0.1", port) as peer:
            peer.send(packet(0x10, text("MQTT"), flags, "00 3c", "00", text("c"), credentials))
            return peer.receive_packet()[3]

    async def scenario() -> list[int]:
        async with Broker(
            listen=ANY_PORT, shards=1, allow_anonymous=False, authenticate=authenticate
        ) as broker:
            port = port_of(broker)
            return [
                await asyncio.to_thread(knock, port, password) for password in ("right", "wrong")
            ]

    assert asyncio.run(scenario()) == [0x00, 0x8A]
    assert asked == [("ann", b"right"), ("ann", b"wrong")]


def test_without_a_hook_strangers_are_refused_natively() -> None:
    async def scenario() -> int:
        async with Broker(listen=ANY_PORT, shards=1, allow_anonymous=False) as broker:

            def knock() -> None:
                with RawPeer("127.0.0.1", port_of(broker)) as peer:
                    peer.send(connect_packet("c"))
                    peer.expect("20 02 00 05")
                    peer.expect_closed()

            await asyncio.to_thread(knock)
            return broker.statistics().refusals_total["anonymous_not_allowed"]

    assert asyncio.run(scenario()) == 1


def test_a_taken_port_is_named_with_a_remedy() -> None:
    async def scenario(port: int) -> None:
        await Broker(listen=[f"tcp://127.0.0.1:{port}"], shards=1).start()

    with taken_port() as port, pytest.raises(TransportError, match=f":{port}") as caught:
        asyncio.run(scenario(port))
    assert "choose another port" in str(caught.value.hint)


def test_many_lives_leave_no_descriptor_behind() -> None:
    async def live() -> None:
        async with Broker(listen=ANY_PORT, shards=2) as broker:
            with RawPeer("127.0.0.1", port_of(broker)) as peer:
                peer.send(connect_packet("c"))
                await asyncio.to_thread(peer.expect, "20 02 00 00")

    # The first life loads what stays loaded.
    asyncio.run(live())
    before = open_descriptors()
    for _ in range(5):
        asyncio.run(live())
    assert open_descriptors() == before


def test_a_node_answers_only_while_it_runs_as_the_fake_one_does() -> None:
    node = open_native_node(small_plan())
    with pytest.raises(InternalError):
        node.statistics()
    node.start()
    assert node.statistics().connections == 0
    node.stop()
    node.stop()
    with pytest.raises(InternalError):
        node.poll_events()
