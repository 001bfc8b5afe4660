"""Draining: clients of MQTT 5 hear that the server stops, all are closed, nobody new comes in."""

import threading

import pytest

from tests.conformance.conftest import DRAIN_DEADLINE_MS, Broker
from tests.harness.packets import Version


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
