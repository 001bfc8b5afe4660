"""Payload decoders, against bytes from the formats' own specifications and against noise."""

import json
import pickle
import struct
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantumqtt.errors import ConfigError
from quantumqtt.spark.payloads import (
    AvroDecoder,
    BadPayload,
    ProtobufDecoder,
    decode_cbor,
    decode_sparkplug,
    read_descriptors,
)
from quantumqtt.spark.payloads.coerce import coerce


@pytest.mark.parametrize(
    ("spelled", "value"),
    [  # examples of RFC 8949, appendix A
        ("00", 0),
        ("1864", 100),
        ("1bffffffffffffffff", 18446744073709551615),
        ("c249010000000000000000", 18446744073709551616),
        ("3903e7", -1000),
        ("c349010000000000000000", -18446744073709551617),
        ("f93c00", 1.0),
        ("fa47c35000", 100000.0),
        ("fb3ff199999999999a", 1.1),
        ("f4", False),
        ("f5", True),
        ("f6", None),
        ("4401020304", b"\x01\x02\x03\x04"),
        ("6449455446", "IETF"),
        ("83010203", [1, 2, 3]),
        ("a26161016162820203", {"a": 1, "b": [2, 3]}),
        ("5f42010243030405ff", b"\x01\x02\x03\x04\x05"),
        ("7f657374726561646d696e67ff", "streaming"),
        ("9f018202039f0405ffff", [1, [2, 3], [4, 5]]),
        ("bf6346756ef563416d7421ff", {"Fun": True, "Amt": -2}),
        ("c11a514b67b0", datetime(2013, 3, 21, 20, 4, tzinfo=UTC)),
        ("d74401020304", b"\x01\x02\x03\x04"),
    ],
)
def test_cbor_examples(spelled: str, value: object) -> None:
    assert decode_cbor(bytes.fromhex(spelled)) == value


@pytest.mark.parametrize(
    "spelled",
    ["", "18", "44010203", "9f01", "ff", "0000", "1c", "9b00ffffffffffffff", "a1f500", "81" * 200],
)
def test_cbor_that_is_none_is_refused(spelled: str) -> None:
    with pytest.raises(BadPayload):
        decode_cbor(bytes.fromhex(spelled))


SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Reading",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": "string"},
            {"name": "value", "type": ["null", "double"]},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
            {"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 2}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "more", "type": {"type": "map", "values": "int"}},
            {"name": "next", "type": ["null", "Reading"]},
        ],
    }
)


def avro_reading(*, last: bytes = b"\x00") -> bytes:
    return (
        b"\x80\x01"  # 64
        + b"\x06foo"
        + b"\x02"
        + struct.pack("<d", 1.5)
        + b"\x02"
        + b"\xaa\xbb"
        + b"\x03\x06\x02x\x02y\x00"  # two items as a block with its size
        + b"\x02\x02k\x05\x00"
        + last
    )


def test_avro_record_with_every_kind() -> None:
    decode = pickle.loads(pickle.dumps(AvroDecoder(SCHEMA)))
    inner = {
        "id": 64,
        "name": "foo",
        "value": 1.5,
        "kind": "B",
        "raw": b"\xaa\xbb",
        "tags": ["x", "y"],
        "more": {"k": -3},
        "next": None,
    }
    assert decode(avro_reading()) == inner
    nested = avro_reading(last=b"\x02" + avro_reading())
    assert decode(b"\xc3\x01" + bytes(8) + nested) == {**inner, "next": inner}


@pytest.mark.parametrize("schema", ["", "{}", '{"type": "recor"}', '{"type": "record"}', "7"])
def test_avro_schema_that_is_none_is_a_wrong_argument(schema: str) -> None:
    with pytest.raises(ConfigError):
        AvroDecoder(schema)


def field(number: int, wire: int, content: bytes) -> bytes:
    head = bytes([number << 3 | wire])
    return head + (bytes([len(content)]) + content if wire == 2 else content)


def declared(name: str, number: int, kind: int, *, label: int = 1, of: str = "") -> bytes:
    parts = field(1, 2, name.encode()) + field(3, 0, bytes([number])) + field(4, 0, bytes([label]))
    parts += field(5, 0, bytes([kind])) + (field(6, 2, of.encode()) if of else b"")
    return field(2, 2, parts)


def descriptors() -> bytes:
    enum = field(1, 2, b"Kind")
    enum += field(2, 2, field(1, 2, b"COLD") + field(2, 0, b"\x00"))
    enum += field(2, 2, field(1, 2, b"HOT") + field(2, 0, b"\x01"))
    entry = field(1, 2, b"MoreEntry") + declared("key", 1, 9) + declared("value", 2, 17)
    entry += field(7, 2, field(7, 0, b"\x01"))
    message = field(1, 2, b"Reading")
    message += declared("id", 1, 3) + declared("value", 2, 1) + declared("name", 3, 9)
    message += declared("kind", 4, 14, of=".demo.Kind") + declared("marks", 5, 5, label=3)
    message += declared("next", 6, 11, of=".demo.Reading")
    message += declared("more", 7, 11, label=3, of=".demo.Reading.MoreEntry")
    message += field(3, 2, entry)
    file = field(2, 2, b"demo")
    for number, content in ((4, message), (5, enum)):
        size = len(content)
        length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
        file += bytes([number << 3 | 2]) + length + content
    file += field(12, 2, b"proto3")
    return b"\x0a" + bytes([len(file) & 127 | 128, len(file) >> 7]) + file


def test_protobuf_by_a_descriptor_set() -> None:
    decode = pickle.loads(
        pickle.dumps(ProtobufDecoder(read_descriptors(descriptors()), "demo.Reading"))
    )
    payload = field(1, 0, b"\xff" * 9 + b"\x01") + field(2, 1, struct.pack("<d", 2.5))
    payload += field(3, 2, "ä".encode()) + field(4, 0, b"\x01") + field(5, 2, b"\x01\x02")
    payload += field(5, 0, b"\x03") + field(6, 2, field(1, 0, b"\x07"))
    payload += field(7, 2, field(1, 2, b"k") + field(2, 0, b"\x05")) + field(9, 0, b"\x01")
    read = decode(payload)
    assert (read["id"], read["value"], read["name"], read["kind"]) == (-1, 2.5, "ä", "HOT")
    assert read["marks"] == [1, 2, 3]
    assert read["more"] == {"k": -3}
    assert read["next"]["id"] == 7
    assert read["next"]["kind"] == "COLD"
    assert decode(b"")["next"] is None


def test_protobuf_names_what_it_has() -> None:
    with pytest.raises(ConfigError) as caught:
        ProtobufDecoder(read_descriptors(descriptors()), "demo.Readin")
    assert caught.value.hint == "they have demo.Reading"
    with pytest.raises(ConfigError, match="no descriptor set"):
        read_descriptors(b"\xff")


def test_sparkplug_signs_what_is_signed() -> None:
    metric = field(1, 2, b"level") + field(4, 0, b"\x03") + field(10, 0, b"\xfe\xff\xff\xff\x0f")
    read = decode_sparkplug(field(1, 0, b"\x05") + field(2, 2, metric) + field(3, 0, b"\x01"))
    metrics = read["metrics"]
    assert isinstance(metrics, list)
    (only,) = metrics
    assert (read["timestamp"], read["seq"], read["uuid"]) == (5, 1, None)
    assert (only["name"], only["value_long"], only["value_double"]) == ("level", -2, -2.0)


@given(st.binary(max_size=200))
def test_noise_is_read_or_refused_and_nothing_else(noise: bytes) -> None:
    decoders = (
        decode_cbor,
        decode_sparkplug,
        AvroDecoder(SCHEMA),
        ProtobufDecoder(read_descriptors(descriptors()), "demo.Reading"),
    )
    for decode in decoders:
        try:
            decode(noise)
        except BadPayload:
            continue


@pytest.mark.parametrize(
    ("value", "wanted", "fitted"),
    [
        (7, "long", 7),
        (7.0, "integer", 7),
        (7.5, "integer", None),
        (2**31, "integer", None),
        (-(2**63), "long", -(2**63)),
        (True, "long", None),
        (7, "double", 7.0),
        ("7", "double", None),
        (10**400, "double", float("inf")),
        ("a", "string", "a"),
        (b"a", "string", None),
        (b"a", "binary", b"a"),
        (1, "boolean", None),
        (datetime(2026, 1, 1, tzinfo=UTC), "timestamp", datetime(2026, 1, 1, tzinfo=UTC)),
        ([1, "x"], {"type": "array", "elementType": "long"}, [1, None]),
        ({"a": 1}, {"type": "map", "keyType": "string", "valueType": "long"}, {"a": 1}),
        (
            {"b": 1, "c": 2},
            {"type": "struct", "fields": [{"name": n, "type": "long"} for n in "ab"]},
            (None, 1),
        ),
        ("x", {"type": "struct", "fields": []}, None),
        (7, "void", None),
    ],
)
def test_values_fit_their_columns_or_are_null(
    value: object, wanted: object, fitted: object
) -> None:
    assert coerce(value, wanted) == fitted
