"""JSON as Mosquitto's clients print it: bytes that need not be UTF-8, and numbers as C has them.

An object is a list of pairs here, because a name may repeat (user properties do) and their order
is part of what is printed. Numbers are printed as the shortest of 15 or 17 digits that read back.
"""

from collections.abc import Sequence
from typing import Final, NoReturn

Json = None | bool | int | float | str | bytes | Sequence["Json"] | Sequence[tuple[str, "Json"]]
_ESCAPED: Final = {
    **{code: b"\\u%04x" % code for code in range(32)},
    ord('"'): b'\\"',
    ord("\\"): b"\\\\",
    8: b"\\b",
    9: b"\\t",
    10: b"\\n",
    12: b"\\f",
    13: b"\\r",
}
_DEPTH_MAX: Final = 500


class NotJson(ValueError):
    """The payload cannot be read as one value of JSON."""


class _Object(list[tuple[str, Json]]):
    """An object that was parsed, told from an array by its type."""


def parse_json(payload: bytes) -> Json:
    """Read one value; names that repeat stay.

    Raises:
        NotJson: It is not JSON, or nested deeper than anyone means.
    """
    import json

    try:
        value: Json = json.loads(
            payload, object_pairs_hook=_Object, parse_constant=_refuse_constant, parse_int=float
        )
        json_text(value)  # what cannot be printed, such as half of a surrogate pair, is refused now
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from error
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(f"{name} is no number of JSON")


def json_text(value: Json, *, pretty: bool = False) -> bytes:
    """Print a value, on one line or over several with tabs."""
    parts: list[bytes] = []
    _print(value, parts, 0 if pretty else None)
    return b"".join(parts)


def _print(value: Json, parts: list[bytes], depth: int | None) -> None:
    if (depth or 0) > _DEPTH_MAX:
        raise RecursionError("nested too deeply")
    if value is None or isinstance(value, bool):
        parts.append({None: b"null", True: b"true", False: b"false"}[value])
    elif isinstance(value, int | float):
        parts.append(_number(value))
    elif isinstance(value, str | bytes):
        parts.append(_string(value.encode() if isinstance(value, str) else value))
    elif isinstance(value, _Object) or (value and isinstance(value[0], tuple)):
        _print_object(value, parts, depth)  # type: ignore[arg-type]
    else:
        _print_array(value, parts, depth)


def _print_object(pairs: Sequence[tuple[str, Json]], parts: list[bytes], depth: int | None) -> None:
    parts.append(b"{" if depth is None else b"{\n")
    for at, (name, item) in enumerate(pairs):
        if depth is not None:
            parts.append(b"\t" * (depth + 1))
        parts += [_string(name.encode()), b":" if depth is None else b":\t"]
        _print(item, parts, None if depth is None else depth + 1)
        if at + 1 < len(pairs):
            parts.append(b",")
        if depth is not None:
            parts.append(b"\n")
    parts.append(b"}" if depth is None else b"\t" * depth + b"}")


def _print_array(items: Sequence[Json], parts: list[bytes], depth: int | None) -> None:
    parts.append(b"[")
    for at, item in enumerate(items):
        if at:
            parts.append(b"," if depth is None else b", ")
        _print(item, parts, None if depth is None else depth + 1)
    parts.append(b"]")


def _string(text: bytes) -> bytes:
    return b'"' + b"".join(_ESCAPED.get(code) or bytes((code,)) for code in text) + b'"'


def _number(value: float) -> bytes:
    if isinstance(value, int) or (value.is_integer() and abs(value) < 2**31):
        return b"%d" % int(value)
    short = f"{value:.15g}"
    return (short if float(short) == value else f"{value:.17g}").encode()
