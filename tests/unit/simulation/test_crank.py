"""The hand crank: what goes in comes out, and what is wrong is said."""

import pytest

from quantumqtt.simulation import Crank, decode_entry, encode_entry
from quantumqtt.simulation.commands import (
    ClientAck,
    Command,
    ConnectionLost,
    Limits,
    OpenSession,
    Publish,
    PubRel,
    SetLimits,
    Subscribe,
    SubscribeFilter,
    Tick,
    Unsubscribe,
    Will,
)
from quantumqtt.simulation.effects import Deliver, SessionOpened, Subscribed, Subscription

ORIGIN = (1, 2, 3)
EVERY_KIND: list[Command] = [
    OpenSession(
        origin=ORIGIN,
        client_id="a",
        identity="alice",
        level=4,
        clean_start=True,
        expiry_s=9,
        receive_maximum=8,
        maximum_packet_bytes=7,
        will=Will(topic="w", payload=b"gone", qos=2, retain=True, delay_s=6, expiry_s=5),
    ),
    OpenSession(origin=ORIGIN, client_id="b"),
    ConnectionLost(client_id="a", session_epoch=4, fire_will=True, expiry_s=3),
    Subscribe(
        origin=ORIGIN,
        client_id="a",
        session_epoch=1,
        packet_id=2,
        subscription_id=300,
        filters=(
            SubscribeFilter(
                filter="t/#", qos=2, no_local=True, retain_as_published=True, retain_handling=2
            ),
            SubscribeFilter(filter="$share/g/t", refused=0x87),
        ),
    ),
    Unsubscribe(origin=ORIGIN, client_id="a", session_epoch=1, packet_id=2, filters=("t", "u")),
    Publish(
        origin=ORIGIN,
        client_id="a",
        topic="t",
        payload=b"x",
        qos=1,
        packet_id=5,
        session_epoch=1,
        incarnation=1,
        retain=True,
        dup=True,
        expiry_s=60,
        properties=b"\x01\x01",
    ),
    Publish(origin=ORIGIN, client_id="a", topic="t", payload=b"", captured=True),
    PubRel(origin=ORIGIN, client_id="a", session_epoch=1, packet_id=5),
    ClientAck(client_id="a", session_epoch=1, packet_id=5, kind="pubrec", reason=0x80),
    Tick(),
    SetLimits(limits=Limits(window_max=3, overflow="drop_newest")),
]


def test_every_command_comes_back_from_its_entry() -> None:
    entry = decode_entry(encode_entry(EVERY_KIND, now_ms=77, partition=5, leader=2, batch_seq=9))
    assert list(entry.commands) == EVERY_KIND
    assert (entry.now_ms, entry.partition, entry.leader, entry.batch_seq) == (77, 5, 2, 9)


@pytest.mark.requirement("DET-01")
def test_the_same_log_gives_the_same_digest() -> None:
    one, other = Crank(Limits()), Crank(Limits())
    for command in EVERY_KIND:
        one.turn(command, now_ms=1_000)
    other.turn(*EVERY_KIND, now_ms=1_000)
    assert one.digest() == other.digest() != Crank(Limits()).digest()
    assert one.broken_invariant() is None


def test_a_session_is_shown_as_it_stands() -> None:
    crank = Crank(Limits(window_max=1))
    [opened] = crank.turn(OpenSession(origin=ORIGIN, client_id="a", expiry_s=60), now_ms=1_000)
    assert isinstance(opened, SessionOpened)
    asked = SubscribeFilter(filter="t", qos=2)
    subscribe = Subscribe(
        origin=ORIGIN, client_id="a", session_epoch=1, packet_id=1, filters=(asked,)
    )
    [answer] = crank.turn(subscribe, now_ms=1_000)
    assert isinstance(answer, Subscribed)
    assert answer.filters[0].filter == "t"
    publish = Publish(origin=(9, 9, 9), client_id="b", topic="t", payload=b"x", qos=2, packet_id=1)
    delivered = [e for e in crank.turn(publish, publish, now_ms=1_000) if isinstance(e, Deliver)]
    assert [deliver.payload for deliver in delivered] == [b"x"]
    crank.turn(
        ClientAck(client_id="a", session_epoch=1, packet_id=1, kind="pubrec"),
        ConnectionLost(client_id="a", session_epoch=1, fire_will=True),
        now_ms=2_000,
    )
    view = crank.session("a")
    assert view is not None
    assert (view.origin, view.expires_at_ms, crank.next_deadline_ms()) == (None, 62_000, 62_000)
    assert (view.in_flight, view.waiting) == (((1, "released"),), (1,))
    assert view.subscriptions == (Subscription("t", 2, False, False, 0, None),)
    assert crank.session("b") is None
    assert crank.client_ids() == ["a"]
    assert crank.statistics()["queued"] == 1


def test_bytes_that_are_no_entry_are_refused_and_change_nothing() -> None:
    crank = Crank(Limits())
    before = crank.digest()
    for damaged in (b"", b"\x00", encode_entry([Tick()], now_ms=1)[:-1]):
        with pytest.raises(ValueError, match="entry"):
            crank.apply(damaged)
        with pytest.raises(ValueError, match="entry"):
            decode_entry(damaged)
    assert crank.digest() == before


def test_words_that_name_nothing_are_refused() -> None:
    of_no_qos = Publish(origin=ORIGIN, client_id="a", topic="t", payload=b"", qos=3, packet_id=1)
    with pytest.raises(ValueError, match="there is no QoS 3"):
        encode_entry([of_no_qos], now_ms=1)


def test_a_machine_is_stored_while_it_goes_on_and_read_back_as_it_was() -> None:
    crank = Crank(Limits(), partition=5)
    crank.turn(*EVERY_KIND, now_ms=1_000)
    then = crank.digest()
    crank.begin_checkpoint(77)
    chunks: list[bytes] = []
    while (chunk := crank.next_chunk(256)) is not None:
        chunks.append(chunk)
        crank.turn(OpenSession(origin=ORIGIN, client_id=f"new-{len(chunks)}"), now_ms=9_000)
    again = Crank.restore(chunks)
    assert again.digest() == then != crank.digest()
    assert (again.broken_invariant(), again.next_deadline_ms()) == (None, 61_000)
    turned = [machine.turn(Tick(), now_ms=70_000) for machine in (again, Crank.restore(chunks))]
    assert turned[0] == turned[1]


def test_chunks_that_are_damaged_or_missing_are_refused_with_their_place() -> None:
    crank = Crank(Limits())
    for number in range(8):
        opening = OpenSession(
            origin=ORIGIN, client_id=f"client {number}", identity="x" * 50, expiry_s=60
        )
        crank.turn(opening, now_ms=1_000)
    crank.begin_checkpoint(1)
    chunks: list[bytes] = []
    while (chunk := crank.next_chunk(256)) is not None:
        chunks.append(chunk)
    assert len(chunks) > 2
    for damaged, complaint in (
        ([chunks[0], chunks[1][:-1], *chunks[2:]], "chunk 1, byte"),
        ([chunks[0], *chunks[2:]], "chunk 1 was due, this is chunk 2"),
        (chunks[:-1], f"chunk {len(chunks) - 1}, byte 0: it is cut off"),
        ([b"no chunk at all, but bytes enough to be one"], "chunk 0, byte 0: these bytes"),
    ):
        with pytest.raises(ValueError, match=complaint):
            Crank.restore(damaged)
