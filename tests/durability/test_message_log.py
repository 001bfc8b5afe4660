"""The message log of a broker: complete, dense and the same before and after whatever happens.

The processes are real and end by SIGKILL; small files and frequent checkpoints make every kill fall
among seals, merges, sweeps and what retention drops.
"""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from quantumqtt import Broker
from quantumqtt.errors import StorageError
from tests.harness import packets
from tests.harness.message_log import (
    SMALL,
    Storage,
    broker_on,
    environment_of,
    open_log,
    read_log,
    table_of,
    table_of_what_stays,
)
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.node_process import NodeProcess
from tests.harness.packets import Key, Kind, Version, Will
from tests.harness.ports import LOOPBACK
from tests.harness.waiting import wait_until

MIB = 1024 * 1024
# Files of 64 KiB, a checkpoint with every MiB, and a mebibyte that stays.
BUSY = {
    **SMALL,
    "chunk_bytes": 64 * 1024,
    "checkpoint_interval_s": 1,
    "checkpoint_log_bytes": MIB,
}
FORGETFUL = {**BUSY, "retention_bytes": MIB}
BURST = 200
PAYLOAD_BYTES = 2_000


def payload(number: int) -> bytes:
    return b"%012d" % number * (PAYLOAD_BYTES // 12)


class Writer:
    """One publisher over all lives of a broker: what it sent, and what was acknowledged."""

    def __init__(self, data: Path, storage: Storage) -> None:
        self._data = data
        self._environment = environment_of(storage)
        self.sent: list[int] = []
        self.acknowledged: set[int] = set()
        self._next = 0

    def live(self, bursts: int, *, last_words: int) -> None:
        """Start the broker, publish, and kill it after some acknowledgements of the last burst."""
        arguments = ("--data", str(self._data))
        with NodeProcess(*arguments, environment=self._environment) as broker:
            peer = MqttPeer(LOOPBACK, broker.port, Version.V5)
            peer.open("writer")
            for _ in range(bursts):
                self._acknowledge(peer, self._send(peer), BURST)
            numbers = self._send(peer)
            self._acknowledge(peer, numbers, last_words)
            broker.kill()
            # What the broker had written before it died has been acknowledged, too.
            left = peer.receive_until_closed()
            self.acknowledged.update(numbers[: last_words + left.count(b"\x40\x02")])
            peer.close()

    def _send(self, peer: MqttPeer) -> Sequence[int]:
        numbers = range(self._next, self._next + BURST)
        self._next += BURST
        self.sent += numbers
        parts = (
            packets.publish(
                f"t/{number % 7}", payload(number), version=Version.V5, qos=1, packet_id=at
            )
            for at, number in enumerate(numbers, 1)
        )
        peer.send(b"".join(parts))
        return numbers

    def _acknowledge(self, peer: MqttPeer, numbers: Sequence[int], count: int) -> None:
        for at, number in enumerate(numbers[:count], 1):
            peer.expect_ack(Kind.PUBACK, at)
            self.acknowledged.add(number)

    def judge(self, table: pa.Table, *, complete: bool) -> None:
        """Find each number at one offset, rising, and every acknowledged one."""
        rows = table.select(["topic", "payload"]).to_pylist()
        numbers = [int(row["payload"][:12]) for row in rows]
        assert numbers == sorted(set(numbers)), "each is there once, in the order it was sent"
        assert set(numbers) <= set(self.sent)
        for row, number in zip(rows, numbers, strict=True):
            assert (row["topic"], row["payload"]) == (f"t/{number % 7}", payload(number))
        oldest = 0 if complete else numbers[0]
        owed = {number for number in self.acknowledged if number >= oldest}
        assert owed <= set(numbers), "every acknowledged publish is there"


@pytest.mark.requirement("LOG-30", "QOS-02")
def test_kills_among_seals_and_merges_lose_and_move_nothing(tmp_path: Path) -> None:
    dice = random.Random(6)
    writer = Writer(tmp_path, BUSY)
    before: pa.Table | None = None
    for _ in range(3):
        writer.live(dice.randrange(5), last_words=dice.randrange(BURST))
        now = read_log(tmp_path, BUSY)
        writer.judge(now, complete=True)
        if before is not None:
            assert now.slice(0, len(before)).equals(before), "in every column, and where it was"
        before = now
    assert list((tmp_path / "records").rglob("*.chunk")), "not all of it came from the entries"


@pytest.mark.requirement("LOG-30")
def test_kills_while_retention_drops_leave_a_dense_rest(tmp_path: Path) -> None:
    dice = random.Random(7)
    writer = Writer(tmp_path, FORGETFUL)
    for _ in range(2):
        writer.live(5 + dice.randrange(4), last_words=dice.randrange(BURST))
        # Opened with a retention that drops nothing: what is there must be whole.
        writer.judge(read_log(tmp_path), complete=False)

    async def ask() -> None:
        async with broker_on(tmp_path, FORGETFUL) as broker:
            log = open_log(broker)
            wait_until(lambda: log.bounds()[0] > 0, what="the oldest was dropped")
            writer.judge(table_of_what_stays(log), complete=False)
            earliest, _ = log.bounds()
            with pytest.raises(StorageError, match=f"offsets 0 to {earliest} have expired"):
                log.read(0)
        with pytest.raises(StorageError, match="stopped"):
            log.bounds()

    asyncio.run(ask())


@pytest.mark.requirement("LOG-35", "WIRE-14")
def test_a_record_says_all_that_was_published(tmp_path: Path) -> None:
    properties = (
        (Key.PAYLOAD_FORMAT, 1),
        (Key.MESSAGE_EXPIRY, 3600),
        (Key.CONTENT_TYPE, "text/plain"),
        (Key.RESPONSE_TOPIC, "answers"),
        (Key.CORRELATION_DATA, b"\x00\x01"),
        (Key.USER_PROPERTY, ("a", "1")),
        (Key.USER_PROPERTY, ("a", "2")),
    )
    with NodeProcess("--data", str(tmp_path)) as broker:
        mortal = MqttPeer(LOOPBACK, broker.port, Version.V5)
        mortal.open("mortal", will=Will("wills", b"gone", qos=1))
        with MqttPeer(LOOPBACK, broker.port, Version.V5) as keeper:
            keeper.open("keeper", clean=False, properties=((Key.SESSION_EXPIRY, 3600),))
            keeper.publish("full", b"x", qos=2, properties=properties)
            keeper.publish("kept", b"r", qos=0, retain=True)
            keeper.subscribe("wills", options=1)
            keeper.publish("loose", b"q", qos=0)
            mortal.close()
            assert keeper.take().payload == b"gone"
            keeper.leave()
        broker.kill()
    rows = {row["topic"]: row for row in read_log(tmp_path).to_pylist()}
    assert rows.keys() == {"full", "kept", "wills"}, "QoS 0 is in no log, unless it is retained"
    full, kept, will = rows["full"], rows["kept"], rows["wills"]
    assert (full["qos"], full["retain"], full["source"]) == (2, False, "mqtt")
    assert (full["client_id"], full["tenant"], full["partition"]) == ("keeper", "default", 0)
    assert full["incarnation"] > 0
    assert full["session_epoch"] > 0
    assert full["user_properties"] == [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]
    assert (full["content_type"], full["response_topic"]) == ("text/plain", "answers")
    assert (full["correlation_data"], full["expiry_s"]) == (b"\x00\x01", 3600)
    assert (kept["qos"], kept["retain"]) == (0, True)
    assert (will["source"], will["client_id"], will["incarnation"]) == ("will", "mortal", None)


def test_readers_follow_the_end_and_choose_topics(tmp_path: Path) -> None:
    async def follow() -> None:
        async with Broker(listen=["tcp://127.0.0.1:0"], data=tmp_path) as broker:
            log = open_log(broker)
            assert (log.tenant, log.partition, log.bounds()) == ("default", 0, (0, 0))
            assert not log.wait(0, timeout_ms=1)
            port = broker.listeners[0].port
            waiting = asyncio.create_task(asyncio.to_thread(log.wait, 0, timeout_ms=20_000))
            await asyncio.to_thread(publish, port, ("a/1", "a/2", "b", "$x/1"))
            assert await waiting
            assert log.bounds() == (0, 4)
            assert table_of(log, "topic").column("topic").to_pylist() == ["a/1", "a/2", "b", "$x/1"]
            chosen = log.read(columns=["topic"], topics=["a/+", "b"], allowed=["+", "a/2"])
            read = pa.RecordBatchReader.from_stream(chosen).read_all()
            assert read.column("topic").to_pylist() == ["a/2", "b"]
            nothing = pa.RecordBatchReader.from_stream(log.read(allowed=[])).read_all()
            assert nothing.num_rows == 0
            with pytest.raises(ValueError, match="no partition"):
                broker.message_log(1)

    asyncio.run(follow())


def publish(port: int, topics: Sequence[str]) -> None:
    with MqttPeer(LOOPBACK, port, Version.V5) as peer:
        peer.open("publisher")
        for topic in topics:
            peer.publish(topic, b"x", qos=1)


def test_memory_keeps_no_log() -> None:
    async def ask() -> None:
        async with Broker(listen=["tcp://127.0.0.1:0"]) as broker:
            assert broker.message_log() is None

    asyncio.run(ask())


@pytest.mark.requirement("LOG-16")
def test_a_message_log_that_cannot_be_written_stops_the_broker(tmp_path: Path) -> None:
    """Whoever acknowledges what readers will never see has lost it for them."""
    words = ("message log", "panicked", "cannot go on", "shard")
    with NodeProcess(
        "--data", str(tmp_path), environment=environment_of(BUSY), announced_errors=words
    ) as broker:
        (folder,) = (tmp_path / "records").iterdir()
        folder.rmdir()
        peer = MqttPeer(LOOPBACK, broker.port, Version.V5)
        peer.open("writer")
        numbers = iter(range(1, 65_536))

        def publish_until_ended() -> bool:
            try:
                peer.publish("t", payload(1), qos=1, packet_id=next(numbers))
            except (OSError, AssertionError):
                return True
            return False

        wait_until(publish_until_ended, what="nothing was acknowledged any more")
        peer.close()
        assert broker.wait_ended() != 0
