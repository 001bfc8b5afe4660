"""Protocol Buffers, read by a descriptor set (`protoc --descriptor_set_out --include_imports`).

A descriptor set is itself a message of a known shape, so one small reader of the wire format reads
both. Messages become dictionaries with every declared field: absent ones have their default, or
None where the field tells absence (messages, `optional`, proto2). Fields that are not declared are
passed over, as the format wants it.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from quantumqtt.errors import ConfigError
from quantumqtt.spark.payloads.bad import DEPTH_MAX, BadPayload, Bytes, signed, zigzag

# google.protobuf.FieldDescriptorProto.Type
_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING = range(1, 10)
_GROUP, _MESSAGE, _BYTES, _UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(10, 19)

_REPEATED: Final = 3
_VARINT, _WIDE, _COUNTED, _GROUP_START, _GROUP_END, _NARROW = range(6)


@dataclass(frozen=True, slots=True)
class Field:
    """One declared field; `of` names its message or enum."""

    name: str
    kind: int
    repeated: bool = False
    tells_absence: bool = False
    of: str = ""


@dataclass(frozen=True, slots=True)
class Types:
    """Messages by full name, each with its fields by number; enums with their words by number."""

    messages: Mapping[str, Mapping[int, Field]]
    enums: Mapping[str, Mapping[int, str]]
    entries: frozenset[str] = frozenset()


class ProtobufDecoder:
    """Reads payloads of one message type. Picklable."""

    def __init__(self, types: Types, message: str) -> None:
        """Choose the message.

        Raises:
            ConfigError: The descriptors do not have it.
        """
        if message not in types.messages:
            known = sorted(set(types.messages) - types.entries)
            raise ConfigError(
                f"the descriptors have no message {message}",
                hint=f"they have {', '.join(known[:20]) or 'none'}",
            )
        self._types = types
        self._message = message

    def __call__(self, payload: bytes) -> dict[str, object]:
        """Read one payload.

        Raises:
            BadPayload: The bytes are not of this message.
        """
        return _read(self._types, self._message, payload, DEPTH_MAX)


def wire_fields(payload: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Walk the fields of a message: number, wire type, value."""
    data = Bytes(payload)
    while data.left:
        key = data.varint()
        number, wire = key >> 3, key & 7
        if not 0 < number < 1 << 29:
            raise BadPayload(f"field {number} before {data.at}")
        if wire == _VARINT:
            yield number, wire, data.varint()
        elif wire == _WIDE:
            yield number, wire, data.take(8)
        elif wire == _NARROW:
            yield number, wire, data.take(4)
        elif wire == _COUNTED:
            yield number, wire, data.take(data.varint())
        else:
            # Groups left the language in 2008; nothing we read by a descriptor can need one.
            raise BadPayload(f"wire type {wire} before {data.at}")


def _read(types: Types, message: str, payload: bytes, depth: int) -> dict[str, object]:
    if depth == 0:
        raise BadPayload(f"nested deeper than {DEPTH_MAX}")
    fields = types.messages[message]
    values = {field.name: _default(types, field) for field in fields.values()}
    for number, wire, raw in wire_fields(payload):
        field = fields.get(number)
        if field is None:
            continue
        if field.repeated:
            packed = wire == _COUNTED and field.kind not in (_STRING, _BYTES, _MESSAGE)
            pieces = _unpack(field, raw) if packed else [(wire, raw)]
            items = values[field.name]
            read = [_value(types, field, w, one, depth) for w, one in pieces]
            if isinstance(items, dict):
                entries = [entry for entry in read if isinstance(entry, dict)]
                items.update((str(entry["key"]), entry["value"]) for entry in entries)
            elif isinstance(items, list):
                items += read
        else:
            values[field.name] = _value(types, field, wire, raw, depth)
    return values


def _unpack(field: Field, raw: int | bytes) -> Iterator[tuple[int, int | bytes]]:
    assert isinstance(raw, bytes), "packed fields have a length"
    data = Bytes(raw)
    wire = _WIRES[field.kind]
    while data.left:
        if wire == _VARINT:
            yield wire, data.varint()
        else:
            yield wire, data.take(8 if wire == _WIDE else 4)


def _value(types: Types, field: Field, wire: int, raw: int | bytes, depth: int) -> object:
    if wire != _WIRES.get(field.kind):
        raise BadPayload(f"field {field.name} has wire type {wire}")
    if isinstance(raw, int):
        return _number(types, field, raw)
    if field.kind == _MESSAGE:
        return _read(types, field.of, raw, depth - 1)
    if field.kind == _STRING:
        return Bytes(raw).text(len(raw))
    if field.kind == _BYTES:
        return raw
    value: int | float = struct.unpack(_LAYOUTS[field.kind], raw)[0]
    return value


def _number(types: Types, field: Field, raw: int) -> object:
    if field.kind == _BOOL:
        return raw != 0
    if field.kind == _ENUM:
        number = signed(raw, 32)
        return types.enums.get(field.of, {}).get(number, str(number))
    if field.kind in (_SINT32, _SINT64):
        return zigzag(raw)
    if field.kind == _INT32:
        return signed(raw, 32)
    if field.kind == _INT64:
        return signed(raw, 64)
    return raw & 0xFFFF_FFFF if field.kind == _UINT32 else raw


def _default(types: Types, field: Field) -> object:
    if field.repeated:
        return {} if field.of in types.entries else []
    if field.tells_absence or field.kind == _MESSAGE:
        return None
    if field.kind == _ENUM:
        return types.enums.get(field.of, {}).get(0, "0")
    if field.kind in (_DOUBLE, _FLOAT):
        return 0.0
    return {_STRING: "", _BYTES: b"", _BOOL: False}.get(field.kind, 0)


_WIRES: Final = {
    **dict.fromkeys((_INT64, _UINT64, _INT32, _BOOL, _UINT32, _ENUM, _SINT32, _SINT64), _VARINT),
    **dict.fromkeys((_DOUBLE, _FIXED64, _SFIXED64), _WIDE),
    **dict.fromkeys((_FLOAT, _FIXED32, _SFIXED32), _NARROW),
    **dict.fromkeys((_STRING, _BYTES, _MESSAGE), _COUNTED),
}
_LAYOUTS: Final = {
    _DOUBLE: "<d",
    _FLOAT: "<f",
    _FIXED64: "<Q",
    _FIXED32: "<I",
    _SFIXED32: "<i",
    _SFIXED64: "<q",
}

# The shape of a descriptor set, as far as it is needed here (google/protobuf/descriptor.proto).
_P: Final = "google.protobuf."
_DESCRIPTOR: Final = Types(
    {
        _P + "FileDescriptorSet": {1: Field("file", _MESSAGE, True, False, _P + "File")},
        _P + "File": {
            2: Field("package", _STRING),
            4: Field("message_type", _MESSAGE, True, False, _P + "Message"),
            5: Field("enum_type", _MESSAGE, True, False, _P + "Enum"),
            12: Field("syntax", _STRING),
        },
        _P + "Message": {
            1: Field("name", _STRING),
            2: Field("field", _MESSAGE, True, False, _P + "Field"),
            3: Field("nested_type", _MESSAGE, True, False, _P + "Message"),
            4: Field("enum_type", _MESSAGE, True, False, _P + "Enum"),
            7: Field("options", _MESSAGE, False, True, _P + "MessageOptions"),
        },
        _P + "MessageOptions": {7: Field("map_entry", _BOOL)},
        _P + "Field": {
            1: Field("name", _STRING),
            3: Field("number", _INT32),
            4: Field("label", _INT32),
            5: Field("type", _INT32),
            6: Field("type_name", _STRING),
            9: Field("oneof_index", _INT32, False, True),
        },
        _P + "Enum": {
            1: Field("name", _STRING),
            2: Field("value", _MESSAGE, True, False, _P + "EnumValue"),
        },
        _P + "EnumValue": {1: Field("name", _STRING), 2: Field("number", _INT32)},
    },
    {},
)


def read_descriptors(descriptor_set: bytes) -> Types:
    """Read what `protoc --include_imports --descriptor_set_out=FILE` writes.

    Raises:
        ConfigError: The bytes are no descriptor set, or use groups.
    """
    messages: dict[str, dict[int, Field]] = {}
    enums: dict[str, dict[int, str]] = {}
    entries: set[str] = set()
    try:
        files = ProtobufDecoder(_DESCRIPTOR, _P + "FileDescriptorSet")(descriptor_set)["file"]
        for file in _list(files):
            proto2 = file["syntax"] in ("", "proto2")
            _collect(file, str(file["package"]), "message_type", proto2, (messages, enums, entries))
    except BadPayload as error:
        raise ConfigError(
            f"no descriptor set: {error}",
            hint="make one by `protoc --include_imports --descriptor_set_out=FILE x.proto`",
        ) from error
    return Types(messages, enums, frozenset(entries))


def _collect(
    scope: Mapping[str, object],
    prefix: str,
    nested: str,
    proto2: bool,
    into: tuple[dict[str, dict[int, Field]], dict[str, dict[int, str]], set[str]],
) -> None:
    messages, enums, entries = into
    for enum in _list(scope["enum_type"]):
        words = {int(str(value["number"])): str(value["name"]) for value in _list(enum["value"])}
        enums[_join(prefix, enum)] = words
    for message in _list(scope[nested]):
        name = _join(prefix, message)
        messages[name] = {
            int(str(field["number"])): _field(field, proto2=proto2)
            for field in _list(message["field"])
        }
        options = message["options"]
        if isinstance(options, dict) and options["map_entry"]:
            entries.add(name)
        _collect(message, name, "nested_type", proto2, into)


def _field(field: Mapping[str, object], *, proto2: bool) -> Field:
    return Field(
        name=str(field["name"]),
        kind=int(str(field["type"])),
        repeated=field["label"] == _REPEATED,
        tells_absence=proto2 or field["oneof_index"] is not None,
        of=str(field["type_name"]).removeprefix("."),
    )


def _join(prefix: str, named: Mapping[str, object]) -> str:
    return f"{prefix}.{named['name']}" if prefix else str(named["name"])


def _list(value: object) -> list[dict[str, object]]:
    assert isinstance(value, list), "repeated fields are lists"
    return value
