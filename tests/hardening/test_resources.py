"""What a broker has little of: descriptors, patience with strangers, processor time for nothing."""

import resource
import signal
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import pytest

from quantumqtt.config import Limits
from tests.conformance.conftest import our_broker
from tests.hardening.conftest import Victim
from tests.harness import packets
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.node_process import NodeProcess
from tests.harness.packets import Version
from tests.harness.ports import LOOPBACK
from tests.harness.process_facts import ProcessFacts, cpu_seconds, wake_ups
from tests.harness.storm import crowd, open_socket, receive_exactly
from tests.harness.waiting import wait_until

DRIP_S: Final = 0.02
TIMEOUT_MS: Final = 300
IDLE: Final = 500


def drip(peer: socket.socket, content: bytes) -> int:
    """Send byte by byte until the other side closes; returns how many it took."""
    peer.settimeout(DRIP_S)
    for at in range(len(content)):
        with suppress(TimeoutError):
            try:
                peer.sendall(content[at : at + 1])
                assert peer.recv(1) == b"", "a CONNECT that is not whole has no answer"
            except (ConnectionResetError, BrokenPipeError):
                pass
            return at
    return len(content)


@pytest.mark.hardening("silent-socket")
@pytest.mark.requirement("WIRE-11")
def test_a_connect_that_drips_in_is_not_waited_for() -> None:
    """Each byte is news, and none of them buys more time."""
    connect = packets.connect("i" * 2_000)
    assert Limits().connect_timeout_ms <= 10_000
    with our_broker(2, Limits(connect_timeout_ms=TIMEOUT_MS)) as broker:
        begun_at = time.monotonic()
        with open_socket(broker.port) as peer:
            taken = drip(peer, connect)
        assert taken < len(connect)
        assert time.monotonic() - begun_at >= TIMEOUT_MS / 1_000
        wait_until(
            lambda: broker.statistics().closes_total["connect_timeout"] == 1,
            what="the end is counted",
        )
        broker.client(Version.V311, "prompt").ping()


@pytest.mark.hardening("idle-connections")
@pytest.mark.requirement("DP-31")
def test_500_idle_connections_cost_nothing(victim: Victim) -> None:
    """The time is told by the broker itself: from the end of one silent client to the next."""
    process_id = victim.process.process_id
    with ExitStack() as stack:
        opening = packets.connect("", keep_alive_s=60)
        members = stack.enter_context(crowd(victim.port, IDLE, opening))
        for member in members:
            receive_exactly(member, 4)
        early, late = (
            stack.enter_context(MqttPeer(LOOPBACK, victim.port, Version.V311)) for _ in range(2)
        )
        early.open("early", keep_alive_s=1)
        late.open("late", keep_alive_s=3)
        early.expect_end()  # until then their coming may still be talked about
        begun_at = time.monotonic()
        woken, worked = wake_ups(process_id), cpu_seconds(process_id)
        late.expect_end()
        after = wake_ups(process_id)
        share = (cpu_seconds(process_id) - worked) / (time.monotonic() - begun_at)
    shards = {name: after[name] - woken[name] for name in after if name.startswith("quantumqtt-")}
    assert len(shards) == 2
    assert sum(shards.values()) <= 10, f"idle connections are nobody's business: {shards}"
    assert share < 0.02
    victim.wait_connections(0)


def pass_a_message(sender: MqttPeer, receiver: MqttPeer) -> None:
    sender.publish("served", b"still", qos=1)
    assert receiver.take().payload == b"still"


@pytest.mark.hardening("no-descriptors")
@pytest.mark.requirement("DP-30")
def test_without_descriptors_clients_are_served_and_a_reload_changes_nothing(
    tmp_path: Path,
) -> None:
    settings = tmp_path / "broker.toml"
    settings.write_text('[log]\nlevel = "error"\n', encoding="utf-8")
    announced = ["configuration not reloaded"]
    with (
        NodeProcess("--config", str(settings), announced_errors=announced) as node,
        MqttPeer(LOOPBACK, node.port, Version.V5) as old,
        MqttPeer(LOOPBACK, node.port, Version.V5) as other,
    ):
        old.open("old")
        other.open("other")
        other.subscribe("served", options=1)
        used = ProcessFacts.of(node.process_id).descriptors
        before = resource.prlimit(node.process_id, resource.RLIMIT_NOFILE)
        # The lowest number that is free lies below `used`, so nothing more can be opened.
        resource.prlimit(node.process_id, resource.RLIMIT_NOFILE, (used, before[1]))
        with crowd(node.port, 50) as strangers:
            pass_a_message(old, other)
            settings.write_text('[log]\nlevel = "debug"\n', encoding="utf-8")
            node.signal(signal.SIGHUP)
            node.wait_log("configuration not reloaded")
            pass_a_message(old, other)
            resource.prlimit(node.process_id, resource.RLIMIT_NOFILE, before)
            for number, stranger in enumerate(strangers):
                stranger.sendall(packets.connect(f"late-{number}"))
                assert receive_exactly(stranger, 4) == b"\x20\x02\x00\x00"
        assert not any("client connected" in line for line in node.logs()), "still not debug"
