"""A session and a pretend broker, one question per test."""

# Receipts can be awaited, and nobody has to.
# mypy: disable-error-code="unused-awaitable"

import pytest

from quantumqtt.client.options import SessionOptions, Will
from quantumqtt.client.protocol import Connected, Failed, State, SubscriptionLost
from quantumqtt.client.receipts import Receipt
from quantumqtt.errors import (
    ClientClosed,
    ConnectionLost,
    LocalProtocolError,
    NotAuthorized,
    PacketTooLarge,
    PublishQueueFull,
    Refused,
    RemoteProtocolError,
    ServerRedirect,
    SessionLost,
)
from tests.harness import packets
from tests.harness.packets import Key, Kind, Version
from tests.harness.pretend_broker import PretendBroker
from tests.unit.client.rig import Rig


def connack(
    reason: int = 0, *, present: bool = False, properties: packets.Properties = ()
) -> bytes:
    body = bytes([present, reason]) + packets.property_block(properties)
    return bytes([0x20, len(body)]) + body


def failure(rig: Rig) -> Exception:
    return next(event.error for event in rig.events if isinstance(event, Failed))


def rig_with(**options: object) -> Rig:
    return Rig(options=SessionOptions(client_id="rig", **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ["3.1.1", "5"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publish_arrives_and_is_acknowledged(version: str, qos: int) -> None:
    broker = PretendBroker(version=Version.V5 if version == "5" else Version.V311)
    options = SessionOptions(client_id="rig", version=version)  # type: ignore[arg-type]
    rig = Rig(broker, options)
    rig.connect()
    receipt = rig.publish(b"hello", qos)
    rig.settle()
    assert receipt.acknowledged
    assert rig.broker.received == [b"hello"]


@pytest.mark.requirement("CLI-06", "CLI-10")
def test_a_full_window_queues_and_each_acknowledgement_releases_the_next() -> None:
    rig = Rig(PretendBroker(properties=((Key.RECEIVE_MAXIMUM, 1),)))
    rig.connect()
    receipts = [rig.publish(str(number).encode(), 1) for number in range(3)]
    rig.carry_up()
    assert rig.broker.received == [b"0"]
    rig.carry_down()
    assert [receipt.done() for receipt in receipts] == [True, False, False]
    rig.carry_up()
    assert rig.broker.received == [b"0", b"1"]
    rig.settle()
    assert rig.broker.received == [b"0", b"1", b"2"]


@pytest.mark.requirement("CLI-10")
def test_an_error_pubrec_frees_its_slot() -> None:
    rig = Rig(PretendBroker(properties=((Key.RECEIVE_MAXIMUM, 1),)))
    rig.connect()
    first, second = rig.publish(b"1", 2), rig.publish(b"2", 2)
    rig.to_broker = b""
    rig.broker_sends(packets.ack(Kind.PUBREC, first.packet_id, reason=0x97))
    rig.carry_down()
    assert isinstance(first.exception(), Refused)
    assert second.packet_id != 0
    rig.settle()
    assert second.acknowledged


@pytest.mark.requirement("CLI-19")
def test_a_release_that_the_server_had_finished_before_is_a_success() -> None:
    rig = Rig()
    rig.connect()
    receipt = rig.publish(b"once", 2)
    rig.carry_up()
    rig.carry_down()
    rig.cut()
    rig.begin()
    rig.carry_up()
    rig.carry_down()
    rig.to_broker = b""  # the PUBREL, again
    rig.broker_sends(packets.ack(Kind.PUBCOMP, receipt.packet_id, reason=0x92))
    rig.carry_down()
    assert receipt.acknowledged
    assert receipt.result() == 0


@pytest.mark.requirement("CLI-07")
def test_nothing_overtakes_not_even_qos_0() -> None:
    rig = Rig(PretendBroker(properties=((Key.RECEIVE_MAXIMUM, 1),)))
    rig.connect()
    for number, qos in enumerate((1, 1, 0, 2)):
        rig.publish(str(number).encode(), qos)
    rig.settle()
    assert rig.broker.received == [b"0", b"1", b"2", b"3"]


@pytest.mark.requirement("CLI-15")
def test_acknowledgements_wait_for_acceptance_and_keep_the_order_of_receipt() -> None:
    rig = Rig()
    rig.subscribe("down")
    rig.connect()
    for payload in (b"a", b"b", b"c"):
        rig.broker_sends(rig.broker.send(payload, qos=1))
    rig.settle()
    assert rig.broker.acknowledged_by_client == []
    rig.accept_all(lambda message: message.payload != b"a")
    rig.settle()
    assert rig.broker.acknowledged_by_client == []
    rig.accept_all(lambda message: message.payload == b"a")
    rig.settle()
    assert rig.broker.acknowledged_by_client == [1, 2, 3]


def test_two_subscribers_must_both_accept() -> None:
    rig = Rig()
    rig.subscribe("down", "#")
    rig.session.routes.add("+", type(rig.sink)())
    rig.connect()
    rig.broker_sends(rig.broker.send(b"a", qos=1))
    rig.settle()
    rig.accept_all()
    rig.settle()
    assert rig.broker.acknowledged_by_client == []
    rig.accept_all()
    rig.settle()
    assert rig.broker.acknowledged_by_client == [1]


def test_a_message_for_nobody_is_acknowledged_and_counted() -> None:
    rig = Rig()
    rig.connect()
    rig.broker_sends(rig.broker.send(b"a", qos=1))
    rig.settle()
    assert rig.broker.acknowledged_by_client == [1]
    assert rig.session.unrouted_total == 1


@pytest.mark.requirement("CLI-19")
def test_a_forgotten_session_restores_subscriptions_and_fails_only_what_cannot_be_known() -> None:
    rig = Rig(PretendBroker(keeps_session=False), SessionOptions(client_id="rig"))
    rig.subscribe("a/#", "b", qos=1)
    rig.connect()
    assert rig.broker.subscriptions == {"a/#": 1, "b": 1}
    once, twice, queued = rig.publish(b"1", 1), rig.publish(b"2", 2), None
    rig.cut()
    queued = rig.publish(b"3", 2)
    assert rig.broker.subscriptions == {}
    rig.connect()
    assert rig.broker.subscriptions == {"a/#": 1, "b": 1}
    assert once.acknowledged
    assert queued.acknowledged
    assert isinstance(twice.exception(), SessionLost)


@pytest.mark.requirement("CLI-19")
def test_a_session_that_is_present_is_resent_in_order_within_the_new_window() -> None:
    """What the server had released at QoS 2 is released again, not published again."""
    rig = Rig()
    rig.connect()
    first = rig.publish(b"released", 2)
    rig.carry_up()
    rig.carry_down()  # PUBREC came, PUBREL is on the wire
    others = [rig.publish(str(number).encode(), 1 + number % 2) for number in range(4)]
    ids = [receipt.packet_id for receipt in others]
    rig.cut()
    late = rig.publish(b"late", 1)
    rig.broker.properties = ((Key.RECEIVE_MAXIMUM, 2),)
    rig.begin()
    rig.carry_up()
    rig.carry_down()
    assert rig.to_broker[0] >> 4 == Kind.PUBREL
    assert rig.broker.received == [b"released"]
    resent = _publishes(rig.to_broker[4:])
    assert [(one.payload, one.dup, one.packet_id) for one in resent] == [(b"0", True, ids[0])]
    rig.settle()
    assert rig.broker.received == [b"released", b"0", b"1", b"2", b"3", b"late"]
    assert all(receipt.acknowledged for receipt in (first, *others, late))


def test_restoring_goes_on_when_it_was_cut_short() -> None:
    rig = Rig(PretendBroker(keeps_session=False), SessionOptions(client_id="rig"))
    rig.subscribe("a")
    rig.connect()
    rig.cut()
    rig.broker.keeps_session = True
    rig.begin()
    rig.carry_up()
    rig.carry_down()  # the CONNACK arrived, SUBSCRIBE is on the wire
    rig.cut()
    rig.connect()
    assert rig.broker.subscriptions == {"a": 2}


def test_a_refused_restoration_is_reported() -> None:
    rig = Rig(PretendBroker(keeps_session=False), SessionOptions(client_id="rig"))
    rig.subscribe("a")
    rig.connect()
    rig.cut()
    rig.begin()
    rig.carry_up()
    rig.carry_down()
    packet_id = rig.to_broker[-7:-5]
    rig.to_broker = b""
    rig.broker_sends(b"\x90\x04" + packet_id + b"\x00\x87")
    rig.carry_down()
    lost = [event for event in rig.events if isinstance(event, SubscriptionLost)]
    assert [event.topic_filter for event in lost] == ["a"]
    assert isinstance(lost[0].error, NotAuthorized)
    assert rig.session.subscriptions == {}


@pytest.mark.requirement("CLI-21")
def test_the_map_of_subscriptions_follows_the_servers_answers_only() -> None:
    rig = Rig()
    rig.connect()
    operation = rig.session.subscribe([("good", 1), ("bad", 1)])
    rig.collect()
    assert rig.session.subscriptions == {}
    rig.to_broker = b""
    rig.broker_sends(b"\x90\x05" + operation.packet_id.to_bytes(2, "big") + b"\x00\x01\x87")
    rig.carry_down()
    assert rig.session.subscriptions == {"good": 1}
    assert isinstance(operation.exception(), NotAuthorized)
    gone = rig.session.unsubscribe(["good"])
    rig.collect()
    assert rig.session.subscriptions == {"good": 1}
    rig.settle()
    assert gone.result() == (0,)
    assert rig.session.subscriptions == {}


@pytest.mark.requirement("CLI-21")
def test_a_refused_unsubscribe_leaves_the_map_as_it_is() -> None:
    rig = Rig()
    rig.connect()
    rig.subscribe("kept", "unknown")
    rig.settle()
    gone = rig.session.unsubscribe(["kept", "unknown"])
    rig.collect()
    assert rig.session.subscriptions == {"kept": 2, "unknown": 2}
    rig.to_broker = b""
    rig.broker_sends(b"\xb0\x05" + gone.packet_id.to_bytes(2, "big") + b"\x00\x87\x11")
    rig.carry_down()
    assert isinstance(gone.exception(), NotAuthorized)
    assert rig.session.subscriptions == {"kept": 2}


@pytest.mark.requirement("CLI-23")
def test_pings_when_idle_and_a_missing_answer_is_a_loss() -> None:
    rig = rig_with(keep_alive_s=8)
    rig.connect()
    assert rig.session.tick(5.9) == 6.0
    assert not rig.session.has_output()
    assert rig.session.tick(6.0) == 12.0
    assert rig.session.take_output(6.0) == b"\xc0\x00"
    rig.session.receive(b"\xd0\x00")
    assert rig.session.tick(11.0) == 12.0
    assert rig.session.tick(12.0) == 18.0
    assert rig.session.tick(18.0) is None
    rig.collect()
    assert isinstance(failure(rig), ConnectionLost)


@pytest.mark.parametrize("keep_alive_s", [0, 60])
def test_a_server_that_answers_pings_and_nothing_else_is_left(keep_alive_s: int) -> None:
    """And on the next connection the question has its whole time again."""
    rig = rig_with(keep_alive_s=keep_alive_s)
    rig.connect()
    operation = rig.subscribe("a")
    rig.to_broker = b""
    assert rig.session.tick(100.0) == 120.0
    assert rig.session.tick(119.0) in (120.0, 160.0 if keep_alive_s else 120.0, 164.0)
    rig.session.receive(b"\xd0\x00")
    assert rig.session.tick(120.0) is None
    rig.collect()
    assert "no answer to SUBSCRIBE of 'a'" in str(failure(rig))
    rig.cut()
    rig.now = 121.0
    rig.begin()
    rig.carry_up()
    rig.carry_down()
    rig.to_broker = b""
    assert rig.session.tick(121.0) == 141.0
    assert not operation.done()


def test_the_servers_keep_alive_wins() -> None:
    rig = Rig(PretendBroker(properties=((Key.SERVER_KEEP_ALIVE, 4),)))
    rig.connect()
    assert rig.session.tick(0.0) == 3.0


@pytest.mark.requirement("CLI-24")
def test_the_queue_is_bounded_in_bytes() -> None:
    rig = rig_with(queue_bytes_max=20)
    rig.publish(b"x" * 10, 1, "t")
    with pytest.raises(PublishQueueFull) as full:
        rig.publish(b"x" * 10, 1, "t")
    assert full.value.retryable
    assert rig.session.unsettled_bytes == 11


@pytest.mark.requirement("CLI-24")
def test_dropping_the_oldest_spares_what_is_in_flight() -> None:
    rig = Rig(
        PretendBroker(properties=((Key.RECEIVE_MAXIMUM, 1),)),
        SessionOptions(client_id="rig", queue_bytes_max=20),
    )
    rig.connect()
    flying, oldest = rig.publish(b"x" * 9, 1, "t"), rig.publish(b"y" * 9, 1, "t")
    newest = Receipt("t", b"z" * 9, 2, b"")
    rig.session.publish(newest, drop_oldest=True)
    rig.collect()
    assert isinstance(oldest.exception(), PublishQueueFull)
    rig.settle()
    assert flying.acknowledged
    assert newest.acknowledged


def test_limits_of_the_server_are_refused_at_the_call() -> None:
    limits = (
        (Key.MAXIMUM_PACKET_SIZE, 100),
        (Key.MAXIMUM_QOS, 1),
        (Key.RETAIN_AVAILABLE, 0),
    )
    rig = Rig(PretendBroker(properties=limits))
    early = rig.publish(b"x" * 100, 0)
    rig.connect()
    assert isinstance(early.exception(), PacketTooLarge)
    with pytest.raises(PacketTooLarge):
        rig.publish(b"x" * 100, 0)
    with pytest.raises(Refused, match="QoS not supported"):
        rig.publish(b"x", 2)
    with pytest.raises(Refused, match="retain not supported"):
        rig.session.publish(Receipt("t", b"", 1, b""))
    assert rig.session.unsettled_bytes == 0


def test_properties_need_mqtt_5() -> None:
    rig = Rig(PretendBroker(version=Version.V311), SessionOptions(client_id="rig", version="3.1.1"))
    rig.connect()
    with pytest.raises(LocalProtocolError, match="properties"):
        rig.session.publish(Receipt("t", b"", 0, b"\x01\x01"))


def test_topic_aliases_shorten_and_do_not_survive_the_connection() -> None:
    rig = Rig(
        PretendBroker(properties=((Key.TOPIC_ALIAS_MAXIMUM, 1),)),
        SessionOptions(client_id="rig", topic_aliases=True),
    )
    rig.connect()
    for _ in range(2):
        rig.publish(b"x", 0, "long/topic")
    first, second = _publishes(rig.to_broker)
    assert (first.topic, second.topic) == ("long/topic", "")
    rig.settle()
    rig.cut()
    rig.connect()
    rig.publish(b"x", 0, "long/topic")
    assert _publishes(rig.to_broker)[0].topic == "long/topic"


def _publishes(data: bytes) -> list[packets.Publish]:
    found = []
    while data:
        end = 2 + data[1]
        packet = packets.parse(data[:end], Version.V5)
        assert isinstance(packet, packets.Publish)
        found.append(packet)
        data = data[end:]
    return found


def test_inbound_aliases_are_resolved_and_unknown_ones_refused() -> None:
    rig = rig_with(topic_alias_maximum=1)
    rig.subscribe("down")
    rig.connect()
    alias = ((Key.TOPIC_ALIAS, 1),)
    for topic in ("down", ""):
        rig.broker_sends(packets.publish(topic, b"x", version=Version.V5, properties=alias))
    rig.settle()
    assert [message.topic for message in rig.sink.messages] == ["down", "down"]
    above = ((Key.TOPIC_ALIAS, 2),)
    rig.broker_sends(packets.publish("down", b"x", version=Version.V5, properties=above))
    rig.carry_down()
    error = failure(rig)
    assert isinstance(error, RemoteProtocolError)
    assert error.reason_code == 0x94


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (connack(0x87), NotAuthorized),
        (connack(0x86), NotAuthorized),
        (connack(0x9C, properties=((Key.SERVER_REFERENCE, "other:1883"),)), ServerRedirect),
        (connack(0x88), Refused),
        (b"\x20\x02\x00\x01", Refused),
        (b"\xd0\x00", RemoteProtocolError),
        (b"\x90\x04\x00\x01\x00\x00", RemoteProtocolError),
        (b"HTTP/1.1 400 Bad Request\r\n", RemoteProtocolError),
        (connack(present=True), RemoteProtocolError),
    ],
)
def test_bad_answers_to_connect_are_typed(said: bytes, kind: type[Exception]) -> None:
    rig = Rig()
    rig.begin()
    rig.broker_sends(said)
    rig.carry_down()
    error = failure(rig)
    assert isinstance(error, kind)
    assert error.hint  # type: ignore[attr-defined]


@pytest.mark.requirement("CLI-18")
def test_a_redirect_names_the_other_server() -> None:
    rig = Rig()
    rig.connect()
    body = b"\x9d" + packets.property_block(((Key.SERVER_REFERENCE, "other:1883"),))
    rig.broker_sends(bytes([0xE0, len(body)]) + body)
    rig.carry_down()
    error = failure(rig)
    assert isinstance(error, ServerRedirect)
    assert error.server_reference == "other:1883"


@pytest.mark.parametrize(
    "said",
    [
        b"\x90\x04\x00\x09\x00\x00",  # answers nothing that was asked
        b"\x20\x03\x00\x00\x00",  # a second CONNACK
        b"\x82\x06\x00\x01\x00\x00\x00\x00",  # what only clients send
        b"\x36\x05\x00\x01a\x00\x00",  # QoS 3
        b"\xf0\x00",  # AUTH that nobody offered
    ],
)
def test_a_server_that_breaks_the_rules_is_told_and_left(said: bytes) -> None:
    rig = Rig()
    rig.connect()
    rig.broker_sends(said)
    rig.carry_down()
    assert isinstance(failure(rig), RemoteProtocolError)
    assert rig.session.state is State.ENDING
    assert rig.to_broker[0] >> 4 == Kind.DISCONNECT


def test_a_taken_over_session_is_not_taken_back() -> None:
    rig = Rig()
    rig.connect()
    rig.broker_sends(b"\xe0\x01\x8e")
    rig.carry_down()
    error = failure(rig)
    assert isinstance(error, ConnectionLost)
    assert not error.retryable


def test_more_than_our_receive_maximum_is_a_violation() -> None:
    rig = rig_with(receive_maximum=2)
    rig.subscribe("down")
    rig.connect()
    for _ in range(3):
        rig.broker_sends(rig.broker.send(b"x", qos=1))
    rig.carry_down()
    error = failure(rig)
    assert isinstance(error, RemoteProtocolError)
    assert error.reason_code == 0x93


def test_the_fall_back_happens_once_and_only_where_it_is_allowed() -> None:
    assert not rig_with(version="5").session.fall_back()
    session = rig_with(version="auto").session
    assert session.level == 5
    assert session.fall_back()
    assert session.level == 4
    assert not session.fall_back()
    session.fall_forward()
    assert session.level == 5


@pytest.mark.parametrize(
    ("options", "expiry"),
    [({}, 300), ({"session_expiry_s": 7}, 7), ({"clean_start": False}, 0xFFFFFFFF)],
)
def test_the_session_outlives_connections_and_ends_as_asked(
    options: dict[str, object], expiry: int
) -> None:
    rig = rig_with(**options)
    rig.connect()
    connected = next(event for event in rig.events if isinstance(event, Connected))
    assert connected.capabilities.session_expiry_s == expiry
    rig.session.disconnect()
    last = rig.session.take_output(0.0)
    assert last == (b"\xe0\x00" if options else b"\xe0\x07\x00\x05\x11\x00\x00\x00\x00")


def test_packet_ids_in_use_are_skipped() -> None:
    rig = Rig()
    rig.connect()
    held = rig.publish(b"held", 1)
    rig.to_broker = b""
    rig.session._outbound._next_id = 65_535
    ids = [rig.publish(b"x", 1).packet_id for _ in range(2)]
    assert held.packet_id == 1
    assert ids == [65_535, 2]


@pytest.mark.requirement("CLI-26")
def test_closing_fails_every_promise() -> None:
    rig = Rig()
    rig.connect()
    promises = [rig.publish(b"x", qos) for qos in (1, 2)]
    operation = rig.subscribe("a")
    rig.cut()
    queued = rig.publish(b"x", 0)
    rig.session.close(ClientClosed("closed"))
    rig.collect()
    assert isinstance(operation.exception(), ClientClosed)
    for promise in (*promises, queued):
        assert isinstance(promise.exception(), ClientClosed)
    assert rig.session.unsettled_bytes == 0


def test_a_packet_arrives_byte_by_byte() -> None:
    rig = Rig()
    rig.subscribe("down")
    rig.connect()
    rig.broker_sends(rig.broker.send(b"x" * 300, qos=2))
    while rig.to_client:
        rig.carry_down(1)
    assert [message.payload for message in rig.sink.messages] == [b"x" * 300]


@pytest.mark.parametrize(
    "wrong",
    [
        {"keep_alive_s": -1},
        {"receive_maximum": 0},
        {"inflight_max": 70_000},
        {"queue_bytes_max": 0},
        {"version": "6"},
    ],
)
def test_wrong_options_fail_at_once(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong)).split("_", maxsplit=1)[0]):
        SessionOptions(**wrong)  # type: ignore[arg-type]


def test_a_wrong_will_fails_at_once() -> None:
    with pytest.raises(LocalProtocolError):
        Will(topic="a/+")
    with pytest.raises(LocalProtocolError):
        Will(topic="a", qos=3)
