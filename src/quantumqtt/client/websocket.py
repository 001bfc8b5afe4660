"""The client's side of WebSocket (RFC 6455) without a socket: just what MQTT needs of it.

Theory of operation. MQTT over WebSocket is a stream of bytes in binary frames; where frames begin
and end means nothing `[MQTT-6.0.0-2]`. So payload is handed on as it comes: no frame is ever put
together in memory, and a frame may announce any length without reserving anything. Only control
frames are collected, and those are at most 125 bytes.

`receive` takes bytes and returns what they mean; answers to pings and to a close are left in
`take_output`. Deliberately absent: extensions (none is offered), text, and timing.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping
from typing import Final

from quantumqtt.errors import ConnectFailed, ConnectionLost, RemoteProtocolError

PROTOCOL: Final = "mqtt"
ANSWER_BYTES_MAX: Final = 16 * 1024
FRAME_BYTES_MAX: Final = 64 * 1024
_MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION: Final = 0x0
_BINARY: Final = 0x2
_CLOSE: Final = 0x8
_PING: Final = 0x9
_PONG: Final = 0xA
_FINAL: Final = 0x80
_MASKED: Final = 0x80
_CONTROL_BYTES_MAX: Final = 125
_LENGTH_2: Final = 126
_LENGTH_8: Final = 127
_NORMAL_CLOSURE: Final = (1000).to_bytes(2, "big")
_HTTP_SWITCHING: Final = "101"


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse headers that would break out of their line.

    Raises:
        ValueError: One would; names it.
    """
    for name, value in headers.items():
        if not name or any(character in "\r\n\0: " for character in name):
            raise ValueError(f"websocket header {name!r}: not the name of a header")
        if any(character in "\r\n\0" for character in value):
            raise ValueError(f"websocket header {name!r}: its value is one line of text")


class WebSocket:
    """One connection: a request, its answer, then frames both ways."""

    def __init__(
        self,
        host: str,
        path: str,
        headers: Mapping[str, str],
        *,
        nonce: bytes,
        new_mask: Callable[[], bytes],
    ) -> None:
        """Plan a request; `nonce` is 16 random bytes, `new_mask` makes 4 for every frame."""
        check_headers(headers)
        self.is_open: bool = False
        self._host = host
        self._path = path
        self._headers = headers
        self._key = base64.b64encode(nonce)
        self._new_mask = new_mask
        self._rest = bytearray()
        self._payload_left = 0
        self._is_in_message = False
        self._output = bytearray()

    def request(self) -> bytes:
        """The HTTP request that asks for the upgrade."""
        lines = [
            f"GET {self._path} HTTP/1.1",
            f"Host: {self._host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {self._key.decode()}",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Protocol: {PROTOCOL}",
            *(f"{name}: {value}" for name, value in self._headers.items()),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def frame(self, data: bytes) -> bytes:
        """Put bytes into binary frames, masked as a client must."""
        if len(data) <= FRAME_BYTES_MAX:
            return self._frame(_BINARY, data)
        view = memoryview(data)
        return b"".join(
            self._frame(_BINARY, bytes(view[at : at + FRAME_BYTES_MAX]))
            for at in range(0, len(data), FRAME_BYTES_MAX)
        )

    def close(self) -> bytes:
        """A close frame: we leave as planned."""
        return self._frame(_CLOSE, _NORMAL_CLOSURE)

    def take_output(self) -> bytes:
        """Hand out answers to the server's control frames."""
        output = bytes(self._output)
        self._output.clear()
        return output

    def receive(self, data: bytes) -> bytes:
        """Take bytes of the server; returns the payload in them.

        Raises:
            ConnectFailed: It refuses the upgrade.
            ConnectionLost: It closes the connection.
            RemoteProtocolError: What it sends is not WebSocket, or not for MQTT.
        """
        if not self.is_open:
            self._rest += data
            if not self._read_answer():
                return b""
            data = b""
        elif not self._rest and self._payload_left >= len(data):
            self._payload_left -= len(data)
            return data
        self._rest += data
        payload = bytearray()
        while self._read_frame(payload):
            pass
        return bytes(payload)

    # --- the answer to the request ------------------------------------------------------------

    def _read_answer(self) -> bool:
        end = self._rest.find(b"\r\n\r\n")
        if end < 0:
            if len(self._rest) > ANSWER_BYTES_MAX:
                raise _broken(f"its answer has no end within {ANSWER_BYTES_MAX} bytes")
            return False
        head = self._rest[:end].decode("latin-1").split("\r\n")
        del self._rest[: end + 4]
        status = head[0].split(" ", 2)
        if len(status) < 2 or not status[0].startswith("HTTP/1.1"):
            raise _broken(f"it answers {head[0][:60]!r}")
        if status[1] != _HTTP_SWITCHING:
            refused = ConnectFailed(
                f"the server refuses WebSocket: {' '.join(status[1:])[:80]}",
                "check the path of the URL, and headers or credentials the server wants",
            )
            # Its own trouble passes; a wrong path or a missing right does not.
            refused.retryable = status[1].startswith("5")
            raise refused
        fields = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:])
        }
        digest = hashlib.sha1(self._key + _MAGIC, usedforsecurity=False).digest()
        if fields.get("sec-websocket-accept") != base64.b64encode(digest).decode():
            raise _broken("its answer does not belong to our request")
        if fields.get("upgrade", "").lower() != "websocket":
            raise _broken("it upgrades to something else")
        if fields.get("sec-websocket-protocol", PROTOCOL) != PROTOCOL:
            raise _broken(f"it speaks {fields['sec-websocket-protocol']!r} instead of MQTT")
        if "sec-websocket-extensions" in fields:
            raise _broken("it uses an extension nobody offered")
        self.is_open = True
        return True

    # --- frames -------------------------------------------------------------------------------

    def _frame(self, kind: int, data: bytes) -> bytes:
        mask, length = self._new_mask(), len(data)
        if length < _LENGTH_2:
            head = bytes((_FINAL | kind, _MASKED | length))
        elif length <= 0xFFFF:
            head = bytes((_FINAL | kind, _MASKED | _LENGTH_2)) + length.to_bytes(2, "big")
        else:
            head = bytes((_FINAL | kind, _MASKED | _LENGTH_8)) + length.to_bytes(8, "big")
        # One exclusive or of two long numbers is the quickest way Python has.
        pad = (mask * (length // 4 + 1))[:length]
        masked = int.from_bytes(data, "big") ^ int.from_bytes(pad, "big")
        return head + mask + masked.to_bytes(length, "big")

    def _read_frame(self, payload: bytearray) -> bool:
        """Read a frame, or the rest of one; False when bytes are missing."""
        rest = self._rest
        if self._payload_left:
            taken = rest[: self._payload_left]
            self._payload_left -= len(taken)
            payload += taken
            del rest[: len(taken)]
            return not self._payload_left
        if len(rest) < 2:
            return False
        first, length, head = rest[0], rest[1], 2
        if length & _MASKED:
            raise _broken("it masks its frames")
        if length == _LENGTH_2:
            head = 4
        elif length == _LENGTH_8:
            head = 10
        if len(rest) < head:
            return False
        if head > 2:
            length = int.from_bytes(rest[2:head], "big")
        kind = first & 0x0F
        if first & 0x70:
            raise _broken("reserved bits are set")
        if kind >= _CLOSE:
            return self._read_control(kind, head, length, is_final=bool(first & _FINAL))
        self._check_data_frame(kind, is_final=bool(first & _FINAL))
        del rest[:head]
        self._payload_left = length
        return True

    def _check_data_frame(self, kind: int, *, is_final: bool) -> None:
        if kind not in (_BINARY, _CONTINUATION):
            raise _broken("MQTT travels in binary frames, this one is not")
        if (kind == _CONTINUATION) != self._is_in_message:
            raise _broken("its fragments do not follow each other")
        self._is_in_message = not is_final

    def _read_control(self, kind: int, head: int, length: int, *, is_final: bool) -> bool:
        if length > _CONTROL_BYTES_MAX or not is_final:
            raise _broken("a control frame is too long or in fragments")
        if len(self._rest) < head + length:
            return False
        data = bytes(self._rest[head : head + length])
        del self._rest[: head + length]
        if kind == _PING:
            self._output += self._frame(_PONG, data)
        elif kind == _CLOSE:
            self._output += self._frame(_CLOSE, data[:2])
            code = int.from_bytes(data[:2], "big") if len(data) > 1 else 0
            words = data[2:].decode(errors="replace")
            raise ConnectionLost(
                f"the server closes the WebSocket, code {code}" + (f": {words}" if words else "")
            )
        elif kind != _PONG:
            raise _broken(f"frame type {kind} does not exist")
        return True


def _broken(what: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"the server breaks WebSocket: {what}", "is there an MQTT broker behind this URL?"
    )
