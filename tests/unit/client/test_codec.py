"""The codec lent to Python, against the golden vectors and against the tests' own codec."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantumqtt import _core
from quantumqtt._core import AckRun, Control, Message
from quantumqtt.errors import LocalProtocolError, RemoteProtocolError
from quantumqtt.mqtt import PropertyId, publish_properties
from tests.harness import packets
from tests.harness.packets import Kind, Version

GOLDEN = Path(__file__).parents[2] / "golden" / "wire"
LEVELS = {"3.1": 3, "3.1.1": 4, "5": 5}
LIMIT = 1 << 28
FROM_SERVER = {2, 3, 4, 5, 6, 7, 9, 11, 13, 14, 15}


@dataclass(frozen=True, slots=True)
class Vector:
    name: str
    levels: tuple[int, ...]
    data: bytes
    expected: str
    is_error: bool
    is_canonical: bool


def vectors() -> list[Vector]:
    found = []
    for file in sorted(GOLDEN.glob("*.txt")):
        for section in re.split(r"^\[", file.read_text(), flags=re.MULTILINE)[1:]:
            name, _, rest = section.partition("]\n")
            lines = [line.split(": ", 1) for line in rest.splitlines() if ": " in line]
            lines = [line for line in lines if not line[0].startswith("#")]
            fields = dict(lines)
            data = b"".join(parse_bytes(value) for key, value in lines if key == "bytes")
            levels = tuple(LEVELS[level] for level in fields["versions"].split())
            found.append(
                Vector(
                    f"{file.stem}: {name}",
                    levels,
                    data,
                    fields.get("packet") or fields["error"],
                    "error" in fields,
                    "decode_only" not in fields,
                )
            )
    return found


def parse_bytes(text: str) -> bytes:
    parts = text.split('"')
    return b"".join(
        part.encode() if at % 2 else bytes.fromhex(part) for at, part in enumerate(parts)
    )


VECTORS = vectors()
BY_SERVERS = [one for one in VECTORS if one.data and one.data[0] >> 4 in FROM_SERVER]


@pytest.mark.parametrize("vector", BY_SERVERS, ids=lambda vector: vector.name)
def test_golden_vectors_are_read_whole_and_in_pieces(vector: Vector) -> None:
    for level in vector.levels:
        items, taken, wanted = _core.decode_packets(level, vector.data, LIMIT)
        if vector.is_error:
            assert isinstance(items[-1], RemoteProtocolError) or taken < len(vector.data)
            continue
        assert (taken, wanted, len(items)) == (len(vector.data), 0, 1), vector.name
        for cut in range(len(vector.data)):
            early, taken_early, wanted = _core.decode_packets(level, vector.data[:cut], LIMIT)
            assert (early, taken_early) == ([], 0)
            assert wanted in (0, len(vector.data))


@pytest.mark.parametrize(
    "vector",
    [one for one in BY_SERVERS if not one.is_error and one.is_canonical and one.data[0] >> 4 == 3],
    ids=lambda vector: vector.name,
)
def test_golden_publishes_are_written_as_they_were_read(vector: Vector) -> None:
    for level in vector.levels:
        item = _core.decode_packets(level, vector.data, LIMIT)[0][0]
        message = item[0] if isinstance(item, list) else item
        assert isinstance(message, Message)
        flags = message.dup << 3 | message.qos << 1 | message.retain
        parts = (message.topic, message.payload, flags, message.packet_id or 0, message.properties)
        assert _core.encode_batch(level, [parts]) == vector.data


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=12)


@st.composite
def publishes(draw: st.DrawFn) -> tuple[str, bytes, int, int, bytes]:
    qos = draw(st.integers(0, 2))
    properties = publish_properties(
        content_type=draw(st.none() | TEXT),
        correlation_data=draw(st.none() | st.binary(max_size=8)),
        message_expiry_s=draw(st.none() | st.integers(0, 2**32 - 1)),
        user_properties=draw(st.lists(st.tuples(TEXT, TEXT), max_size=2)),
    )
    flags = qos << 1 | draw(st.booleans())
    packet_id = draw(st.integers(1, 65_535)) if qos else 0
    return draw(TEXT), draw(st.binary(max_size=20)), flags, packet_id, properties


def flatten(items: list[object]) -> list[object]:
    return [one for item in items for one in (item if isinstance(item, list) else [item])]


@given(st.lists(publishes(), max_size=6))
def test_batches_come_back_as_they_were_written(
    batch: list[tuple[str, bytes, int, int, bytes]],
) -> None:
    data = _core.encode_batch(5, list(batch))
    items, taken, _ = _core.decode_packets(5, data, LIMIT, 7)
    assert taken == len(data)
    read = flatten(list(items))
    assert len(read) == len(batch)
    for message, (topic, payload, flags, packet_id, properties) in zip(read, batch, strict=True):
        assert isinstance(message, Message)
        assert (message.topic, message.payload) == (topic, payload)
        assert (message.qos, message.retain) == (flags >> 1, bool(flags & 1))
        assert (message.packet_id or 0, message.properties) == (packet_id, properties)
        assert message.session == 7


@given(st.binary(max_size=60), st.sampled_from([3, 4, 5]))
def test_any_bytes_are_packets_or_a_typed_error_and_never_more(data: bytes, level: int) -> None:
    items, taken, wanted = _core.decode_packets(level, data, 100)
    assert taken <= len(data)
    assert wanted <= 100
    assert not any(isinstance(item, RemoteProtocolError) for item in items[:-1])


def test_runs_hold_what_follows_each_other_and_is_alike() -> None:
    data = b"".join(
        [
            packets.publish("a", b"1"),
            packets.publish("a", b"2"),
            packets.publish("b", b"3"),
            packets.publish("b", b"4", qos=1, packet_id=9),
            packets.publish("b", b"5"),
            packets.ack(Kind.PUBACK, 1),
            packets.ack(Kind.PUBACK, 2),
            packets.ack(Kind.PUBREC, 3),
        ]
    )
    items = _core.decode_packets(4, data, LIMIT)[0]
    assert [len(item) if isinstance(item, list) else type(item) for item in items] == [
        2, 1, Message, 1, AckRun, AckRun,
    ]  # fmt: skip
    first = items[4]
    assert isinstance(first, AckRun)
    assert (first.kind, first.reason_code, first.packet_ids) == (4, 0, [1, 2])


def test_what_is_wrong_ends_the_batch_and_keeps_what_came_before() -> None:
    items, _, _ = _core.decode_packets(4, packets.publish("a", b"1") + b"\x36\x00", LIMIT)
    assert isinstance(items[0], list)
    error = items[1]
    assert isinstance(error, RemoteProtocolError)
    assert error.reason_code == 0x81
    assert error.hint


def test_a_packet_above_the_limit_is_refused_by_its_header() -> None:
    items, taken, _ = _core.decode_packets(4, b"\x30\xff\x7f", 1000)
    error = items[0]
    assert isinstance(error, RemoteProtocolError)
    assert (error.reason_code, taken) == (0x95, 0)


@pytest.mark.parametrize("data", [b"\x10\x00", b"\x82\x05\x00\x01\x00\x01a\x00", b"\xc0\x00"])
def test_what_only_clients_send_is_refused(data: bytes) -> None:
    assert isinstance(_core.decode_packets(4, data, LIMIT)[0][0], RemoteProtocolError)


def test_a_connack_tells_everything() -> None:
    properties = ((packets.Key.RECEIVE_MAXIMUM, 5), (packets.Key.USER_PROPERTY, ("a", "b")))
    body = b"\x01\x00" + packets.property_block(properties)
    item = _core.decode_packets(5, bytes([0x20, len(body)]) + body, LIMIT)[0][0]
    assert isinstance(item, Control)
    assert item.session_present
    assert item.properties == [(PropertyId.RECEIVE_MAXIMUM, 5), (38, ("a", "b"))]


def test_properties_of_a_message_are_read_on_demand() -> None:
    message = Message(
        "t",
        properties=publish_properties(
            content_type="text/plain",
            response_topic="back",
            correlation_data=b"7",
            message_expiry_s=9,
            payload_is_utf8=True,
            user_properties=[("a", "1"), ("a", "2")],
        ),
    )
    assert (message.content_type, message.response_topic) == ("text/plain", "back")
    assert (message.correlation_data, message.message_expiry_s) == (b"7", 9)
    assert message.payload_is_utf8
    assert message.user_properties == (("a", "1"), ("a", "2"))
    assert message.subscription_ids == ()
    assert message.topic_alias is None
    assert "payload" not in repr(Message("t", b"secret payload")).replace("payload=<", "")


@pytest.mark.parametrize(
    "write",
    [
        lambda: _core.encode_batch(4, [("a/+", b"", 0, 0, b"")]),
        lambda: _core.encode_batch(4, [("a", b"", 2, 0, b"")]),
        lambda: _core.encode_batch(5, [("a", b"", 0, 0, b"\x21\x00\x05")]),
        lambda: _core.encode_batch(4, [4 << 16]),
        lambda: _core.encode_subscribe(4, 1, []),
        lambda: _core.encode_unsubscribe(4, 0, ["a"]),
        lambda: _core.encode_disconnect(4, 0x81),
        lambda: _core.encode_auth(0x18, b""),
        lambda: _core.encode_properties([(0x7F, 1)]),
        lambda: _core.encode_properties([(PropertyId.RECEIVE_MAXIMUM, 0)]),
        lambda: _core.encode_connect(4, "x" * 70_000, clean_start=True, keep_alive_s=0),
        lambda: Message("t", properties=b"\x21\x00\x05"),
    ],
)
def test_what_breaks_mqtt_is_not_written(write: object) -> None:
    with pytest.raises(LocalProtocolError) as error:
        write()  # type: ignore[operator]
    assert error.value.hint


def test_connect_is_written_as_the_tests_own_codec_writes_it() -> None:
    will = packets.Will("gone/x", b"bye", 1, True)
    for version in Version:
        written = _core.encode_connect(
            int(version),
            "id",
            clean_start=True,
            keep_alive_s=60,
            user_name="me",
            password=b"pw",
            will=(will.topic, will.payload, will.qos, will.retain, b""),
        )
        expected = packets.connect("id", version=version, will=will, user_name="me", password=b"pw")
        assert written == expected
