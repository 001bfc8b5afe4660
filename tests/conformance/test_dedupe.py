"""`qmq-dedupe-key`: a publish sent again under its key is acknowledged and not published."""

import pytest

from tests.conformance.conftest import Broker
from tests.harness import packets
from tests.harness.packets import Ack, Key, Kind, Properties, Publish, Version

KEY_BYTES_MAX = 256
IMPLEMENTATION_SPECIFIC_ERROR = 0x83
LIVES_ON = ((Key.SESSION_EXPIRY, 60),)
with_sessions = pytest.mark.parametrize("clean", [True, False], ids=["transient", "stored"])


def keyed(*keys: str) -> Properties:
    """Name a message."""
    return tuple((Key.USER_PROPERTY, ("qmq-dedupe-key", key)) for key in keys)


@with_sessions
@pytest.mark.parametrize("qos", [1, 2])
def test_a_repeat_is_acknowledged_and_not_published(broker: Broker, qos: int, clean: bool) -> None:
    subscriber = broker.client(Version.V5, "subscriber", clean=clean, properties=LIVES_ON)
    subscriber.subscribe("#", options=1)
    for name in ("first", "second"):  # the key counts whoever sends it, under whatever packet id
        publisher = broker.client(Version.V5, name, clean=clean)
        for packet_id in (1, 2):
            publisher.publish(
                "t", name.encode(), qos=qos, packet_id=packet_id, properties=keyed("order-17")
            )
        publisher.publish("t", b"marker", qos=qos, properties=keyed(f"marker-{name}"))
    received = [subscriber.take() for _ in range(3)]
    assert [message.payload for message in received] == [b"first", b"marker", b"marker"]
    assert received[0].properties == keyed("order-17"), "subscribers may use it, too"
    statistics = broker.statistics()
    assert statistics.publishes_deduplicated_total == 3
    assert statistics.dedupe_keys == 3


def test_the_first_of_several_keys_counts_among_other_properties(broker: Broker) -> None:
    subscriber = broker.client(Version.V5, "subscriber")
    subscriber.subscribe("t", options=1)
    publisher = broker.client(Version.V5, "publisher")
    other: Properties = ((Key.USER_PROPERTY, ("trace", "order-17")),)
    rows = [
        (b"one", (*other, *keyed("k", "l"))),
        (b"no key", other),
        (b"again", keyed("k")),
        (b"two", keyed("l")),
    ]
    for payload, properties in rows:
        publisher.publish("t", payload, qos=1, properties=properties)
    assert [subscriber.take().payload for _ in range(3)] == [b"one", b"no key", b"two"]
    subscriber.ping()


def test_qos_0_is_not_repeated_and_has_no_key(broker: Broker) -> None:
    subscriber = broker.client(Version.V5, "subscriber")
    subscriber.subscribe("t", options=0)
    publisher = broker.client(Version.V5, "publisher")
    for retain in (False, True):
        publisher.publish("t", b"x", retain=retain, properties=keyed("k"))
    publisher.publish("t", b"y", qos=1, properties=keyed("k"))
    assert [subscriber.take().payload for _ in range(3)] == [b"x", b"x", b"y"]


@with_sessions
@pytest.mark.parametrize("key", ["", "k" * (KEY_BYTES_MAX + 1)], ids=["empty", "too long"])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_key_out_of_bounds_is_refused_and_says_why(
    broker: Broker, qos: int, key: str, clean: bool
) -> None:
    publisher = broker.client(Version.V5, "publisher", clean=clean)
    kind = Kind.PUBACK if qos == 1 else Kind.PUBREC
    publisher.send_publish("t", b"x", qos=qos, packet_id=5, properties=keyed(key))
    refused = publisher.receive_a(Ack)
    assert (refused.kind, refused.reason) == (kind, IMPLEMENTATION_SPECIFIC_ERROR)
    # The packet id is free again, and a key of the largest size is one.
    publisher.publish("t", b"x", qos=qos, packet_id=5, properties=keyed("k" * KEY_BYTES_MAX))
    assert broker.statistics().dedupe_keys == 1


def test_a_client_that_wants_no_reasons_is_told_none(broker: Broker) -> None:
    quiet = ((Key.REQUEST_PROBLEM_INFORMATION, 0),)
    publisher = broker.client(Version.V5, "publisher", properties=quiet)
    publisher.send_publish("t", b"x", qos=1, packet_id=5, properties=keyed(""))
    publisher.expect("40 03 00 05 83")


def test_a_retained_repeat_does_not_replace_what_came_since(broker: Broker) -> None:
    publisher = broker.client(Version.V5, "publisher")
    publisher.publish("t", b"old", qos=1, retain=True, properties=keyed("old"))
    publisher.publish("t", b"new", qos=1, retain=True, properties=keyed("new"))
    publisher.publish("t", b"old", qos=1, retain=True, properties=keyed("old"))
    late = broker.client(Version.V5, "late")
    late.subscribe("t", options=1)
    assert late.receive_a(Publish).payload == b"new"


@pytest.mark.parametrize("qos", [1, 2])
def test_repeats_in_one_burst_are_one_message(broker: Broker, qos: int) -> None:
    subscriber = broker.client(Version.V5, "subscriber")
    subscriber.subscribe("t", options=0)
    publisher = broker.client(Version.V5, "publisher")
    ids = range(1, 21)
    publisher.send(
        *(
            packets.publish(
                "t", b"%d" % (n // 2), version=Version.V5, qos=qos, packet_id=n,
                properties=keyed(f"{n // 2}"),
            )
            for n in ids
        )
    )  # fmt: skip
    answers = [publisher.receive_a(Ack).packet_id for _ in ids]
    assert answers == list(ids)
    received = [subscriber.take().payload for _ in range(11)]
    assert received == [b"%d" % n for n in range(11)]
