"""The broker object over a node that only pretends: its life, its owners, its failures."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from quantumqtt.config import Settings
from quantumqtt.errors import ConfigError, TransportError
from quantumqtt.node import Broker, BrokerEvent, NodeState
from quantumqtt.node.broker import EXIT_DRAIN_MS
from quantumqtt.node.data_directory import DataDirectory
from quantumqtt.policy import AdmissionRequest
from tests.harness.fake_node import PORT_FIRST, FakeEvent, FakeNode, FakeStatistics

LOOPBACK_ANY_PORT = ("tcp://127.0.0.1:0",)


def test_a_block_starts_drains_and_stops() -> None:
    async def scenario(node: FakeNode) -> None:
        broker = Broker(listen=LOOPBACK_ANY_PORT, open_node=node.open)
        states = [broker.state]
        assert not broker.listeners
        async with broker:
            states.append(broker.state)
            assert [listener.url for listener in broker.listeners] == [
                f"tcp://127.0.0.1:{PORT_FIRST}"
            ]
        states.append(broker.state)
        assert states == [NodeState.NEW, NodeState.READY, NodeState.STOPPED]

    node = FakeNode()
    asyncio.run(scenario(node))
    assert node.calls == ["start", "drain", "stop"]
    assert node.drain_deadlines == [EXIT_DRAIN_MS]


def test_the_plan_says_what_was_decided() -> None:
    async def scenario(node: FakeNode) -> None:
        broker = Broker(
            listen=["tcp://localhost:0", "tcp://0.0.0.0:0"],
            shards=3,
            limits={"receive_maximum": 7, "connections_max": 99},
            open_node=node.open,
        )
        async with broker:
            pass

    node = FakeNode()
    asyncio.run(scenario(node))
    assert node.plan is not None
    doors = [(door.name, door.host, door.allow_anonymous) for door in node.plan.listeners]
    assert doors == [("tcp-1", "127.0.0.1", True), ("tcp-2", "0.0.0.0", False)]
    assert node.plan.shards == 3
    assert node.plan.limits.receive_maximum == 7
    assert node.plan.connections_max == 99
    assert not node.plan.ask_admission


def test_without_a_wish_connections_follow_the_descriptor_limit() -> None:
    async def scenario(node: FakeNode) -> None:
        async with Broker(listen=LOOPBACK_ANY_PORT, open_node=node.open):
            pass

    node = FakeNode()
    asyncio.run(scenario(node))
    assert node.plan is not None
    assert node.plan.connections_max >= 16


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"listen": ["quic://127.0.0.1:1"]}, "argument: listen = .*not in this release"),
        ({"listen": ["tls://127.0.0.1:1"]}, "argument: tls.certificate: .*needs a certificate"),
        (
            {"listener": [{"url": "tcp://127.0.0.1:1", "crl": "x"}]},
            "argument: listener.crl: .*is not encrypted",
        ),
        ({"shards": 0}, "argument: shards = 0: must be at least 1"),
        ({"limits": {"receive_max": 1}}, "argument: limits.receive_max: unknown key"),
        ({"settings": Settings(), "shards": 1}, "settings and shards are both given"),
    ],
)
def test_arguments_are_judged_before_anything_starts(
    arguments: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Broker(**arguments)  # type: ignore[arg-type]


def test_a_broker_starts_once() -> None:
    async def scenario() -> None:
        node = FakeNode()
        broker = Broker(listen=LOOPBACK_ANY_PORT, open_node=node.open)
        async with broker:
            with pytest.raises(ConfigError, match="is ready; a broker starts once"):
                await broker.start()
        with pytest.raises(ConfigError, match="is stopped; a broker starts once"):
            await broker.start()

    asyncio.run(scenario())


def test_a_start_that_fails_releases_everything(tmp_path: Path) -> None:
    async def scenario(node: FakeNode) -> Broker:
        broker = Broker(listen=LOOPBACK_ANY_PORT, data=tmp_path / "data", open_node=node.open)
        with pytest.raises(TransportError, match="cannot bind"):
            await broker.start()
        return broker

    node = FakeNode(start_error=TransportError("cannot bind 127.0.0.1:1883"))
    broker = asyncio.run(scenario(node))
    assert broker.state is NodeState.STOPPED
    assert node.calls == ["start", "stop"]
    DataDirectory.claim(tmp_path / "data").release()


def test_the_data_directory_is_locked_as_long_as_the_broker_lives(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = FakeNode()
        async with Broker(listen=LOOPBACK_ANY_PORT, data=tmp_path / "data", open_node=node.open):
            with pytest.raises(ConfigError, match="in use by a running broker"):
                DataDirectory.claim(tmp_path / "data")
        DataDirectory.claim(tmp_path / "data").release()

    asyncio.run(scenario())


def test_statistics_are_those_of_the_node_and_only_while_it_runs() -> None:
    async def scenario() -> None:
        node = FakeNode()
        broker = Broker(listen=LOOPBACK_ANY_PORT, open_node=node.open)
        with pytest.raises(TransportError, match="not running"):
            broker.statistics()
        async with broker:
            node.snapshot = FakeStatistics(connections=4)
            assert broker.statistics().connections == 4
        with pytest.raises(TransportError, match="not running"):
            broker.statistics()

    asyncio.run(scenario())


def test_events_reach_streams_and_callbacks_and_end_with_the_broker() -> None:
    called: list[str | None] = []

    def fragile(event: BrokerEvent) -> None:
        called.append(event.client_id)
        raise RuntimeError("a bug of the embedding program")

    async def scenario() -> list[str | None]:
        node = FakeNode()
        broker = Broker(listen=LOOPBACK_ANY_PORT, open_node=node.open)
        broker.on_event(fragile)
        stream = broker.events()
        async with broker:
            node.emit(FakeEvent("session_opened", client_id="a"))
            first = await anext(stream)
            node.emit(FakeEvent("session_closed", client_id="a", reason="normal"))
        rest = [event async for event in stream]
        assert [event async for event in broker.events()] == []
        return [first.client_id, *(event.reason for event in rest)]

    assert asyncio.run(scenario()) == ["a", "normal"]
    assert called == ["a", "a"]


def test_the_node_tells_who_comes_only_while_somebody_listens(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="quantumqtt")

    async def scenario() -> list[bool]:
        node = FakeNode()
        broker = Broker(listen=LOOPBACK_ANY_PORT, open_node=node.open)
        async with broker:
            asked = [node.tells_sessions]
            stream = broker.events()
            asked.append(node.tells_sessions)
            stream.close()
            node.emit(FakeEvent("session_closed", client_id="a"))
        # The last batch found nobody.
        return [*asked, node.tells_sessions]

    assert asyncio.run(scenario()) == [False, True, False]


def test_a_callback_has_the_node_tell_who_comes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="quantumqtt")

    async def scenario() -> bool:
        node = FakeNode()
        broker = Broker(listen=LOOPBACK_ANY_PORT, open_node=node.open)
        broker.on_event(lambda event: None)
        async with broker:
            return node.tells_sessions

    assert asyncio.run(scenario())


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_a_log_that_names_clients_has_them_told(
    caplog: pytest.LogCaptureFixture, level: int
) -> None:
    caplog.set_level(level, logger="quantumqtt")

    async def scenario() -> list[bool]:
        node = FakeNode()
        async with Broker(listen=LOOPBACK_ANY_PORT, open_node=node.open) as broker:
            asked = [node.tells_sessions]
            caplog.set_level(logging.DEBUG, logger="quantumqtt")
            broker.note_log_level()
            return [*asked, node.tells_sessions]

    assert asyncio.run(scenario()) == [level == logging.DEBUG, True]


def test_an_empty_buffer_of_events_is_refused() -> None:
    broker = Broker(listen=LOOPBACK_ANY_PORT, open_node=FakeNode().open)
    with pytest.raises(ConfigError, match="buffer_count_max = 0"):
        broker.events(buffer_count_max=0)


def test_a_failed_shard_fails_the_broker() -> None:
    async def scenario() -> Broker:
        node = FakeNode()
        broker = Broker(listen=LOOPBACK_ANY_PORT, open_node=node.open)
        async with broker:
            node.emit(FakeEvent("shard_failed", reason="shard 1 panicked"))
            await broker.wait_ended()
            assert broker.state is NodeState.FAILED
        assert node.calls == ["start", "stop"], "there is nothing to drain after a failure"
        return broker

    assert asyncio.run(scenario()).failure == "shard 1 panicked"


def test_the_hook_is_asked_and_its_answers_reach_the_node() -> None:
    async def scenario() -> list[tuple[int, int]]:
        node = FakeNode()
        asked = asyncio.Event()

        async def authenticate(requests: Sequence[AdmissionRequest]) -> list[int]:
            asked.set()
            return [0 if request.user_name == "ann" else 0x86 for request in requests]

        broker = Broker(listen=LOOPBACK_ANY_PORT, authenticate=authenticate, open_node=node.open)
        async with broker:
            assert node.plan is not None
            assert node.plan.ask_admission
            node.emit(
                FakeEvent("admission_wanted", ticket=1, user_name="ann"),
                FakeEvent("admission_wanted", ticket=2, user_name="bob"),
            )
            await asked.wait()
            # The answers follow the hook without another wait.
            await asyncio.sleep(0)
        return node.answers

    assert asyncio.run(scenario()) == [(1, 0), (2, 0x86)]


def test_admission_requests_are_not_shown_to_listeners_of_events() -> None:
    async def scenario() -> list[str]:
        node = FakeNode()

        async def authenticate(requests: Sequence[AdmissionRequest]) -> list[int]:
            return [0] * len(requests)

        broker = Broker(listen=LOOPBACK_ANY_PORT, authenticate=authenticate, open_node=node.open)
        stream = broker.events()
        async with broker:
            node.emit(FakeEvent("admission_wanted", ticket=1), FakeEvent("session_opened"))
        kinds = [event.kind async for event in stream]
        return kinds

    assert asyncio.run(scenario()) == ["session_opened"]


def test_two_brokers_live_in_one_process() -> None:
    async def scenario() -> None:
        first, second = FakeNode(), FakeNode()
        async with (
            Broker(listen=LOOPBACK_ANY_PORT, open_node=first.open) as one,
            Broker(listen=LOOPBACK_ANY_PORT, open_node=second.open) as other,
        ):
            stream = other.events()
            second.emit(FakeEvent("session_opened", client_id="b"))
            assert (await anext(stream)).client_id == "b"
            assert one.state is other.state is NodeState.READY

    asyncio.run(scenario())


def test_stopping_ends_a_cancelled_drain_without_waiting_for_its_deadline() -> None:
    async def scenario() -> list[str]:
        node = FakeNode()
        node.clients_left.clear()
        broker = Broker(
            listen=LOOPBACK_ANY_PORT, limits={"drain_timeout_ms": 600_000}, open_node=node.open
        )
        await broker.start()
        draining = asyncio.create_task(broker.drain())
        assert await asyncio.to_thread(node.drain_begun.wait, 10)
        draining.cancel()
        await asyncio.gather(draining, return_exceptions=True)
        await broker.stop()
        return node.calls

    assert sorted(asyncio.run(scenario())) == ["drain", "start", "stop"]


def test_draining_uses_the_configured_deadline_and_tells_the_outcome() -> None:
    async def scenario() -> tuple[bool, list[int]]:
        node = FakeNode()
        node.drains_in_time = False
        broker = Broker(
            listen=LOOPBACK_ANY_PORT, limits={"drain_timeout_ms": 123}, open_node=node.open
        )
        await broker.start()
        outcome = await broker.drain()
        assert await broker.drain(), "a second drain has nothing to do"
        await broker.stop()
        await broker.stop()
        return outcome, node.drain_deadlines

    assert asyncio.run(scenario()) == (False, [123])
