r"""How `sub` and `rr` print a message: payload, topic and payload, JSON, or a format of one's own.

A format of `-F` is text with three kinds of sequences: `%` for what the message holds, `@` for the
time as strftime knows it, `\` for characters that are hard to type. It is checked before anything
is sent. Everything here is bytes, since payloads are.
"""

import os
import time
from collections.abc import Callable
from typing import Final

from quantumqtt._core import Message
from quantumqtt.cli.mosquitto.json_text import Json, NotJson, json_text, parse_json
from quantumqtt.cli.mosquitto.options import Options
from quantumqtt.cli.mosquitto.usage import refuse

_PERCENT, _AT, _BACKSLASH = b"%@\\"
_ESCAPES: Final = {
    ord("\\"): b"\\",
    ord("0"): b"\0",
    ord("a"): b"\a",
    ord("e"): b"\033",
    ord("n"): b"\n",
    ord("r"): b"\r",
    ord("t"): b"\t",
    ord("v"): b"\v",
}
_SPECIFIERS: Final = b"%ACDEFIlmPpqRSrtjJUxX"
_DIGITS: Final = b"0123456789"
_NANOSECOND: Final = 1_000_000_000
# Properties of a PUBLISH in the words of JSON, by number.
_NAMES: Final = {
    0x01: "payload-format-indicator",
    0x02: "message-expiry-interval",
    0x03: "content-type",
    0x08: "response-topic",
    0x09: "correlation-data",
    0x0B: "subscription-identifier",
    0x23: "topic-alias",
}
_USER_PROPERTY: Final = 0x26

Complain = Callable[[str], None]


def check_format(pattern: bytes) -> None:
    """Refuse a format that could not be printed.

    Raises:
        UsageError: A sequence is unknown or has no end.
    """
    at, end = 0, len(pattern)
    while at < end:
        start = pattern[at]
        at += 1
        if start not in (_PERCENT, _AT, _BACKSLASH):
            continue
        if start == _PERCENT:
            at = _Specifier(pattern, at).end - 1
        if at >= end:
            refuse("-F ends in the middle of a sequence", r"write %% @@ or \\ for the character")
        if start == _PERCENT and pattern[at] not in _SPECIFIERS:
            refuse(f"-F: unknown specifier %{chr(pattern[at])}", "write %% for a per cent sign")
        if start == _BACKSLASH and pattern[at] not in _ESCAPES:
            refuse(f"-F: unknown escape \\{chr(pattern[at])}", r"write \\ for a backslash")
        at += 1


class _Specifier:
    """What stands between `%` and its letter: `-`, `0`, width, `.` and greatest length."""

    __slots__ = ("end", "length_max", "letter", "pads_right", "width", "zero")

    def __init__(self, pattern: bytes, at: int) -> None:
        self.pads_right = pattern[at : at + 1] == b"-"
        at += self.pads_right
        self.zero = pattern[at : at + 1] == b"0"
        at += self.zero
        self.width, at = _digits(pattern, at)
        self.length_max: int | None = None
        if pattern[at : at + 1] == b".":
            self.length_max, at = _digits(pattern, at + 1)
        self.letter = chr(pattern[at]) if at < len(pattern) else ""
        self.end = at + 1

    def number(self, value: int | None) -> bytes:
        """Print a number; zeros go between nothing and it, blanks stand for an absent one."""
        fill = b"0" if self.zero else b" "
        if value is None:
            return fill * self.width
        text = b"%d" % value
        if self.pads_right:
            return text.ljust(self.width)
        return text.rjust(self.width, fill)

    def text(self, value: bytes | None) -> bytes:
        """Print text, cut and filled to its width in bytes."""
        value = (value or b"")[: self.length_max]
        return value.ljust(self.width) if self.pads_right else value.rjust(self.width)

    def payload(self, value: bytes, *, style: str = "") -> bytes:
        """Print a payload, as it is or in hexadecimal.

        A width is also the greatest length, and in hexadecimal half of the bytes are shown when
        there is one. That is how Mosquitto does it, and scripts have got used to it.
        """
        if self.width:
            value = value[: self.width]
            if style:
                value = value[: len(value) // 2]
        if style:
            value = (value.hex() if style == "x" else value.hex().upper()).encode()
        if self.pads_right:
            return value.ljust(self.width)
        return value.rjust(self.width, b"0" if self.zero else b" ")


def _digits(pattern: bytes, at: int) -> tuple[int, int]:
    begin = at
    while at < len(pattern) and pattern[at] in _DIGITS:
        at += 1
    return int(pattern[begin:at] or b"0"), at


class Printer:
    """Turns messages into what one run prints."""

    def __init__(self, options: Options, complain: Complain, *, paints: bool) -> None:
        self._pattern = None if options.format is None else os.fsencode(options.format)
        self._end = b"\n" if options.end_of_line else b""
        self._is_pretty = options.pretty
        self._complain = complain
        self._paints = paints
        if options.json:
            self.text = self._as_object
        elif self._pattern is not None:
            self.text = self._formatted
        elif options.verbose:
            self.text = self._verbose
        else:
            self.text = self._plain

    def _plain(self, message: Message) -> bytes:
        payload = message.payload
        return payload + self._end if payload else b""

    def _verbose(self, message: Message) -> bytes:
        topic = message.topic.encode()
        if self._paints:
            topic = b"\x1b[36m" + topic + b"\x1b[0m"
        payload = message.payload
        if payload:
            return topic + b" " + payload + self._end
        return topic + b" (null)\n" if self._end else b""

    def _as_object(self, message: Message) -> bytes:
        """`--json`: the payload as text when it is text, and in base64 when it is not."""
        pairs: list[tuple[str, Json]] = [
            ("time", _time_text()),
            ("topic", message.topic),
            ("qos", message.qos),
            ("retain", message.retain),
        ]
        if message.packet_id is not None:
            pairs.append(("packet_id", message.packet_id))
        if message.properties:
            pairs.append(("properties", _properties_json(message)))
        try:
            pairs.append(("payload", message.payload.decode()))
        except UnicodeDecodeError:
            import base64

            pairs.append(("payload_base64", base64.b64encode(message.payload).decode()))
        return json_text(pairs) + b"\n"

    def _formatted(self, message: Message) -> bytes:
        pattern = self._pattern
        assert pattern is not None, "chosen with a format"
        parts: list[bytes] = []
        at, end, now = 0, len(pattern), time.time_ns()
        while at < end:
            start = pattern[at]
            at += 1
            if start == _PERCENT:
                specifier = _Specifier(pattern, at)
                at = specifier.end
                parts.append(self._specified(specifier, message, now))
            elif start == _AT:
                parts.append(_time_part(chr(pattern[at]), now))
                at += 1
            elif start == _BACKSLASH:
                parts.append(_ESCAPES[pattern[at]])
                at += 1
            else:
                parts.append(pattern[at - 1 : at])
        return b"".join(parts) + self._end

    def _specified(self, to: _Specifier, message: Message, now: int) -> bytes:
        match to.letter:
            case "p":
                return to.payload(message.payload)
            case "x" | "X":
                return to.payload(message.payload, style=to.letter)
            case "t":
                return to.text(message.topic.encode())
            case "q":
                return b"%d" % message.qos
            case "r":
                return b"1" if message.retain else b"0"
            case "l":
                return to.number(len(message.payload))
            case "m":
                return to.number(message.packet_id or 0)
            case "%":
                return b"%"
            case "j" | "J":
                return self._json(message, now, quoted=to.letter == "j")
            case "I":
                return to.text(_strftime("%Y-%m-%dT%H:%M:%S%z", now))
            case "U":
                return _strftime("%s", now) + b".%09d" % (now % _NANOSECOND)
            case _:
                return _property_part(to, message)

    def _json(self, message: Message, now: int, *, quoted: bool) -> bytes:
        payload: Json = None
        if message.payload and quoted:
            # A string of C ends at its first NUL; bytes that are no text stay as they are.
            payload = message.payload.split(b"\0", 1)[0]
        elif message.payload:
            try:
                payload = parse_json(message.payload)
            except NotJson:
                self._complain(f"the payload on {message.topic} is not valid JSON")
                return b""
        pairs: list[tuple[str, Json]] = [
            ("tst", _json_time(now)),
            ("topic", message.topic),
            ("qos", message.qos),
            ("retain", int(message.retain)),
            ("payloadlen", len(message.payload)),
        ]
        if message.packet_id is not None:
            pairs.append(("mid", message.packet_id))
        if message.properties:
            pairs.append(("properties", _properties_json(message)))
        pairs.append(("payload", payload))
        return json_text(pairs, pretty=self._is_pretty)


def _property_part(to: _Specifier, message: Message) -> bytes:
    match to.letter:
        case "A":
            return to.number(message.topic_alias)
        case "C":
            return to.text((message.content_type or "").encode())
        case "D":
            return message.correlation_data or b""
        case "E":
            return to.number(message.message_expiry_s)
        case "F":
            # Absent and 0 mean the same, and are printed differently.
            value = dict(_properties_json(message)).get("payload-format-indicator")
            return to.number(value if isinstance(value, int) else None)
        case "P":
            pairs = (f"{name}:{value}" for name, value in message.user_properties)
            return " ".join(pairs).encode()
        case "R":
            topic = message.response_topic
            return b"" if topic is None else to.text(topic.encode())
        case "S":
            ids = message.subscription_ids
            return to.number(ids[0] if ids else None)
        case _:
            raise AssertionError(f"%{to.letter} was checked before")


def _strftime(pattern: str, now: int) -> bytes:
    return time.strftime(pattern, time.localtime(now // _NANOSECOND)).encode(
        "utf-8", "surrogateescape"
    )


def _time_part(letter: str, now: int) -> bytes:
    if letter == "@":
        return b"@"
    if letter == "N":
        return b"%09d" % (now % _NANOSECOND)
    return _strftime(f"%{letter}", now)


def _json_time(now: int) -> str:
    whole = _strftime("%Y-%m-%dT%H:%M:%S", now).decode()
    zone = _strftime("%z", now).decode()
    return f"{whole}.{now % _NANOSECOND // 1000:06d}Z{zone}"


def _time_text() -> str:
    """Now, in the local time zone, as ISO 8601 writes it."""
    now = time.time_ns()
    zone = _strftime("%z", now).decode()
    whole = _strftime("%Y-%m-%dT%H:%M:%S", now).decode()
    return f"{whole}.{now % _NANOSECOND // 1000:06d}{zone[:3]}:{zone[3:]}"


def _properties_json(message: Message) -> list[tuple[str, Json]]:
    """The properties in the order they came; user properties where the first of them stood."""
    found: list[tuple[str, Json]] = []
    user: list[tuple[str, Json]] | None = None
    block, at = message.properties, 0
    while at < len(block):
        number = block[at]
        at += 1
        if number == _USER_PROPERTY:
            name, at = _counted(block, at)
            value, at = _counted(block, at)
            if user is None:
                user = []
                found.append(("user-properties", user))
            user.append((name.decode(), value))
            continue
        value_of: Json
        if number == 0x01:
            value_of, at = block[at], at + 1
        elif number == 0x02:
            value_of, at = int.from_bytes(block[at : at + 4], "big"), at + 4
        elif number == 0x23:
            value_of, at = int.from_bytes(block[at : at + 2], "big"), at + 2
        elif number == 0x0B:
            value_of, at = _varint(block, at)
        else:
            value_of, at = _counted(block, at)
        found.append((_NAMES[number], value_of))
    return found


def _counted(block: bytes, at: int) -> tuple[bytes, int]:
    length = int.from_bytes(block[at : at + 2], "big")
    return block[at + 2 : at + 2 + length], at + 2 + length


def _varint(block: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = block[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
