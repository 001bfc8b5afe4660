"""`$replay/{from}/{filter}`: the committed log, in its order, and then what is committed next."""

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from tests.conformance.conftest import Broker, Shape, StartBroker
from tests.harness import packets
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.packets import Key, Kind, Properties, Publish, SubAck, Version, values

LIVES_ON = ((Key.SESSION_EXPIRY, 60),)
CANNOT = 0x83
QUOTA_EXCEEDED = 0x97
# Without a log there is nothing to replay.
pytestmark = pytest.mark.parametrize(
    "shape", [Shape(1, is_durable=True), Shape(2, is_durable=True)], ids=str, indirect=True
)
with_sessions = pytest.mark.parametrize("clean", [True, False], ids=["transient", "stored"])


@dataclass(frozen=True, slots=True)
class Replayed:
    """A message with its place in the log."""

    offset: int
    at: datetime
    payload: bytes

    @classmethod
    def of(cls, message: Publish) -> "Replayed":
        """Read the place from the properties of a message."""
        (offset_name, offset), (time_name, at) = user_properties(message)[-2:]
        assert (offset_name, time_name) == ("qmq-offset", "qmq-timestamp")
        return cls(int(offset), datetime.fromisoformat(at), message.payload)


def user_properties(message: Publish) -> list[tuple[str, str]]:
    """List the user properties of a message, in order."""
    found = values(message.properties, Key.USER_PROPERTY)
    return [pair for pair in found if isinstance(pair, tuple)]


def reason_of(refused: SubAck) -> str:
    """Take the reason string."""
    return str(values(refused.properties, Key.REASON_STRING)[0])


def fill(broker: Broker, count: int, *, topic: str = "t", first: int = 0, size: int = 0) -> None:
    """Publish numbers at QoS 1, many at a time."""
    with_id = [(number, number % 50 + 1) for number in range(first, first + count)]
    peer = broker.client(Version.V5, f"filler-{topic.replace('/', '-')}-{first}")
    for begin in range(0, count, 50):
        batch = with_id[begin : begin + 50]
        peer.send(
            *(
                packets.publish(
                    topic, b"%d" % n + b" " * size, version=Version.V5, qos=1, packet_id=packet_id
                )
                for n, packet_id in batch
            )
        )
        for _, packet_id in batch:
            peer.expect_ack(Kind.PUBACK, packet_id)
    peer.leave()


def expiry(clean: bool) -> Properties:
    """Say that a session outlives its connection, unless it is to end with it."""
    return () if clean else LIVES_ON


def take_numbers(peer: MqttPeer, count: int) -> list[int]:
    """Take messages and acknowledge them."""
    return [int(peer.take().payload) for _ in range(count)]


@with_sessions
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_everything_committed_comes_in_order_and_then_what_follows(
    broker: Broker, granted: int, clean: bool
) -> None:
    fill(broker, 400)
    reader = broker.client(Version.V5, "reader", clean=clean, properties=expiry(clean))
    codes = reader.subscribe("$replay/earliest/#", options=granted)
    assert codes == (granted if clean else 0,), "a stored session replays at QoS 0"
    got = [Replayed.of(message) for message in (reader.take() for _ in range(400))]
    assert [(one.offset, int(one.payload)) for one in got] == [(n, n) for n in range(400)]
    assert [one.at for one in got] == sorted(one.at for one in got)
    assert abs(datetime.now(UTC) - got[-1].at) < timedelta(minutes=1)
    fill(broker, 30, first=400)
    message = reader.take()
    assert message.qos == (min(granted, 1) if clean else 0)
    assert int(message.payload) == 400
    assert take_numbers(reader, 29) == list(range(401, 430))
    reader.ping()


@pytest.mark.parametrize("version", [Version.V31, Version.V311])
def test_older_versions_replay_without_properties(broker: Broker, version: Version) -> None:
    fill(broker, 20)
    reader = broker.client(version, "reader")
    assert reader.subscribe("$replay/offset:5/t", options=1) == (1,)
    assert take_numbers(reader, 15) == list(range(5, 20))


def test_a_message_comes_back_whole(broker: Broker) -> None:
    publisher = broker.client(Version.V5, "publisher")
    properties: Properties = (
        (Key.PAYLOAD_FORMAT, 1),
        (Key.CONTENT_TYPE, "text/plain"),
        (Key.RESPONSE_TOPIC, "answers"),
        (Key.CORRELATION_DATA, b"\x00\x01"),
        (Key.USER_PROPERTY, ("a", "1")),
        (Key.USER_PROPERTY, ("a", "2")),
    )
    publisher.publish("t", b"x", qos=2, retain=True, properties=properties)
    reader = broker.client(Version.V5, "reader")
    retain_as_published = 0b1000
    for options, retain in ((2, False), (2 | retain_as_published, True)):
        number = ((Key.SUBSCRIPTION_ID, 7),)
        reader.subscribe("$replay/earliest/t", options=options, properties=number)
        message = reader.take()
        assert (message.topic, message.payload, message.qos) == ("t", b"x", 2)
        assert message.retain == retain
        assert set(properties) | {(Key.SUBSCRIPTION_ID, 7)} <= set(message.properties)
        assert user_properties(message)[:2] == [("a", "1"), ("a", "2")]


def test_where_to_begin_is_said_by_offset_time_or_word(broker: Broker) -> None:
    fill(broker, 10)
    reader = broker.client(Version.V5, "reader")
    reader.subscribe("$replay/offset:6/t", options=1)
    seventh = Replayed.of(reader.take())
    assert seventh.offset == 6
    assert take_numbers(reader, 3) == [7, 8, 9]
    reader.unsubscribe("$replay/offset:6/t")
    ago = datetime.now(UTC) - timedelta(hours=1)
    for since in ("-1h", "-90m", f"{ago:%Y-%m-%dT%H:%MZ}", f"{ago:%Y-%m-%dT%H:%M:%S}.5Z"):
        reader.subscribe(f"$replay/{since}/t", options=1)
        assert take_numbers(reader, 10) == list(range(10)), since
        assert reader.unsubscribe(f"$replay/{since}/t") == (0,)
    reader.subscribe("$replay/latest/t", options=1)
    reader.ping()
    fill(broker, 1, first=10)
    assert take_numbers(reader, 1) == [10]


def test_an_ended_replay_brings_nothing_more(broker: Broker) -> None:
    reader = broker.client(Version.V5, "reader")
    reader.subscribe("$replay/earliest/t", options=1)
    fill(broker, 1)
    assert take_numbers(reader, 1) == [0]
    assert reader.unsubscribe("$replay/earliest/t", "$replay/latest/t") == (0, 0x11)
    fill(broker, 1, first=1)
    reader.ping()


def test_the_inner_filter_chooses(broker: Broker) -> None:
    for number, topic in enumerate(["a/1", "b/1", "a/2", "a", "a/2/x", "b/2"]):
        fill(broker, 1, topic=topic, first=number)
    for pattern, expected in (("a/+", [0, 2]), ("a/#", [0, 2, 3, 4]), ("b/2", [5]), ("+", [3])):
        reader = broker.client(Version.V5, "reader")
        reader.subscribe(f"$replay/earliest/{pattern}", options=0)
        assert take_numbers(reader, len(expected)) == expected
        reader.ping()
        reader.leave()


@pytest.mark.parametrize(
    ("text", "code", "why"),
    [
        ("now/t", CANNOT, '"now" is no place in the log'),
        ("-1y/t", CANNOT, '"-1y" is no place in the log'),
        ("+/t", CANNOT, '"+" is no place in the log'),
        ("earliest", CANNOT, "write $replay/FROM/FILTER"),
        ("earliest/$share/g/t", CANNOT, "neither shared nor inside another"),
        ("offset:11/t", CANNOT, "the log ends at offset 10, before 11"),
        ("2999-01-01T00:00Z/t", CANNOT, "lies in the future"),
    ],
)
@with_sessions
def test_a_replay_that_cannot_be_is_refused_in_words(
    broker: Broker, text: str, code: int, why: str, clean: bool
) -> None:
    fill(broker, 10)
    reader = broker.client(Version.V5, "reader", clean=clean)
    reader.send(packets.subscribe(3, (f"$replay/{text}", 1), version=Version.V5))
    refused = reader.receive_a(SubAck)
    assert refused.codes == (code,)
    assert why in reason_of(refused)
    older = broker.client(Version.V311, "older", clean=clean)
    assert older.subscribe(f"$replay/{text}") == (0x80,)
    older.ping()


def test_a_shared_replay_is_refused(broker: Broker) -> None:
    reader = broker.client(Version.V5, "reader")
    assert reader.subscribe("$share/g/$replay/earliest/t") == (CANNOT,)


def test_replays_and_subscriptions_in_one_packet(broker: Broker) -> None:
    fill(broker, 3)
    filters = ("t", "$replay/earliest/t")
    reader = broker.client(Version.V5, "reader")
    assert reader.subscribe(*filters, options=1) == (1, 1)
    assert take_numbers(reader, 3) == [0, 1, 2]
    fill(broker, 1, first=3)
    assert take_numbers(reader, 2) == [3, 3], "two subscriptions, each brings it"
    stored = broker.client(Version.V5, "stored", clean=False, properties=LIVES_ON)
    assert stored.subscribe(*filters, options=1) == (1, CANNOT)


def test_there_are_so_many_replays_and_no_more(broker: Broker) -> None:
    reader = broker.client(Version.V5, "reader")
    filters = [f"$replay/latest/{number}" for number in range(20)]
    codes = reader.subscribe(*filters, options=1)
    assert codes == (1,) * 16 + (QUOTA_EXCEEDED,) * 4
    assert reader.subscribe(filters[0], options=1) == (1,), "one of them again"
    reader.unsubscribe(*filters[:4])
    assert reader.subscribe(*filters[16:], options=1) == (1,) * 4


def test_no_local_and_expiry_hold_as_they_do_live(broker: Broker) -> None:
    no_local = 0b100
    client = broker.client(Version.V5, "client")
    client.publish("t", b"0", qos=1)
    other = broker.client(Version.V5, "other")
    other.publish("t", b"1", qos=1, properties=((Key.MESSAGE_EXPIRY, 0),))
    other.publish("t", b"2", qos=1, properties=((Key.MESSAGE_EXPIRY, 3600),))
    client.subscribe("$replay/earliest/t", options=1 | no_local)
    message = client.take()
    assert message.payload == b"2"
    left_s = values(message.properties, Key.MESSAGE_EXPIRY)[0]
    assert isinstance(left_s, int)
    assert 3000 < left_s <= 3600, "what is left of it"
    client.ping()


def test_a_window_of_one_is_never_passed(broker: Broker) -> None:
    fill(broker, 60)
    reader = broker.client(Version.V5, "reader", properties=((Key.RECEIVE_MAXIMUM, 1),))
    reader.subscribe("$replay/earliest/t", options=1)
    for number in range(60):
        message = reader.receive_a(Publish)
        assert int(message.payload) == number
        reader.ping()  # nothing else comes before it is acknowledged
        assert message.packet_id is not None
        reader.send(packets.ack(Kind.PUBACK, message.packet_id))


@with_sessions
def test_a_reader_that_stops_reading_loses_nothing_and_holds_up_nobody(
    start_broker: StartBroker, clean: bool
) -> None:
    bound = 256 * 1024
    broker = start_broker(
        packet_bytes_max=bound, out_buffer_bytes_soft=bound, out_buffer_bytes_max=2 * bound
    )
    count = 1_500
    fill(broker, count, size=4_000)
    lazy = broker.client(Version.V5, "lazy", clean=clean, properties=expiry(clean))
    lazy.subscribe("$replay/earliest/t", options=0)
    eager = broker.client(Version.V5, "eager")
    eager.subscribe("$replay/earliest/t", options=0)
    assert take_numbers(eager, count) == list(range(count))
    assert take_numbers(lazy, count) == list(range(count))
    lazy.ping()
    assert broker.statistics().drops_total["slow_subscriber"] == 0


class Publishing:
    """A publisher that never rests, and the record of what it was told is committed."""

    def __init__(self, broker: Broker, *, first: int) -> None:
        self._peer = broker.client(Version.V5, "publishing")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._publish)
        self.acknowledged = first

    def _publish(self) -> None:
        number = self.acknowledged
        while not self._stopping.is_set():
            ids = range(1, 41)
            self._peer.send(
                *(
                    packets.publish(
                        "t", b"%d" % (number + at), version=Version.V5, qos=1, packet_id=packet_id
                    )
                    for at, packet_id in enumerate(ids)
                )
            )
            for packet_id in ids:
                self._peer.expect_ack(Kind.PUBACK, packet_id)
            number += len(ids)
            self.acknowledged = number

    def __enter__(self) -> "Publishing":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


def cut_points(dice: random.Random, broker: Broker, count: int) -> Iterator[MqttPeer]:
    """Begin replays at random places, most of them near the end that moves."""
    for number in range(count):
        reader = broker.client(Version.V5, f"reader-{number}")
        begin = dice.choice(["latest", "-1s", f"offset:{dice.randint(0, 100)}", "earliest"])
        assert reader.subscribe(f"$replay/{begin}/t", options=dice.randint(0, 1))[0] < 2
        yield reader


@pytest.mark.parametrize(
    "joins",
    [6, pytest.param(100, marks=[pytest.mark.night, pytest.mark.timeout(600)])],
    ids=["short", "long"],
)
def test_joining_at_the_live_edge_under_load_loses_and_doubles_nothing(
    broker: Broker, joins: int
) -> None:
    """Payloads are offsets, so every message says whether it is the one that is due."""
    fill(broker, 200)
    dice = random.Random(joins)
    checked = 0
    with Publishing(broker, first=200) as publishing:
        for reader in cut_points(dice, broker, joins):
            first = Replayed.of(reader.take())
            # Past the edge as it was when the first message came, so each crosses it.
            until = max(publishing.acknowledged + dice.randint(1, 400), first.offset + 1)
            due = first.offset
            assert int(first.payload) == due
            while due < until:
                due += 1
                message = Replayed.of(reader.take())
                assert (message.offset, int(message.payload)) == (due, due)
                checked += 1
            reader.close()
    assert checked >= joins
