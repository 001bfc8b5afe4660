"""Keep alive: how long silence may last."""

import threading
import time
from typing import Final

import pytest

from tests.conformance.conftest import Broker
from tests.harness import packets
from tests.harness.packets import Version

# Long enough for a busy machine to get round to a ping in time.
KEEP_ALIVE_S: Final = 2
# Well below one keep alive, and long enough not to keep a core busy.
PAUSE_S: Final = 0.2

pytestmark = pytest.mark.requirement("DP-31")


@pytest.mark.requirement("WIRE-01", "SES-29")
@pytest.mark.clause("MQTT-3.1.2-22", "MQTT-3.1.2-20")
def test_silence_ends_a_connection_and_every_packet_counts_as_a_sign_of_life(
    broker: Broker,
) -> None:
    begun_at = time.monotonic()
    silent = [broker.client(version, keep_alive_s=KEEP_ALIVE_S) for version in Version]
    pinging = [broker.client(version, keep_alive_s=KEEP_ALIVE_S) for version in Version]
    publishing = [broker.client(version, keep_alive_s=KEEP_ALIVE_S) for version in Version]
    carefree = [broker.client(version, keep_alive_s=0) for version in Version]
    closed_after: list[float] = []

    def wait_for_closes() -> None:
        for peer in silent:
            peer.expect_end(0x8D)
            closed_after.append(time.monotonic() - begun_at)

    waiting = threading.Thread(target=wait_for_closes)
    waiting.start()
    while waiting.is_alive():
        for peer in pinging:
            peer.ping()
        for peer in publishing:
            peer.publish("t", qos=1)
        waiting.join(PAUSE_S)
    assert len(closed_after) == len(silent)
    assert min(closed_after) >= 1.5 * KEEP_ALIVE_S
    for peer in (*pinging, *publishing, *carefree):
        peer.ping()


@pytest.mark.clause("MQTT-3.1.2-22")
def test_half_a_packet_is_no_sign_of_life_for_ever(broker: Broker) -> None:
    begun_at = time.monotonic()
    peer = broker.client(Version.V5, keep_alive_s=1)
    peer.send(packets.publish("t", bytes(50), version=Version.V5)[:-1])
    peer.expect_end(0x8D)
    assert time.monotonic() - begun_at >= 1.5
