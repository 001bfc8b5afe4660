"""Shared subscriptions: one member of a group for each message, whatever becomes of members."""

from collections import Counter

import pytest

from tests.conformance.conftest import Broker
from tests.harness import packets
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.packets import Ack, Key, Kind, Properties, Publish, Version, value

KEEP: Properties = ((Key.SESSION_EXPIRY, 60),)
ONE_AT_A_TIME: Properties = ((Key.RECEIVE_MAXIMUM, 1),)
NO_LOCAL = 4
RETAIN_AS_PUBLISHED = 8
GROUP = "$share/g/t"
with_sessions = pytest.mark.parametrize("session", [(), KEEP], ids=["transient", "stored"])
with_qos = pytest.mark.parametrize("qos", [0, 1, 2])


def member(
    broker: Broker,
    name: str,
    session: Properties = (),
    *,
    options: int = 2,
    version: Version = Version.V5,
    filters: tuple[str, ...] = (GROUP,),
    more: Properties = (),
) -> MqttPeer:
    """Connect a client and let it join a group."""
    is_v5 = version == Version.V5
    properties = (*session, *more) if is_v5 else ()
    peer = broker.client(version, name, clean=not session, properties=properties)
    assert peer.subscribe(*filters, options=options) == (options & 3,) * len(filters)
    return peer


def drain(peer: MqttPeer) -> list[bytes]:
    """Take what is there, up to the answer to a ping; acknowledge all of it."""
    payloads: list[bytes] = []
    peer.send(packets.PACKET_PINGREQ)
    while isinstance(message := peer.receive(), Publish | Ack):
        if isinstance(message, Publish):
            payloads.append(message.payload)
            if message.packet_id is not None:
                kind = Kind.PUBACK if message.qos == 1 else Kind.PUBREC
                peer.send(packets.ack(kind, message.packet_id))
        else:
            peer.send(packets.ack(Kind.PUBCOMP, message.packet_id))
    return payloads


@pytest.mark.requirement("SUB-11", "WIRE-12")
@pytest.mark.clause("MQTT-3.2.2-17")
def test_connack_says_that_there_are_shared_subscriptions(broker: Broker) -> None:
    facts = broker.peer(Version.V5).open("peer").properties
    assert value(facts, Key.SHARED_SUBSCRIPTION_AVAILABLE) in {None, 1}


@pytest.mark.requirement("SUB-12", "QOS-20")
@pytest.mark.clause("MQTT-4.8.2-1", "MQTT-4.8.2-2")
@with_sessions
@with_qos
@pytest.mark.parametrize("version", Version)
def test_each_message_reaches_one_member_and_turns_are_even(
    broker: Broker, session: Properties, qos: int, version: Version
) -> None:
    members = [member(broker, f"m{n}", session, version=version) for n in range(3)]
    outsider = broker.client(version, "outsider")
    outsider.subscribe("t", options=2)
    publisher = broker.client(version, "publisher")
    for number in range(30):
        publisher.publish("t", b"%d" % number, qos=qos)
    expected = [b"%d" % number for number in range(30)]
    assert [outsider.take().payload for _ in expected] == expected
    shares = [drain(one) for one in members]
    assert sorted((one for share in shares for one in share), key=int) == expected
    assert {len(share) for share in shares} == {10}
    assert all(share == sorted(share, key=int) for share in shares), "each in order"


@pytest.mark.requirement("SUB-12")
@with_qos
def test_groups_do_not_know_each_other(broker: Broker, qos: int) -> None:
    names = ("$share/g/t", "$share/h/t", "$share/g/+", "$share/g/#")
    peers = [member(broker, f"m{n}", filters=(name,)) for n, name in enumerate(names)]
    publisher = broker.client(Version.V5, "publisher")
    publisher.publish("t", b"all of you", qos=qos)
    assert [peer.take().payload for peer in peers] == [b"all of you"] * 4


@pytest.mark.requirement("SUB-12", "SUB-08")
@with_sessions
@with_qos
def test_a_member_that_also_subscribes_for_itself_gets_both(
    broker: Broker, session: Properties, qos: int
) -> None:
    peer = member(broker, "peer", session, filters=("t", GROUP))
    broker.client(Version.V5, "publisher").publish("t", b"x", qos=qos)
    assert [peer.take().payload for _ in range(2)] == [b"x", b"x"]
    assert drain(peer) == []


@pytest.mark.requirement("SUB-12", "QOS-20")
@with_sessions
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_the_lower_qos_counts(
    broker: Broker, session: Properties, published: int, granted: int
) -> None:
    peer = member(broker, "peer", session, options=granted)
    broker.client(Version.V5, "publisher").publish("t", b"x", qos=published)
    assert peer.take().qos == min(published, granted)


@pytest.mark.requirement("SUB-07", "SUB-12")
@with_sessions
def test_identifiers_and_the_retain_flag_are_as_asked_for(
    broker: Broker, session: Properties
) -> None:
    peer = broker.client(Version.V5, "peer", clean=not session, properties=session)
    number: Properties = ((Key.SUBSCRIPTION_ID, 7),)
    assert peer.subscribe(GROUP, options=1 | RETAIN_AS_PUBLISHED, properties=number) == (1,)
    broker.client(Version.V5, "publisher").publish("t", b"x", qos=1, retain=True)
    message = peer.take()
    assert (message.retain, value(message.properties, Key.SUBSCRIPTION_ID)) == (True, 7)


@pytest.mark.requirement("SUB-11")
@with_sessions
def test_nothing_retained_is_sent_to_a_shared_subscription(
    broker: Broker, session: Properties
) -> None:
    broker.client(Version.V5, "publisher").publish("t", b"kept", qos=1, retain=True)
    peer = member(broker, "peer", session)
    assert drain(peer) == []
    assert peer.subscribe("t", options=1, packet_id=2) == (1,)
    assert peer.take().payload == b"kept"


@pytest.mark.requirement("SUB-11")
@pytest.mark.clause("MQTT-3.8.3-4")
@with_sessions
def test_no_local_is_an_error_there(broker: Broker, session: Properties) -> None:
    peer = broker.client(Version.V5, "peer", clean=not session, properties=session)
    peer.send(packets.subscribe(1, (GROUP, 1 | NO_LOCAL), version=Version.V5))
    peer.expect_end(0x82)


@pytest.mark.requirement("SUB-04", "SUB-06")
@pytest.mark.clause("MQTT-3.8.4-6", "MQTT-3.11.3-1")
@with_sessions
def test_answers_come_complete_and_in_order_when_filters_are_mixed(
    broker: Broker, session: Properties
) -> None:
    peer = broker.client(Version.V5, "peer", clean=not session, properties=session)
    rows = [("a", 0), (GROUP, 1), ("b", 2), ("$share/h/t", 0)]
    peer.send(packets.subscribe(9, *rows, version=Version.V5))
    suback = peer.receive_a(packets.SubAck)
    assert (suback.packet_id, suback.codes) == (9, (0, 1, 2, 0))
    assert peer.unsubscribe(GROUP, "a", "nothing", "$share/x/t", packet_id=3) == (
        0,
        0,
        0x11,
        0x11,
    )
    broker.client(Version.V5, "publisher").publish("t", b"x", qos=1)
    assert drain(peer) == [b"x"], "one group is left"


@pytest.mark.requirement("SUB-06")
@with_sessions
def test_a_member_that_unsubscribes_gets_no_more_turns(broker: Broker, session: Properties) -> None:
    leaver, stayer = member(broker, "leaver", session), member(broker, "stayer", session)
    assert leaver.unsubscribe(GROUP) == (0,)
    publisher = broker.client(Version.V5, "publisher")
    for qos in (0, 1, 2):
        publisher.publish("t", b"%d" % qos, qos=qos)
    assert drain(stayer) == [b"0", b"1", b"2"]
    assert drain(leaver) == []


@pytest.mark.requirement("SUB-14", "SUB-12", "FC-18")
@with_sessions
@pytest.mark.parametrize("qos", [1, 2])
def test_a_member_whose_window_is_full_is_passed_over(
    broker: Broker, session: Properties, qos: int
) -> None:
    slow = member(broker, "slow", session, more=ONE_AT_A_TIME)
    quick = member(broker, "quick", session)
    publisher = broker.client(Version.V5, "publisher")
    for number in range(20):
        publisher.publish("t", b"%d" % number, qos=qos)
    # The slow one has its first message and does not answer: all else is for the other.
    stuck = slow.receive_a(Publish).payload
    rest = [b"%d" % number for number in range(20)]
    rest.remove(stuck)
    assert [quick.take().payload for _ in rest] == rest


@pytest.mark.requirement("SUB-15")
@pytest.mark.clause("MQTT-4.8.2-4")
def test_what_a_transient_member_leaves_unacknowledged_goes_to_another(broker: Broker) -> None:
    leaver = member(broker, "leaver")
    publisher = broker.client(Version.V5, "publisher")
    for number in range(3):
        publisher.publish("t", b"%d" % number, qos=1)
    sent = [leaver.receive_a(Publish) for _ in range(3)]
    assert [message.payload for message in sent] == [b"0", b"1", b"2"]
    heir = member(broker, "heir")
    leaver.acknowledge(sent[1])
    leaver.ping()
    leaver.close()
    handed_on = [heir.take() for _ in range(2)]
    assert [message.payload for message in handed_on] == [b"0", b"2"]
    assert not any(message.dup for message in handed_on), "this client has not seen them"


@pytest.mark.requirement("SUB-15", "QOS-18")
@pytest.mark.clause("MQTT-4.8.2-4", "MQTT-4.8.2-5")
@with_sessions
def test_a_qos_2_delivery_that_was_begun_is_nobody_elses(
    broker: Broker, session: Properties
) -> None:
    first = member(broker, "first", session)
    broker.client(Version.V5, "publisher").publish("t", b"mine", qos=2)
    assert first.receive_a(Publish).payload == b"mine"
    other = member(broker, "other", session)
    first.close()
    assert drain(other) == []
    again = broker.client(Version.V5, "first", clean=not session, properties=session)
    # Its session ended with the connection, or it is finished where it was begun.
    assert drain(again) == ([b"mine"] if session else [])
    assert drain(other) == []


@pytest.mark.requirement("SUB-15", "QOS-21")
@pytest.mark.clause("MQTT-4.8.2-6")
@with_sessions
@pytest.mark.parametrize("qos", [1, 2])
def test_a_negative_answer_discards_the_message(
    broker: Broker, session: Properties, qos: int
) -> None:
    first = member(broker, "first", session)
    broker.client(Version.V5, "publisher").publish("t", b"no, thank you", qos=qos)
    message = first.receive_a(Publish)
    assert message.packet_id is not None
    other = member(broker, "other", session)
    kind = Kind.PUBACK if qos == 1 else Kind.PUBREC
    first.send(packets.ack(kind, message.packet_id, reason=0x83))
    first.ping()
    first.close()
    assert drain(other) == []


@pytest.mark.requirement("SUB-15", "SES-02")
@pytest.mark.clause("MQTT-4.8.2-3")
def test_a_stored_member_that_ends_for_good_leaves_its_messages_to_others(broker: Broker) -> None:
    leaver = member(broker, "leaver", KEEP, more=ONE_AT_A_TIME)
    publisher = broker.client(Version.V5, "publisher")
    for number in range(4):
        publisher.publish("t", b"%d" % number, qos=1)
    assert leaver.receive_a(Publish).payload == b"0"
    leaver.close()
    heir = member(broker, "heir", KEEP)
    assert drain(heir) == [], "it may come back"
    broker.client(Version.V5, "leaver", clean=True)
    assert [heir.take().payload for _ in range(4)] == [b"0", b"1", b"2", b"3"]


@pytest.mark.requirement("SUB-14", "SES-06")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_group_whose_members_are_all_away_keeps_messages_for_one(
    broker: Broker, qos: int
) -> None:
    member(broker, "away", KEEP).close()
    publisher = broker.client(Version.V5, "publisher")
    publisher.publish("t", b"later", qos=qos)
    back = broker.client(Version.V5, "away", clean=False, properties=KEEP)
    assert back.take().payload == b"later"


@pytest.mark.requirement("SUB-12", "SES-02")
def test_a_stored_member_is_one_again_when_it_returns(broker: Broker) -> None:
    member(broker, "returner", KEEP).close()
    back = broker.client(Version.V5, "returner", clean=False, properties=KEEP)
    other = member(broker, "other", KEEP)
    publisher = broker.client(Version.V5, "publisher")
    for qos in (0, 0, 1, 1):
        publisher.publish("t", b"%d" % qos, qos=qos)
    taken = Counter(drain(back)), Counter(drain(other))
    assert taken == (Counter({b"0": 1, b"1": 1}), Counter({b"0": 1, b"1": 1}))


@pytest.mark.requirement("SES-15", "SES-18", "SUB-15")
def test_a_transient_member_that_is_taken_over_has_left_its_groups(broker: Broker) -> None:
    first = member(broker, "peer")
    second = broker.client(Version.V5, "peer")
    first.expect_end(0x8E)
    publisher = broker.client(Version.V5, "publisher")
    for qos in (0, 1, 2):
        publisher.publish("t", b"nobody is there", qos=qos)
    assert drain(second) == []
    assert second.subscribe(GROUP, options=2) == (2,)
    publisher.publish("t", b"now", qos=1)
    assert second.take().payload == b"now"


@pytest.mark.requirement("SUB-12", "QOS-08")
def test_shared_and_own_messages_have_packet_ids_of_one_row(broker: Broker) -> None:
    """A transient member gets both kinds; no id is in use twice, and each ack means its own."""
    peer = member(broker, "peer", filters=(GROUP, "own"))
    publisher = broker.client(Version.V5, "publisher")
    for number in range(10):
        publisher.publish("t" if number % 2 else "own", b"%d" % number, qos=1 + number % 2)
    sent = [peer.receive_a(Publish) for _ in range(10)]
    assert len({message.packet_id for message in sent}) == 10
    for message in sent:
        peer.acknowledge(message)
    heir = member(broker, "heir")
    peer.close()
    assert drain(heir) == [], "all was acknowledged"
    publisher.publish("t", b"next", qos=1)
    assert heir.take().payload == b"next"


@pytest.mark.requirement("SUB-12")
def test_a_group_of_members_on_all_workers_shares_a_flood_without_loss(broker: Broker) -> None:
    members = [member(broker, f"m{n}", options=0) for n in range(4)]
    publishers = [broker.client(Version.V5, f"p{n}") for n in range(2)]
    for publisher in publishers:
        publisher.send(*(packets.publish("t", b"x", version=Version.V5) for _ in range(200)))
        publisher.ping()
    shares = [len(drain(one)) for one in members]
    assert sum(shares) == 400
    assert max(shares) - min(shares) <= 4, "turns are even over all workers"
