"""Checks of what outlives a connection."""

import time

from quantumqtt.cli.probe.check import Probe, check, equal, granted
from quantumqtt.cli.probe.peer import PUBREC, PUBREL, V5, Ack, Peer, violated, words
from quantumqtt.mqtt import PropertyId


def _resume(probe: Probe, client_id: str) -> Peer:
    peer = probe.open(client_id, clean=False, keeps=True)
    assert peer.connack is not None, "it is open"
    if not peer.connack.session_present:
        violated("session present is 0 although the session was to be kept")
    return peer


@check("a kept session is there again", v311="MQTT-3.2.2-2", v5="MQTT-3.2.2-3")
def session_is_present(probe: Probe) -> None:
    client_id = probe.new_id()
    probe.open(client_id, keeps=True).leave()
    _resume(probe, client_id)


@check("what came meanwhile is delivered", v311="MQTT-3.1.2-5", v5="MQTT-3.1.2-5")
def offline_messages_come(probe: Probe) -> None:
    client_id, topic = probe.new_id(), probe.new_topic()
    sleeper = probe.open(client_id, keeps=True)
    granted(sleeper.subscribe(topic, 2))
    sleeper.leave()
    publisher = probe.open()
    for number in range(5):
        publisher.publish(topic, b"%d" % number, 1 + number % 2, packet_id=number + 1)
    resumed = _resume(probe, client_id)
    equal([resumed.take().payload for _ in range(5)], [b"%d" % n for n in range(5)], "messages")


@check("unacknowledged messages come again", v311="MQTT-4.4.0-1", v5="MQTT-4.4.0-1")
def unacknowledged_come_again(probe: Probe) -> None:
    client_id, topic = probe.new_id(), probe.new_topic()
    careless = probe.open(client_id, keeps=True)
    granted(careless.subscribe(topic, 1))
    probe.open().publish(topic, b"again", 1)
    first = careless.take(acknowledge=False)
    careless.close()
    again = _resume(probe, client_id).take()
    equal(again.payload, b"again", "the message")
    equal((again.packet_id, again.dup), (first.packet_id, True), "packet id and DUP")


@check("an acknowledged message does not come again", v311="MQTT-4.4.0-1", v5="MQTT-4.4.0-1")
def acknowledged_do_not(probe: Probe) -> None:
    client_id, topic = probe.new_id(), probe.new_topic()
    careful = probe.open(client_id, keeps=True)
    granted(careful.subscribe(topic, 1))
    probe.open().publish(topic, b"once", 1)
    careful.take()
    careful.expect_silence()
    careful.leave()
    _resume(probe, client_id).expect_silence()


@check("an unfinished QoS 2 goes on with PUBREL", v311="MQTT-4.4.0-1", v5="MQTT-4.4.0-1")
def released_goes_on(probe: Probe) -> None:
    client_id, topic = probe.new_id(), probe.new_topic()
    careless = probe.open(client_id, keeps=True)
    granted(careless.subscribe(topic, 2))
    probe.open().publish(topic, b"once", 2)
    message = careless.take(acknowledge=False)
    assert message.packet_id is not None or message.qos == 0, "QoS 2 has packet ids"
    careless.send_ack(PUBREC, message.packet_id or 0)
    careless.receive()
    careless.close()
    came = _resume(probe, client_id).receive()
    if came != Ack(PUBREL, message.packet_id or 0, 0):
        violated(f"PUBREL {message.packet_id} was due, {words(came)} came")


@check("a QoS 2 publish survives a reconnect once", v311="MQTT-4.3.3-2", v5="MQTT-4.3.3-10")
def inbound_qos_2_survives(probe: Probe) -> None:
    client_id, topic = probe.new_id(), probe.new_topic()
    listener = probe.listener(topic, 0)
    publisher = probe.open(client_id, keeps=True)
    publisher.send_publish(topic, b"once", 2, packet_id=7)
    publisher.expect_ack(PUBREC, 7)
    publisher.close()
    resumed = _resume(probe, client_id)
    resumed.send_publish(topic, b"once", 2, dup=True, packet_id=7)
    resumed.expect_ack(PUBREC, 7)
    resumed.send_ack(PUBREL, 7)
    resumed.expect_ack(7, 7)
    resumed.publish(topic, b"marker", 2, packet_id=8)
    equal([listener.take().payload for _ in range(2)], [b"once", b"marker"], "deliveries")


@check("a session without a wish ends with its connection", v311="MQTT-3.1.2-6", v5="MQTT-3.1.2-23")
def transient_session_ends(probe: Probe) -> None:
    client_id = probe.new_id()
    probe.open(client_id).leave()
    peer = probe.open(client_id, clean=False, keeps=True)
    assert peer.connack is not None, "it is open"
    if peer.connack.session_present:
        violated("session present is 1, although the session before it was clean")


@check("a session expires", v5="MQTT-3.1.2-23")
def session_expires(probe: Probe) -> None:
    client_id = probe.new_id()
    peer = probe.open(client_id, properties=((PropertyId.SESSION_EXPIRY_INTERVAL, 1),))
    peer.leave()
    time.sleep(2.5)
    again = probe.open(client_id, clean=False)
    assert again.connack is not None, "it is open"
    if again.connack.session_present:
        violated("the session is there 2.5 s after it was to expire in 1 s")


@check("an expired message is not delivered", v5="MQTT-3.3.2-5")
def message_expires(probe: Probe) -> None:
    assert probe.version == V5, "properties need it"
    client_id, topic = probe.new_id(), probe.new_topic()
    sleeper = probe.open(client_id, keeps=True)
    granted(sleeper.subscribe(topic, 1))
    sleeper.leave()
    publisher = probe.open()
    expiry = PropertyId.MESSAGE_EXPIRY_INTERVAL
    publisher.publish(topic, b"stale", 1, properties=((expiry, 1),))
    publisher.publish(topic, b"fresh", 1, properties=((expiry, 100),))
    time.sleep(2.5)
    message = _resume(probe, client_id).take()
    equal(message.payload, b"fresh", "what is delivered 2.5 s later")
    left = message.message_expiry_s
    if left is None or left > 98:
        violated(f"of 100 s message expiry {left} are left after 2.5 s, [MQTT-3.3.2-6]")
