"""CBOR (RFC 8949), as devices send it: one data item, definite or indefinite lengths.

Tags say how to read what they stand before. Times (0, 1) and big numbers (2, 3) are read as such;
other tags are left out and their content is kept, since a column has no place for them.
"""

import math
import struct
from datetime import UTC, datetime, timedelta
from typing import Final

from quantumqtt.spark.payloads.bad import DEPTH_MAX, BadPayload, Bytes

_BREAK: Final = 0xFF
_INDEFINITE: Final = 31
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# 2**64 has 8 bytes; a number of kilobytes is no measurement.
_BIG_BYTES_MAX: Final = 64
_SIMPLE: Final = {20: False, 21: True, 22: None, 23: None}
_FLOATS: Final = {25: ">e", 26: ">f", 27: ">d"}


def decode_cbor(payload: bytes) -> object:
    """Read one item; keys of maps become texts, since they name columns.

    Raises:
        BadPayload: The bytes are no CBOR, or something follows the item.
    """
    data = Bytes(payload)
    value = _item(data, DEPTH_MAX)
    if data.left:
        raise BadPayload(f"{data.left} bytes follow the item")
    return value


def _item(data: Bytes, depth: int) -> object:
    if depth == 0:
        raise BadPayload(f"nested deeper than {DEPTH_MAX}")
    head = data.byte()
    major, short = head >> 5, head & 0x1F
    if major == 7:
        return _simple(data, short)
    if short == _INDEFINITE:
        return _indefinite(data, major, depth)
    number = _argument(data, short)
    if major == 0:
        return number
    if major == 1:
        return -1 - number
    if major == 2:
        return data.take(number)
    if major == 3:
        return data.text(number)
    if major == 6:
        return _tagged(number, _item(data, depth - 1))
    # Each element takes a byte at least: more elements than bytes need not be begun.
    if number > data.left:
        raise BadPayload(f"{number} elements announced, {data.left} bytes are left")
    if major == 4:
        return [_item(data, depth - 1) for _ in range(number)]
    return dict(_pair(data, depth) for _ in range(number))


def _argument(data: Bytes, short: int) -> int:
    if short < 24:
        return short
    if short > 27:
        raise BadPayload(f"a length of no known kind before {data.at}")
    return int.from_bytes(data.take(1 << (short - 24)), "big")


def _simple(data: Bytes, short: int) -> object:
    if short in _SIMPLE:
        return _SIMPLE[short]
    if short in _FLOATS:
        value: float = struct.unpack(_FLOATS[short], data.take(1 << (short - 24)))[0]
        return value
    raise BadPayload(f"a simple value of no known kind before {data.at}")


def _indefinite(data: Bytes, major: int, depth: int) -> object:
    if major in (2, 3):
        pieces: list[bytes] = []
        while not _ended(data):
            head = data.byte()
            if head >> 5 != major or head & 0x1F == _INDEFINITE:
                raise BadPayload(f"a piece of another kind before {data.at}")
            pieces.append(data.take(_argument(data, head & 0x1F)))
        joined = b"".join(pieces)
        return joined if major == 2 else Bytes(joined).text(len(joined))
    if major == 4:
        items: list[object] = []
        while not _ended(data):
            items.append(_item(data, depth - 1))
        return items
    if major == 5:
        pairs: dict[str, object] = {}
        while not _ended(data):
            key, value = _pair(data, depth)
            pairs[key] = value
        return pairs
    raise BadPayload(f"a number without length before {data.at}")


def _ended(data: Bytes) -> bool:
    if data.peek() != _BREAK:
        return False
    data.byte()
    return True


def _pair(data: Bytes, depth: int) -> tuple[str, object]:
    key = _item(data, depth - 1)
    if isinstance(key, str | int) and not isinstance(key, bool):
        return str(key), _item(data, depth - 1)
    raise BadPayload(f"a key that is neither text nor number before {data.at}")


def _tagged(tag: int, value: object) -> object:
    if tag == 0 and isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError as error:
            raise BadPayload(f"no time: {value[:40]!r}") from error
    if tag == 1 and isinstance(value, int | float) and math.isfinite(value):
        try:
            return _EPOCH + timedelta(seconds=value)
        except OverflowError as error:
            raise BadPayload(f"no time: {value}") from error
    if tag in (2, 3) and isinstance(value, bytes):
        if len(value) > _BIG_BYTES_MAX:
            raise BadPayload(f"a number of {len(value)} bytes")
        number = int.from_bytes(value, "big")
        return number if tag == 2 else -1 - number
    return value
