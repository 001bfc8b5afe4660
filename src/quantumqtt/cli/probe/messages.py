"""Checks of subscribing, publishing and delivering."""

from quantumqtt import _core
from quantumqtt._core import Control
from quantumqtt.cli.probe.check import Probe, check, equal, granted, value_of
from quantumqtt.cli.probe.peer import (
    PUBCOMP,
    PUBREC,
    PUBREL,
    SUBACK,
    NotOffered,
    violated,
    words,
)
from quantumqtt.mqtt import PropertyId

_MANY = 50


@check("SUBACK answers every filter in order", v311="MQTT-3.8.4-5", v5="MQTT-3.8.4-6")
def suback_answers_each_filter(probe: Probe) -> None:
    peer, topic = probe.open(), probe.new_topic()
    filters = [(f"{topic}/{number}", number) for number in range(3)]
    peer.send(_core.encode_subscribe(probe.version, 77, filters))
    answer = peer.receive()
    if not isinstance(answer, Control) or answer.kind != SUBACK or answer.packet_id != 77:
        violated(f"SUBACK 77 was due, {words(answer)} came")
    equal(len(answer.codes), 3, "codes in SUBACK")
    pairs = zip(answer.codes, filters, strict=True)
    if any(wanted < code < 0x80 for code, (_, wanted) in pairs):
        violated(f"granted {list(answer.codes)}, more than the wanted 0, 1, 2")


def _passes(probe: Probe, published: int, subscribed: int) -> None:
    topic = probe.new_topic()
    listener, publisher = probe.open(), probe.open()
    allowed = granted(listener.subscribe(topic, subscribed))
    if published > value_of(publisher, PropertyId.MAXIMUM_QOS, 2):
        raise NotOffered(f"the broker does not take QoS {published}, and says so")
    publisher.publish(topic, b"payload", published)
    message = listener.take()
    equal((message.topic, message.payload), (topic, b"payload"), "topic and payload")
    equal(message.qos, min(published, allowed), f"QoS of a QoS {published} message")
    equal(message.dup, False, "DUP of a first delivery")
    listener.expect_silence()


@check("QoS 0 is delivered once", v311="MQTT-4.3.1-1", v5="MQTT-4.3.1-1")
def qos_0_passes(probe: Probe) -> None:
    _passes(probe, 0, 0)


@check("QoS 1 is acknowledged and delivered", v311="MQTT-4.3.2-2", v5="MQTT-4.3.2-4")
def qos_1_passes(probe: Probe) -> None:
    _passes(probe, 1, 1)


@check("QoS 2 is acknowledged and delivered", v311="MQTT-4.3.3-2", v5="MQTT-4.3.3-8")
def qos_2_passes(probe: Probe) -> None:
    _passes(probe, 2, 2)


@check("no more QoS than published or granted", v311="MQTT-3.8.4-6", v5="MQTT-3.8.4-8")
def qos_is_the_lower_one(probe: Probe) -> None:
    for published, subscribed in ((2, 1), (2, 0), (1, 0), (0, 2), (1, 2)):
        _passes(probe, published, subscribed)


@check("a repeated QoS 2 publish is delivered once", v311="MQTT-4.3.3-2", v5="MQTT-4.3.3-10")
def qos_2_comes_once(probe: Probe) -> None:
    topic = probe.new_topic()
    listener, publisher = probe.listener(topic, 0), probe.open()
    publisher.send_publish(topic, b"once", 2, packet_id=5)
    publisher.expect_ack(PUBREC, 5)
    publisher.send_publish(topic, b"once", 2, dup=True, packet_id=5)
    publisher.expect_ack(PUBREC, 5)
    publisher.send_ack(PUBREL, 5)
    publisher.expect_ack(PUBCOMP, 5)
    publisher.publish(topic, b"marker", 2, packet_id=6)
    equal([listener.take().payload for _ in range(2)], [b"once", b"marker"], "deliveries")


@check("PUBREL is answered, known or not", v311="MQTT-4.3.3-2", v5="MQTT-4.3.3-11")
def pubrel_is_answered(probe: Probe) -> None:
    peer = probe.open()
    peer.send_ack(PUBREL, 4242)
    answer = peer.receive()
    if answer is None or isinstance(answer, Control) or getattr(answer, "kind", 0) != PUBCOMP:
        violated(f"PUBCOMP was due, {words(answer)} came")


@check("messages of a topic keep their order", v311="MQTT-4.6.0-6", v5="MQTT-4.6.0-5")
def order_is_kept(probe: Probe) -> None:
    for qos in (0, 1):
        topic = probe.new_topic()
        listener, publisher = probe.listener(topic, qos), probe.open()
        payloads = [b"%d" % number for number in range(_MANY)]
        for number, payload in enumerate(payloads):
            publisher.publish(topic, payload, qos, packet_id=number + 1)
        equal([listener.take().payload for _ in payloads], payloads, f"order at QoS {qos}")


@check("+ and # match what they should", v311="MQTT-4.7.1-3", v5="MQTT-4.7.1-2")
def wildcards_match(probe: Probe) -> None:
    root = probe.new_topic()
    expected = {
        f"{root}/+": ["a", "b"],
        f"{root}/#": ["", "a", "a/x", "b"],
        f"{root}/+/x": ["a/x"],
        f"{root}/a/#": ["a", "a/x"],
        f"{root}/a": ["a"],
    }
    publisher = probe.open()
    if value_of(publisher, PropertyId.WILDCARD_SUBSCRIPTION_AVAILABLE, 1) == 0:
        raise NotOffered("the broker offers no wildcards, and says so")
    listeners = {text: probe.listener(text, 0) for text in expected}
    for name in ("", "a", "a/x", "b"):
        publisher.publish(f"{root}/{name}".rstrip("/"), name.encode(), 1)
    for text, names in expected.items():
        got = [listeners[text].take().payload.decode() for _ in names]
        equal(got, names, f"messages for {text!r}")
        listeners[text].expect_silence()


@check("overlapping filters bring no higher QoS", v311="MQTT-3.3.5-1", v5="MQTT-3.3.4-2")
def overlapping_filters(probe: Probe) -> None:
    topic = probe.new_topic()
    listener, publisher = probe.open(), probe.open()
    granted(listener.subscribe(f"{topic}/#", 0, packet_id=1))
    best = granted(listener.subscribe(f"{topic}/a", 1, packet_id=2))
    publisher.publish(f"{topic}/a", b"x", 1)
    publisher.publish(f"{topic}/end", b"end", 1)
    came = []
    while (message := listener.take()).payload != b"end":
        came.append(message.qos)
    if not came or max(came) != best or len(came) > 2:
        violated(f"a message for filters of QoS 0 and {best} came with QoS {came}")


@check("UNSUBSCRIBE is answered and obeyed", v311="MQTT-3.10.4-4", v5="MQTT-3.10.4-4")
def unsubscribe_is_obeyed(probe: Probe) -> None:
    topic = probe.new_topic()
    listener, publisher = probe.open(), probe.open()
    granted(listener.subscribe(topic, 0))
    listener.unsubscribe(topic)
    publisher.publish(topic, b"x", 1)
    granted(listener.subscribe(topic + "/marker", 0, packet_id=9))
    publisher.publish(topic + "/marker", b"marker", 1)
    equal(listener.take().payload, b"marker", "what comes after UNSUBACK")


@check("UNSUBSCRIBE without a subscription is answered", v311="MQTT-3.10.4-5", v5="MQTT-3.10.4-5")
def unsubscribe_of_nothing(probe: Probe) -> None:
    probe.open().unsubscribe(probe.new_topic(), packet_id=321)


@check("a retained message reaches later subscribers", v311="MQTT-3.3.1-8", v5="MQTT-3.3.1-8")
def retained_reaches_later(probe: Probe) -> None:
    topic, publisher = probe.new_topic(), probe.open()
    probe.retain(publisher, topic, b"first")
    probe.retain(publisher, topic, b"kept")
    listener = probe.listener(topic, 1)
    message = listener.take()
    equal((message.payload, message.retain), (b"kept", True), "payload and retain")
    listener.expect_silence()


@check("a live message does not look retained", v311="MQTT-3.3.1-9", v5="MQTT-3.3.1-12")
def retained_looks_live(probe: Probe) -> None:
    topic, publisher = probe.new_topic(), probe.open()
    listener = probe.listener(topic, 1)
    probe.retain(publisher, topic, b"kept")
    equal(listener.take().retain, False, "retain of a live message")


@check("an empty retained message removes", v311="MQTT-3.3.1-10", v5="MQTT-3.3.1-6")
def retained_is_removed(probe: Probe) -> None:
    topic, publisher = probe.new_topic(), probe.open()
    probe.retain(publisher, topic, b"kept")
    probe.retain(publisher, topic, b"")
    listener = probe.listener(topic, 1)
    publisher.publish(topic, b"marker", 1)
    message = listener.take()
    equal((message.payload, message.retain), (b"marker", False), "first message")


@check("an ordinary message leaves the retained one", v311="MQTT-3.3.1-12", v5="MQTT-3.3.1-8")
def ordinary_leaves_retained(probe: Probe) -> None:
    topic, publisher = probe.new_topic(), probe.open()
    probe.retain(publisher, topic, b"kept")
    publisher.publish(topic, b"live", 1)
    equal(probe.listener(topic, 1).take().payload, b"kept", "retained message")


@check("subscribing again brings retained messages", v311="MQTT-3.8.4-3", v5="MQTT-3.8.4-3")
def subscribing_again(probe: Probe) -> None:
    topic, publisher = probe.new_topic(), probe.open()
    probe.retain(publisher, topic, b"kept")
    listener = probe.listener(topic, 1)
    listener.take()
    granted(listener.subscribe(topic, 0, packet_id=2))
    equal(listener.take().payload, b"kept", "retained message")
    publisher.publish(topic, b"live", 1)
    message = listener.take()
    equal((message.payload, message.qos), (b"live", 0), "a replaced subscription delivers")
    listener.expect_silence()


@check("a large message passes whole", v311="MQTT 3.3.3", v5="MQTT 3.3.3")
def large_message_passes(probe: Probe) -> None:
    topic = probe.new_topic()
    listener, publisher = probe.listener(topic, 1), probe.open()
    payload = bytes(range(256)) * 400
    if value_of(publisher, PropertyId.MAXIMUM_PACKET_SIZE, 2**28) < len(payload) + 200:
        raise NotOffered("the broker takes only smaller packets, and says so")
    publisher.publish(topic, payload, 1)
    if listener.take().payload != payload:
        violated(f"{len(payload)} bytes came altered")
