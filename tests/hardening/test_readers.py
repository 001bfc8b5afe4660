"""A reader that stops costs itself something, and nobody else anything."""

from typing import Final

import pytest

from quantumqtt.config import Limits
from tests.conformance.conftest import Broker, our_broker
from tests.harness import packets
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.packets import Publish, Version
from tests.harness.waiting import wait_until

KIB: Final = 1024
PAYLOAD_BYTES: Final = 8 * KIB
SOFT_BYTES: Final = 128 * KIB
DEADLINE_S: Final = 20.0


def small_buffers() -> Limits:
    return Limits(
        out_buffer_bytes_soft=SOFT_BYTES,
        out_buffer_bytes_max=1024 * KIB,
        packet_bytes_max=64 * KIB,
    )


def numbered(number: int, topic: str = "t") -> bytes:
    return packets.publish(topic, number.to_bytes(4, "big") + bytes(PAYLOAD_BYTES - 4))


def number_of(message: Publish) -> int:
    return int.from_bytes(message.payload[:4], "big")


class Flood:
    """A publisher that numbers its messages and knows how many it has sent."""

    def __init__(self, peer: MqttPeer) -> None:
        self.peer = peer
        self.sent = 0

    def send(self, count: int = 1) -> bool:
        """Send so many and see that all of it was taken: nobody holds a publisher back for good."""
        for _ in range(count):
            self.peer.send(numbered(self.sent))
            self.sent += 1
        self.peer.ping()
        return True


def drops(broker: Broker) -> int:
    return broker.statistics().drops_total["slow_subscriber"]


def stopped_reader(broker: Broker, filter_name: str) -> MqttPeer:
    """Subscribe and read no more; a small kernel buffer fills soon."""
    reader = broker.client(Version.V311, "stopped")
    reader.shrink_receive_buffer(128 * KIB)
    reader.subscribe(filter_name)
    return reader


@pytest.mark.requirement("DP-10", "DP-11")
@pytest.mark.parametrize("shards", [1, 2])
def test_a_reader_that_stalls_loses_the_oldest_messages_and_gets_the_newest(shards: int) -> None:
    with our_broker(shards, small_buffers()) as broker:
        reader = stopped_reader(broker, "t")
        flood = Flood(broker.client(Version.V311, "publisher", keep_alive_s=0))
        wait_until(
            lambda: flood.send(8) and drops(broker) > 100,
            what="the reader has lost 100 messages",
            deadline_s=DEADLINE_S,
        )
        flood.send(1)
        lost, last = drops(broker), flood.sent - 1
        received = [number_of(reader.receive_a(Publish))]
        while received[-1] != last:
            received.append(number_of(reader.receive_a(Publish)))
        assert received == sorted(set(received)), "in order and none twice"
        assert len(received) + lost == flood.sent, "every message arrived or was counted as lost"
        gaps = [at for at in range(1, len(received)) if received[at] != received[at - 1] + 1]
        assert received[0] == 0, "what was on its way before the stall is kept"
        assert len(gaps) == 1, "one hole, between what was on its way and the newest"
        newest = len(received) - gaps[0]
        # Packets that arrived side by side go together, so up to a run less than the limit is left.
        assert newest >= SOFT_BYTES // PAYLOAD_BYTES // 2, "the newest fill what a stalled one has"
        flood.send(3)
        assert [number_of(reader.receive_a(Publish)) for _ in range(3)] == [
            last + 1, last + 2, last + 3,
        ], "and then it is a reader like any other"  # fmt: skip


@pytest.mark.requirement("DP-10", "DP-30")
def test_a_fast_reader_beside_a_stopped_one_misses_nothing(broker: Broker) -> None:
    stopped = stopped_reader(broker, "t")
    fast = broker.client(Version.V5, "fast")
    fast.subscribe("t")
    publisher = broker.client(Version.V5, "publisher")
    for number in range(1_000):
        publisher.send_publish("t", number.to_bytes(4, "big") + bytes(PAYLOAD_BYTES - 4))
        assert number_of(fast.receive_a(Publish)) == number
    stopped.close()
    publisher.ping()


@pytest.mark.requirement("DP-11", "DP-30")
def test_a_publisher_to_others_never_waits_for_a_stopped_reader(broker: Broker) -> None:
    stopped_reader(broker, "full")
    filler = broker.client(Version.V311, "filler")
    filler.send(b"".join(numbered(number, "full") for number in range(400)))
    reader, publisher = broker.client(Version.V5, "reader"), broker.client(Version.V5, "publisher")
    reader.subscribe("free", options=1)
    for number in range(200):
        publisher.publish("free", b"%d" % number, qos=1)
        assert reader.take().payload == b"%d" % number


@pytest.mark.requirement("DP-30", "DP-11")
def test_a_stopped_reader_of_acknowledged_messages_is_the_one_that_ends(broker: Broker) -> None:
    """Its window and what waits behind it are bounded; beyond that it is cut, and nobody else."""
    stopped = broker.client(Version.V5, "stopped", properties=((packets.Key.RECEIVE_MAXIMUM, 1),))
    stopped.subscribe("t", options=1)
    other = broker.client(Version.V5, "other")
    other.subscribe("t", options=0)
    publisher = broker.client(Version.V5, "publisher", keep_alive_s=0)
    sent = 0

    def is_cut() -> bool:
        nonlocal sent
        for _ in range(64):
            publisher.publish("t", bytes(60 * KIB), qos=1)
            sent += 1
            other.receive_a(Publish)
        return broker.statistics().closes_total["slow_subscriber"] == 1

    wait_until(is_cut, what="the stopped reader is cut", deadline_s=60.0)
    publisher.ping()
    other.ping()
    assert broker.statistics().closes_total["slow_subscriber"] == 1
