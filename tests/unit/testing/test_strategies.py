"""What the strategies draw is what they say: judged by the codec of the tests and the router."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantumqtt import _core
from quantumqtt.client import Message
from quantumqtt.client.routes import Routes, matches
from quantumqtt.mqtt import TopicFilter, TopicName
from quantumqtt.testing import strategies as mqtt
from tests.harness.packets import Kind

# Sent to a decoder of what servers say: kinds that both sides send.
BOTH_WAYS = {Kind.PUBLISH, Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP}
LIMIT = 1 << 20


@given(mqtt.topic_names())
def test_names_are_names(topic: str) -> None:
    assert str(TopicName(topic)) == topic
    assert not topic.startswith("$")


@given(mqtt.topic_filters(shared=True))
def test_filters_are_filters(text: str) -> None:
    parsed = TopicFilter(text)
    assert (parsed.share_group is not None) == text.startswith("$share/")


@given(st.data(), mqtt.topic_names())
def test_filters_that_match_do_match(data: st.DataObject, topic: str) -> None:
    text = data.draw(mqtt.filters_matching(topic))
    TopicFilter(text)
    assert matches(text, topic)


@given(st.lists(mqtt.topic_filters(), max_size=8), st.lists(mqtt.topic_names(), max_size=8))
def test_routes_find_exactly_the_filters_that_match(filters: list[str], topics: list[str]) -> None:
    """Remembered answers are right, too, after the table has changed."""
    routes: Routes[str] = Routes()
    for place, text in enumerate(filters):
        routes.add(text, f"{place}:{text}")
        for topic in topics:
            expected = {
                f"{at}:{one}" for at, one in enumerate(filters[: place + 1]) if matches(one, topic)
            }
            assert set(routes.for_topic(topic)) == expected


@given(mqtt.messages())
def test_messages_can_be_given_to_a_handler(message: Message) -> None:
    assert (message.packet_id is None) == (message.qos == 0)
    assert all(len(pair) == 2 for pair in message.user_properties)


@pytest.mark.parametrize("version", ["3.1", "3.1.1", "5"])
@given(st.data())
def test_packets_are_whole_and_legal(version: mqtt.Version, data: st.DataObject) -> None:
    packet = data.draw(mqtt.client_packets(version))
    if packet[0] >> 4 not in BOTH_WAYS:
        return
    level = {"3.1": 3, "3.1.1": 4, "5": 5}[version]
    items, taken, _ = _core.decode_packets(level, packet, LIMIT)
    assert (len(items), taken) == (1, len(packet))
    assert not isinstance(items[0], Exception)


@given(mqtt.damaged(st.just(b"\x30\x04\x00\x01ax")))
def test_damage_is_done(packet: bytes) -> None:
    assert packet != b"\x30\x04\x00\x01ax"
