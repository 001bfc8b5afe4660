"""MQTT's words: numbers as the standard has them, names a person can read."""

import pytest

from quantumqtt.errors import LocalProtocolError
from quantumqtt.mqtt import CONNACK_REASON_CODES, QoS, ReasonCode, TopicFilter, TopicName


def test_qos_has_three_levels() -> None:
    assert [int(level) for level in QoS] == [0, 1, 2]


@pytest.mark.parametrize(
    ("number", "label"),
    [
        (0x00, "success"),
        (0x01, "granted QoS 1"),
        (0x87, "not authorized"),
        (0x8E, "session taken over"),
        (0x9B, "QoS not supported"),
        (0xA2, "wildcard subscriptions not supported"),
    ],
)
def test_reason_codes_have_readable_names(number: int, label: str) -> None:
    assert ReasonCode(number).label == label


def test_names_that_share_a_number_are_the_same_code() -> None:
    assert ReasonCode["NORMAL_DISCONNECTION"] is ReasonCode.SUCCESS
    assert ReasonCode["GRANTED_QOS_0"] is ReasonCode.SUCCESS


def test_errors_begin_at_0x80() -> None:
    assert all(code.is_error == (code >= 0x80) for code in ReasonCode)
    # MQTT 5 defines 43 distinct values.
    assert len(ReasonCode) == 43


def test_a_connack_says_yes_or_gives_an_error() -> None:
    assert {code for code in CONNACK_REASON_CODES if not code.is_error} == {ReasonCode.SUCCESS}
    assert ReasonCode.SESSION_TAKEN_OVER not in CONNACK_REASON_CODES


@pytest.mark.parametrize(
    ("text", "group", "pattern"),
    [
        ("a/+/#", None, "a/+/#"),
        ("$share/workers/a/#", "workers", "a/#"),
        ("$SYS/broker/uptime", None, "$SYS/broker/uptime"),
    ],
)
def test_a_filter_knows_its_share_group(text: str, group: str | None, pattern: str) -> None:
    topic_filter = TopicFilter(text)
    assert str(topic_filter) == text
    assert topic_filter.share_group == group
    assert topic_filter.pattern == pattern


@pytest.mark.parametrize("text", ["", "a/#/b", "a\0b"])
def test_a_filter_that_breaks_mqtt_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError):
        TopicFilter(text)


@pytest.mark.parametrize("text", ["", "a/+", "#"])
def test_a_name_with_wildcards_or_nothing_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError):
        TopicName(text)


def test_a_valid_name_stays_as_it_is() -> None:
    assert str(TopicName("/a//b ")) == "/a//b "
