"""Fitting decoded values to the columns they are wanted as.

The wanted type is Spark's, as JSON (`DataType.jsonValue()`), so that nothing here needs Spark. A
value that does not fit becomes None, as `from_json` does it; a number is never cut, wrapped or
guessed from a text.
"""

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

_WIDTHS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}


def coerce(value: object, wanted: object) -> object:
    """Fit a value to a type; structs come out as tuples in the order of their fields."""
    if value is None:
        return None
    if isinstance(wanted, Mapping):
        return _NESTED[str(wanted["type"])](value, wanted)
    kind = str(wanted)
    if kind in _WIDTHS:
        return _whole(value, _WIDTHS[kind])
    return _SIMPLE.get(kind, _nothing)(value)


def _whole(value: object, bits: int) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or not -(1 << bits - 1) <= value < 1 << bits - 1:
        return None
    return value


def _float(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _bytes(value: object) -> bytes | None:
    return value if isinstance(value, bytes) else None


def _truth(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _time(value: object) -> datetime | None:
    return value if isinstance(value, datetime) and value.tzinfo is not None else None


def _nothing(value: object) -> None:
    del value


def _struct(value: object, wanted: Mapping[str, object]) -> object:
    if not isinstance(value, Mapping):
        return None
    fields = wanted["fields"]
    assert isinstance(fields, list), "a struct lists its fields"
    return tuple(coerce(value.get(field["name"]), field["type"]) for field in fields)


def _array(value: object, wanted: Mapping[str, object]) -> object:
    if not isinstance(value, list):
        return None
    return [coerce(item, wanted["elementType"]) for item in value]


def _map(value: object, wanted: Mapping[str, object]) -> object:
    if not isinstance(value, Mapping) or wanted["keyType"] != "string":
        return None
    return {str(key): coerce(item, wanted["valueType"]) for key, item in value.items()}


_SIMPLE: Final[dict[str, Callable[[object], object]]] = {
    "float": _float,
    "double": _float,
    "string": _text,
    "binary": _bytes,
    "boolean": _truth,
    "timestamp": _time,
}
_NESTED: Final[dict[str, Callable[[object, Mapping[str, object]], object]]] = {
    "struct": _struct,
    "array": _array,
    "map": _map,
}
