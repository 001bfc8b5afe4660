"""A session with a store and a process that dies: one question per test."""

# Receipts can be awaited, and nobody has to.
# mypy: disable-error-code="unused-awaitable"

import pytest

from quantumqtt.client.options import SessionOptions
from quantumqtt.client.protocol import Connected
from quantumqtt.errors import ClientClosed, SessionLost, StillStored
from tests.harness import packets
from tests.harness.packets import Key, Kind, Version
from tests.harness.pretend_broker import PretendBroker
from tests.unit.client.rig import Rig

pytestmark = pytest.mark.requirement("CLI-25")


def rig_with(broker: PretendBroker | None = None, **options: object) -> Rig:
    stored = SessionOptions(client_id="rig", is_stored=True, **options)  # type: ignore[arg-type]
    rig = Rig(broker, stored)
    rig.connect()
    # Packet id 1 is used up, so that a new process would choose ids that another one has.
    rig.publish(b"before", 1)
    rig.settle()
    return rig


def news(rig: Rig) -> Connected:
    return [event for event in rig.events if isinstance(event, Connected)][-1]


@pytest.mark.parametrize("qos", [1, 2])
def test_an_accepted_publish_is_sent_by_the_next_process(qos: int) -> None:
    rig = rig_with()
    rig.cut()
    receipt = rig.publish(b"later", qos)
    assert receipt.accepted
    (recovered,) = rig.crash()
    assert (recovered.topic, recovered.payload, recovered.qos) == ("up", b"later", qos)
    rig.connect()
    assert rig.broker.received == [b"before", b"later"]
    assert recovered.acknowledged
    assert rig.crash() == []


def test_a_qos_2_publish_keeps_its_packet_id() -> None:
    rig = rig_with()
    rig.publish(b"once", 2)
    rig.carry_up()
    (recovered,) = rig.crash()
    assert recovered.packet_id == 2
    rig.connect()
    assert rig.broker.received == [b"before", b"once"]
    assert recovered.acknowledged


def test_a_qos_2_publish_that_the_broker_has_is_only_released() -> None:
    rig = rig_with()
    rig.publish(b"once", 2)
    rig.carry_up()
    rig.carry_down()
    rig.carry_up()  # PUBREL arrived, its answer did not
    (recovered,) = rig.crash()
    assert (recovered.released, recovered.payload) == (True, b"once")
    rig.connect()
    assert rig.broker.received == [b"before", b"once"]
    assert recovered.acknowledged


def test_what_the_application_accepted_at_qos_2_is_not_handed_out_again() -> None:
    rig = rig_with()
    rig.subscribe("down")
    rig.settle()
    for payload in (b"not yet", b"accepted"):
        rig.broker_sends(rig.broker.send(payload, qos=2))
    rig.carry_down()
    rig.accept_all(lambda message: message.payload == b"accepted")
    rig.crash()
    rig.session.routes.add("down", rig.sink)
    rig.connect()
    assert [one.payload for one in rig.sink.messages] == [b"not yet"]
    assert rig.broker.owed == 2  # acknowledgements keep the order of receipt
    rig.accept_all()
    rig.settle()
    assert rig.broker.owed == 0


def test_an_id_that_is_done_is_free_for_the_next_message() -> None:
    rig = rig_with()
    rig.subscribe("down")
    rig.settle()
    rig.broker_sends(rig.broker.send(b"first", qos=2))
    rig.carry_down()
    rig.accept_all()
    rig.settle()
    rig.crash()
    rig.session.routes.add("down", rig.sink)
    rig.connect()
    rig.broker_sends(packets.publish("down", b"next", version=Version.V5, qos=2, packet_id=1))
    rig.carry_down()
    assert [one.payload for one in rig.sink.messages] == [b"next"]


def test_subscriptions_are_made_again_when_the_session_expired_meanwhile() -> None:
    rig = rig_with()
    rig.subscribe("kept", "gone", qos=1)
    rig.settle()
    rig.session.unsubscribe(["gone"])
    rig.settle()
    in_flight = rig.publish(b"unknown", 2)
    rig.cut()
    queued = rig.publish(b"queued", 1)
    lost, sent = rig.crash()
    rig.broker.forget()
    rig.connect()
    assert news(rig).session_lost
    assert rig.broker.subscriptions == {"kept": 1}
    assert isinstance(lost.exception(), SessionLost)
    assert sent.acknowledged
    assert not in_flight.done()
    assert not queued.done()
    assert rig.crash() == []


def test_the_version_that_was_agreed_on_is_spoken_again() -> None:
    broker = PretendBroker(version=Version.V311)
    rig = Rig(broker, SessionOptions(client_id="rig", is_stored=True))
    rig.session.fall_back()
    rig.connect()
    rig.crash()
    rig.events.clear()
    rig.connect()
    assert news(rig).capabilities.version == "3.1.1"
    assert news(rig).session_present
    assert not news(rig).session_lost


def test_closing_leaves_to_the_store_what_is_stored_and_fails_the_rest() -> None:
    rig = rig_with()
    rig.cut()
    stored, once = rig.publish(b"1", 1), rig.publish(b"0", 0)
    rig.session.close(ClientClosed("closed"))
    rig.collect()
    assert isinstance(stored.exception(), StillStored)
    assert type(once.exception()) is ClientClosed
    (recovered,) = rig.crash()
    rig.connect()
    assert recovered.acknowledged


def test_what_was_dropped_or_refused_is_not_sent_after_a_crash() -> None:
    rig = rig_with(queue_bytes_max=100)
    rig.cut()
    dropped = rig.publish(b"x" * 80, 1)
    newer = rig.session._outbound
    receipt = type(dropped)("up", b"y" * 80, 2, b"")
    newer.accept(receipt, drop_oldest=True)
    rig.collect()
    assert dropped.exception() is not None
    (recovered,) = rig.crash()
    assert recovered.payload == b"y" * 80
    rig.begin()
    rig.carry_up()
    rig.carry_down()
    rig.to_broker = b""
    rig.broker_sends(packets.ack(Kind.PUBACK, recovered.packet_id, reason=0x97))
    rig.carry_down()
    assert recovered.exception() is not None
    assert rig.crash() == []


def test_a_snapshot_amounts_to_all_records() -> None:
    """Whatever is under way, a store that is written anew holds the same."""
    rig = rig_with(PretendBroker(properties=((Key.RECEIVE_MAXIMUM, 2),)))
    rig.subscribe("down")
    rig.settle()
    for payload in (b"a", b"b"):
        rig.broker_sends(rig.broker.send(payload, qos=2))
    rig.carry_down()
    rig.accept_all(lambda message: message.payload == b"a")
    for number in range(4):
        rig.publish(str(number).encode(), 2)
    rig.carry_up()
    rig.carry_down(4)
    records, _ = rig.session.snapshot()
    summed = type(rig.stored)("rig")
    summed.apply(b"".join(records))
    for one in (summed, rig.stored):
        for publish in one.publishes.values():
            publish.record = b"" if publish.released else publish.record
    assert summed == rig.stored
