"""Draining: clients of MQTT 5 hear that the server stops, all are closed, nobody new comes in."""

import threading
from pathlib import Path

import pytest

from quantumqtt.config import Limits
from tests.conformance.conftest import DRAIN_DEADLINE_MS, Broker, our_broker, small_log
from tests.harness.packets import Key, Properties, Version, Will

KEEP: Properties = ((Key.SESSION_EXPIRY, 3600),)


@pytest.mark.requirement("DP-33", "WIRE-05")
@pytest.mark.clause("MQTT-4.13.2-1")
def test_a_drain_says_goodbye_and_closes(broker: Broker) -> None:
    peers = [broker.client(version) for version in Version for _ in range(3)]
    node = broker.node
    outcome: list[bool] = []
    draining = threading.Thread(target=lambda: outcome.append(node.drain(DRAIN_DEADLINE_MS)))
    draining.start()
    for peer in peers:
        peer.expect_end(0x8B)
        peer.close()
    draining.join()
    assert outcome == [True]
    assert broker.statistics().closes_total["draining"] == len(peers)
    with pytest.raises(ConnectionRefusedError):
        broker.raw_peer()


@pytest.mark.requirement("WILL-01", "WILL-06")
@pytest.mark.parametrize("shards", [1, 2])
def test_a_drain_leaves_wills_to_the_next_start(tmp_path: Path, shards: int) -> None:
    """A client that returns in time takes its will back, whatever its session was (X-03)."""
    log = small_log(tmp_path, takes_largest=False)
    kinds: dict[str, Properties] = {"stored": KEEP, "transient": ()}
    with our_broker(shards, Limits(will_grace_s=2), log) as broker:
        watcher = broker.client(Version.V5, "watcher", properties=KEEP)
        watcher.subscribe("wills", options=1)
        watcher.leave()
        for kind, properties in kinds.items():
            for name in (f"{kind} back", f"{kind} gone"):
                will = Will("wills", name.encode(), qos=1)
                broker.client(Version.V5, name, will=will, properties=properties)
        assert broker.node.drain(DRAIN_DEADLINE_MS)
        assert broker.statistics().closes_total["draining"] == 4
    with our_broker(shards, Limits(will_grace_s=2), log) as broker:
        for kind, properties in kinds.items():
            broker.client(Version.V5, f"{kind} back", properties=properties)
        watcher = broker.client(Version.V5, "watcher", clean=False, properties=KEEP)
        assert {watcher.take().payload for _ in kinds} == {b"stored gone", b"transient gone"}
        watcher.ping()
