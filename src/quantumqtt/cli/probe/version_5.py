"""Checks of what only MQTT 5 has."""

from quantumqtt._core import Message
from quantumqtt.cli.probe.check import Probe, check, equal, granted, value_of
from quantumqtt.cli.probe.peer import NotOffered, violated, words
from quantumqtt.mqtt import PropertyId

_NO_LOCAL, _AS_PUBLISHED, _IF_NEW, _NEVER = 0x04, 0x08, 0x10, 0x20


@check("no-local keeps one's own messages away", v5="MQTT-3.8.3-3")
def no_local(probe: Probe) -> None:
    peer, topic = probe.open(), probe.new_topic()
    granted(peer.subscribe(topic, _NO_LOCAL))
    peer.publish(topic, b"mine", 1)
    probe.open().publish(topic, b"yours", 1)
    equal(peer.take().payload, b"yours", "first message")


@check("retain-as-published keeps the flag", v5="MQTT-3.3.1-13")
def retain_as_published(probe: Probe) -> None:
    topic, publisher = probe.new_topic(), probe.open()
    listener = probe.listener(topic, 1 | _AS_PUBLISHED)
    probe.retain(publisher, topic, b"kept")
    equal(listener.take().retain, True, "retain")
    publisher.publish(topic, b"live", 1)
    equal(listener.take().retain, False, "retain")


@check("retain handling 1 sends retained messages once", v5="MQTT-3.3.1-10")
def retain_handling_if_new(probe: Probe) -> None:
    topic, publisher = probe.new_topic(), probe.open()
    probe.retain(publisher, topic, b"kept")
    listener = probe.listener(topic, 1 | _IF_NEW)
    equal(listener.take().payload, b"kept", "to a new subscription")
    granted(listener.subscribe(topic, 1 | _IF_NEW, packet_id=2))
    listener.expect_silence()


@check("retain handling 2 sends no retained message", v5="MQTT-3.3.1-11")
def retain_handling_never(probe: Probe) -> None:
    topic, publisher = probe.new_topic(), probe.open()
    probe.retain(publisher, topic, b"kept")
    probe.listener(topic, 1 | _NEVER).expect_silence()


@check("user properties pass in order", v5="MQTT-3.3.2-18")
def user_properties_pass(probe: Probe) -> None:
    topic = probe.new_topic()
    pairs = (("b", "1"), ("a", "2"), ("b", "3"), ("", ""))
    listener = probe.listener(topic)
    probe.open().publish(topic, b"x", 1, user_properties=pairs)
    equal(listener.take().user_properties, pairs, "user properties")


@check("a message's properties pass unaltered", v5="MQTT-3.3.2-20")
def message_properties_pass(probe: Probe) -> None:
    topic = probe.new_topic()
    listener = probe.listener(topic)
    probe.open().publish(
        topic,
        b"x",
        1,
        properties=(
            (PropertyId.PAYLOAD_FORMAT_INDICATOR, True),
            (PropertyId.CONTENT_TYPE, "text/plain"),
            (PropertyId.RESPONSE_TOPIC, topic + "/answer"),
            (PropertyId.CORRELATION_DATA, b"\x00\xff"),
        ),
    )
    message = listener.take()
    equal(message.payload_is_utf8, True, "payload format, [MQTT-3.3.2-4]")
    equal(message.content_type, "text/plain", "content type, [MQTT-3.3.2-20]")
    equal(message.response_topic, topic + "/answer", "response topic, [MQTT-3.3.2-15]")
    equal(message.correlation_data, b"\x00\xff", "correlation data, [MQTT-3.3.2-16]")


@check("subscription ids come with messages", v5="MQTT-3.3.4-3")
def subscription_ids_come(probe: Probe) -> None:
    peer, topic = probe.open(), probe.new_topic()
    if value_of(peer, PropertyId.SUBSCRIPTION_ID_AVAILABLE, 1) == 0:
        raise NotOffered("the broker offers no subscription ids, and says so")
    granted(peer.subscribe(f"{topic}/+", 0, subscription_id=7))
    peer.publish(f"{topic}/a", b"x", 0)
    equal(peer.take().subscription_ids, (7,), "subscription ids")


@check("a topic alias stands for its topic", v5="MQTT-3.3.2-12")
def topic_alias_stands(probe: Probe) -> None:
    topic = probe.new_topic()
    listener, publisher = probe.listener(topic), probe.open()
    if not value_of(publisher, PropertyId.TOPIC_ALIAS_MAXIMUM, 0):
        raise NotOffered("the broker takes no topic aliases, and says so")
    alias = ((PropertyId.TOPIC_ALIAS, 1),)
    publisher.publish(topic, b"named", 1, properties=alias)
    publisher.publish("", b"aliased", 1, properties=alias)
    equal([listener.take().payload for _ in range(2)], [b"named", b"aliased"], "messages")


@check("Receive Maximum bounds what is unacknowledged", v5="MQTT-3.3.4-9")
def receive_maximum_bounds(probe: Probe) -> None:
    topic = probe.new_topic()
    listener = probe.open(properties=((PropertyId.RECEIVE_MAXIMUM, 2),))
    granted(listener.subscribe(topic, 1))
    publisher = probe.open()
    for number in range(5):
        publisher.publish(topic, b"%d" % number, 1, packet_id=number + 1)
    first = [listener.take(acknowledge=False) for _ in range(2)]
    listener.expect_silence()
    for message in first:
        listener.acknowledge(message)
    equal([listener.take().payload for _ in range(3)], [b"2", b"3", b"4"], "the rest")


@check("no packet is larger than the client takes", v5="MQTT-3.1.2-24")
def maximum_packet_size_holds(probe: Probe) -> None:
    topic = probe.new_topic()
    listener = probe.open(properties=((PropertyId.MAXIMUM_PACKET_SIZE, 200),))
    granted(listener.subscribe(topic, 1))
    publisher = probe.open()
    publisher.publish(topic, b"x" * 500, 1)
    publisher.publish(topic, b"small", 1)
    equal(listener.take().payload, b"small", "first message")


@check("a share group gets every message once", v5="MQTT-4.8.2-4")
def share_group_shares(probe: Probe) -> None:
    topic = probe.new_topic()
    publisher = probe.open()
    if value_of(publisher, PropertyId.SHARED_SUBSCRIPTION_AVAILABLE, 1) == 0:
        raise NotOffered("the broker offers no shared subscriptions, and says so")
    members = [probe.listener(f"$share/qmqt/{topic}") for _ in range(2)]
    alone = probe.listener(topic)
    for number in range(10):
        publisher.publish(topic, b"%d" % number, 1, packet_id=number + 1)
    for _ in range(10):
        alone.take()
    came: list[bytes] = []
    for member in members:
        member.send(b"\xc0\x00")
        while isinstance(message := member.receive(), Message):
            came.append(message.payload)
    equal(sorted(came), [b"%d" % number for number in range(10)], "messages in the group")


@check("unsubscribing from nothing says so", v5="MQTT-3.11.3-1")
def unsubscribe_says_so(probe: Probe) -> None:
    peer, topic = probe.open(), probe.new_topic()
    granted(peer.subscribe(topic))
    equal(list(peer.unsubscribe(topic)), [0], "code for a subscription")
    equal(list(peer.unsubscribe(topic, packet_id=3)), [0x11], "code without one")


@check("a will can be delayed, and a return in time cancels it", v5="MQTT-3.1.3-9")
def delayed_will_is_cancelled(probe: Probe) -> None:
    client_id, topic = probe.new_id(), probe.new_topic()
    listener = probe.listener(topic)
    peer = probe.peer()
    # Encoded by hand: the delay stands among the properties of the will.
    body = (
        b"\x00\x04MQTT\x05\x04\x00\x3c"
        + b"\x05\x11\x00\x00\x00\x3c"
        + len(client_id).to_bytes(2, "big")
        + client_id.encode()
        + b"\x05\x18\x00\x00\x00\x02"
        + len(topic).to_bytes(2, "big")
        + topic.encode()
        + b"\x00\x04gone"
    )
    peer.send(bytes([0x10, len(body)]) + body)
    answer = peer.receive()
    if getattr(answer, "reason_code", 1):
        raise NotOffered(f"{words(answer)} answers a will with a delay")
    peer.close()
    probe.open(client_id, clean=False, keeps=True)
    came = listener.receive(2.5)
    if came is not None:
        violated(f"{words(came)} came although the client was back before the delay was over")
