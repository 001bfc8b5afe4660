"""Avro's binary encoding, read by the writer's schema.

A payload is one datum, as it is or behind the ten bytes of the single-object encoding (C3 01 and
the schema's fingerprint, which is not compared: one schema is all that was given).
"""

import json
import struct
from collections.abc import Callable
from typing import Final, TypeVar

from quantumqtt.errors import ConfigError
from quantumqtt.spark.payloads.bad import DEPTH_MAX, BadPayload, Bytes, zigzag

_Read = Callable[[Bytes, int], object]
_Item = TypeVar("_Item")
_SINGLE: Final = b"\xc3\x01"


class AvroDecoder:
    """Reads payloads of one schema; records become dictionaries. Picklable."""

    def __init__(self, schema: str) -> None:
        """Check the schema.

        Raises:
            ConfigError: It is none.
        """
        self._schema = schema
        try:
            self._read = _compile(json.loads(schema), {})
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ConfigError(
                f"no Avro schema: {error}", hint="pass the writer's schema as JSON"
            ) from error

    def __reduce__(self) -> tuple[type["AvroDecoder"], tuple[str]]:
        """Travel as the schema; what was compiled from it is compiled again."""
        return (AvroDecoder, (self._schema,))

    def __call__(self, payload: bytes) -> object:
        """Read one payload.

        Raises:
            BadPayload: The bytes are not of the schema, or something follows.
        """
        data = Bytes(payload)
        if payload.startswith(_SINGLE) and len(payload) >= 10:
            data.take(10)
        value = self._read(data, DEPTH_MAX)
        if data.left:
            raise BadPayload(f"{data.left} bytes follow the datum")
        return value


def _compile(schema: object, named: dict[str, _Read]) -> _Read:
    if isinstance(schema, list):
        return _union([_compile(branch, named) for branch in schema])
    if isinstance(schema, str):
        return _PRIMITIVES[schema] if schema in _PRIMITIVES else _later(schema, named)
    if not isinstance(schema, dict):
        raise TypeError(f"{schema!r} is no schema")
    kind = schema["type"]
    if kind in ("record", "error"):
        return _record(schema, named)
    if kind == "enum":
        symbols = [str(symbol) for symbol in schema["symbols"]]
        return _name(schema, named, lambda data, _: _chosen(symbols, _long(data, 0)))
    if kind == "fixed":
        size = int(schema["size"])
        return _name(schema, named, lambda data, _: data.take(size))
    if kind == "array":
        item = _compile(schema["items"], named)
        return lambda data, depth: _blocks(data, depth, item)
    if kind == "map":
        value = _compile(schema["values"], named)
        return lambda data, depth: dict(_blocks(data, depth, _entry(value)))
    return _compile(kind, named)


def _record(schema: dict[str, object], named: dict[str, _Read]) -> _Read:
    fields: list[tuple[str, _Read]] = []

    def read(data: Bytes, depth: int) -> object:
        if depth == 0:
            raise BadPayload(f"nested deeper than {DEPTH_MAX}")
        return {name: of(data, depth - 1) for name, of in fields}

    # Named before its fields are read: a record may contain itself.
    _name(schema, named, read)
    declared = schema["fields"]
    if not isinstance(declared, list):
        raise TypeError("fields are a list")
    fields += [(str(field["name"]), _compile(field["type"], named)) for field in declared]
    return read


def _name(schema: dict[str, object], named: dict[str, _Read], read: _Read) -> _Read:
    name = str(schema["name"])
    space = str(schema.get("namespace", ""))
    for known in {name, name.rpartition(".")[2], f"{space}.{name}"}:
        named[known] = read
    return read


def _later(name: str, named: dict[str, _Read]) -> _Read:
    if name not in named:
        raise KeyError(f"unknown type {name}")
    return lambda data, depth: named[name](data, depth)


def _union(branches: list[_Read]) -> _Read:
    return lambda data, depth: _chosen(branches, _long(data, 0))(data, depth)


def _chosen(choices: list[_Item], index: int) -> _Item:
    if not 0 <= index < len(choices):
        raise BadPayload(f"choice {index} of {len(choices)}")
    return choices[index]


def _entry(value: _Read) -> Callable[[Bytes, int], tuple[str, object]]:
    return lambda data, depth: (data.text(_long(data, 0)), value(data, depth))


def _blocks(data: Bytes, depth: int, item: Callable[[Bytes, int], _Item]) -> list[_Item]:
    if depth == 0:
        raise BadPayload(f"nested deeper than {DEPTH_MAX}")
    items: list[_Item] = []
    while (count := _long(data, 0)) != 0:
        if count < 0:
            count = -count
            _long(data, 0)  # the block's size, for those who skip it
        # An element of no bytes (null, an empty record) could be announced for ever.
        if count > data.left:
            raise BadPayload(f"{count} elements announced, {data.left} bytes are left")
        items += [item(data, depth - 1) for _ in range(count)]
    return items


def _long(data: Bytes, depth: int) -> int:
    del depth
    return zigzag(data.varint())


def _boolean(data: Bytes, depth: int) -> object:
    del depth
    value = data.byte()
    if value > 1:
        raise BadPayload(f"{value} is no truth value")
    return value == 1


_PRIMITIVES: Final[dict[str, _Read]] = {
    "null": lambda data, depth: None,
    "boolean": _boolean,
    "int": _long,
    "long": _long,
    "float": lambda data, depth: struct.unpack("<f", data.take(4))[0],
    "double": lambda data, depth: struct.unpack("<d", data.take(8))[0],
    "bytes": lambda data, depth: data.take(_long(data, 0)),
    "string": lambda data, depth: data.text(_long(data, 0)),
}
