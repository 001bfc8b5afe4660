"""Hypothesis strategies for what MQTT is made of: names, filters, messages, packets.

What they draw is legal unless a name says otherwise, and shrinks towards short names of few levels.
They need Hypothesis (`pip install quantumqtt[testing]`).
"""

from collections.abc import Sequence
from typing import Final, Literal

from hypothesis import strategies as st

from quantumqtt import _core
from quantumqtt.client import Message
from quantumqtt.mqtt import publish_properties

__all__ = [
    "client_packets",
    "damaged",
    "filters_matching",
    "messages",
    "payloads",
    "publish_property_blocks",
    "topic_filters",
    "topic_names",
    "user_properties",
]

Version = Literal["3.1", "3.1.1", "5"]
_LEVELS: Final = {"3.1": 3, "3.1.1": 4, "5": 5}
_LEVEL_COUNT_MAX: Final = 6
_LEVEL_CHARACTERS_MAX: Final = 8
_SHORT: Final = 12
# Acknowledgements a client may send: PUBACK, PUBREC, PUBREL, PUBCOMP.
_ACKS: Final = (4, 5, 6, 7)
_PINGREQ: Final = b"\xc0\x00"

# MQTT text: no NUL and no surrogates; U+FFFE and others that are no characters are allowed, and
# discouraged, so they are left out.
_TEXT_CHARACTERS: Final = st.characters(
    codec="utf-8", exclude_categories=("Cs", "Cc", "Cn"), exclude_characters="\0"
)
_NAME_CHARACTERS: Final = st.one_of(
    st.sampled_from("abcxyz019-_ "),
    st.characters(
        codec="utf-8", exclude_categories=("Cs", "Cc", "Cn"), exclude_characters="\0/+#$"
    ),
)
_LEVEL: Final = st.text(_NAME_CHARACTERS, max_size=_LEVEL_CHARACTERS_MAX)


def topic_names(*, levels_max: int = _LEVEL_COUNT_MAX) -> st.SearchStrategy[str]:
    """Names as a PUBLISH may carry them; empty levels included, `$` at the start left out."""
    return st.lists(_LEVEL, min_size=1, max_size=levels_max).map("/".join).filter(bool)


def topic_filters(
    *, levels_max: int = _LEVEL_COUNT_MAX, shared: bool = False
) -> st.SearchStrategy[str]:
    """Filters as a SUBSCRIBE may carry them; with `shared`, some of them of a share group."""
    level = st.one_of(_LEVEL, st.just("+"))
    plain = st.tuples(
        st.lists(level, min_size=1, max_size=levels_max), st.sampled_from(("", "#"))
    ).map(lambda parts: "/".join([*parts[0], *filter(None, [parts[1]])]))
    plain = st.one_of(plain, st.just("#")).filter(bool)
    if not shared:
        return plain
    group = st.text("abc019", min_size=1, max_size=_LEVEL_CHARACTERS_MAX)
    return st.one_of(plain, st.builds("$share/{}/{}".format, group, plain))


def filters_matching(topic: str) -> st.SearchStrategy[str]:
    """Filters that match this name: levels replaced by `+`, the rest of it by `#`."""
    levels = topic.split("/")

    def build(wild: Sequence[bool], kept: int, *, ends_in_hash: bool) -> str:
        chosen = ["+" if is_wild else level for level, is_wild in zip(levels, wild, strict=True)]
        return "/".join([*chosen[:kept], "#"] if ends_in_hash else chosen)

    def may_match(text: str) -> bool:
        # A wildcard in the first place does not see names that begin with `$` [MQTT-4.7.2-1].
        return bool(text) and not (topic.startswith("$") and text[0] in "+#")

    return st.builds(
        build,
        st.lists(st.booleans(), min_size=len(levels), max_size=len(levels)),
        st.integers(0, len(levels)),
        ends_in_hash=st.booleans(),
    ).filter(may_match)


def payloads(*, bytes_max: int = 200) -> st.SearchStrategy[bytes]:
    """Any bytes, text among them."""
    text = st.text(_TEXT_CHARACTERS, max_size=bytes_max // 4).map(str.encode)
    return st.one_of(st.binary(max_size=bytes_max), text)


def user_properties() -> st.SearchStrategy[list[tuple[str, str]]]:
    """Pairs of text; names may repeat, as MQTT allows."""
    text = st.text(_TEXT_CHARACTERS, max_size=_SHORT)
    return st.lists(st.tuples(text, text), max_size=3)


def publish_property_blocks() -> st.SearchStrategy[bytes]:
    """Properties of a PUBLISH of MQTT 5 as bytes, without their length."""
    return st.builds(
        publish_properties,
        content_type=st.none() | st.text(_TEXT_CHARACTERS, max_size=_SHORT),
        response_topic=st.none() | topic_names(levels_max=2),
        correlation_data=st.none() | st.binary(max_size=_SHORT),
        message_expiry_s=st.none() | st.integers(0, 0xFFFF_FFFF),
        payload_is_utf8=st.none() | st.just(False),
        user_properties=user_properties(),
    )


def messages(*, version: Version = "5") -> st.SearchStrategy[Message]:
    """Messages as a handler gets them, to call it without a broker."""

    def build(
        topic: str, payload: bytes, qos: int, *, retain: bool, packet_id: int, properties: bytes
    ) -> Message:
        return Message(
            topic,
            payload,
            qos=qos,
            retain=retain,
            packet_id=packet_id if qos else None,
            properties=properties,
        )

    return st.builds(
        build,
        topic_names(),
        payloads(),
        st.integers(0, 2),
        retain=st.booleans(),
        packet_id=_packet_ids(),
        properties=publish_property_blocks() if version == "5" else st.just(b""),
    )


def client_packets(version: Version = "5") -> st.SearchStrategy[bytes]:
    """Packets that a client may send after CONNECT was accepted, one at a time, as bytes."""
    level = _LEVELS[version]
    is_v5 = version == "5"
    properties = publish_property_blocks() if is_v5 else st.just(b"")
    options = st.integers(0, 2)
    if is_v5:
        options = st.builds(
            lambda qos, retain, handling: qos | retain << 3 | handling << 4,
            options, st.integers(0, 1), st.integers(0, 2),
        )  # fmt: skip

    def publish(
        topic: str, payload: bytes, qos: int, *, retain: bool, packet_id: int, properties: bytes
    ) -> bytes:
        item = (topic, payload, qos << 1 | retain, packet_id if qos else 0, properties)
        return _core.encode_batch(level, [item])

    filters = topic_filters(shared=is_v5)
    return st.one_of(
        st.just(_PINGREQ),
        st.builds(
            publish, topic_names(), payloads(), st.integers(0, 2),
            retain=st.booleans(), packet_id=_packet_ids(), properties=properties,
        ),
        st.builds(
            lambda packet_id, wanted: _core.encode_subscribe(level, packet_id, wanted),
            _packet_ids(), st.lists(st.tuples(filters, options), min_size=1, max_size=3),
        ),
        st.builds(
            lambda packet_id, wanted: _core.encode_unsubscribe(level, packet_id, wanted),
            _packet_ids(), st.lists(filters, min_size=1, max_size=3),
        ),
        st.builds(
            lambda kind, packet_id: _core.encode_batch(level, [kind << 16 | packet_id]),
            st.sampled_from(_ACKS), _packet_ids(),
        ),
    )  # fmt: skip


def damaged(packets: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """The same packets with one bit turned, cut short, or with bytes nobody asked for."""

    def turn(packet: bytes, place: int) -> bytes:
        at, bit = (place // 8) % len(packet), place % 8
        return packet[:at] + bytes((packet[at] ^ 1 << bit,)) + packet[at + 1 :]

    return st.one_of(
        st.builds(turn, packets, st.integers(0, 4096)),
        st.builds(lambda packet, kept: packet[: kept % len(packet)], packets, st.integers(0, 4096)),
        st.builds(lambda packet, more: packet + more, packets, st.binary(min_size=1, max_size=16)),
    )


def _packet_ids() -> st.SearchStrategy[int]:
    return st.integers(1, 65_535)
