"""WebSocket without a socket: what we say, and what we take."""

import base64
import contextlib
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantumqtt.client.websocket import ANSWER_BYTES_MAX, FRAME_BYTES_MAX, WebSocket
from quantumqtt.errors import ConnectFailed, ConnectionLost, RemoteProtocolError

NONCE = bytes(range(16))
KEY = base64.b64encode(NONCE)
ACCEPT = base64.b64encode(
    hashlib.sha1(KEY + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
).decode()
MASK = b"\x01\x02\x03\x04"
UPGRADE = (
    "HTTP/1.1 101 Switching Protocols\r\nupgrade: WebSocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Accept: {ACCEPT}\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
).encode()


def new() -> WebSocket:
    return WebSocket("host:80", "/mqtt", {"X-Token": "t"}, nonce=NONCE, new_mask=lambda: MASK)


def opened() -> WebSocket:
    web_socket = new()
    assert web_socket.receive(UPGRADE) == b""
    assert web_socket.is_open
    return web_socket


def server_frame(data: bytes, kind: int = 2, *, final: bool = True) -> bytes:
    length = len(data)
    head = bytes([0x80 * final | kind])
    if length < 126:
        return head + bytes([length]) + data
    if length < 65_536:
        return head + b"\x7e" + length.to_bytes(2, "big") + data
    return head + b"\x7f" + length.to_bytes(8, "big") + data


def unmask(frame: bytes) -> tuple[int, bytes]:
    length, at = frame[1] & 0x7F, 2
    assert frame[1] & 0x80
    if length == 126:
        length, at = int.from_bytes(frame[2:4], "big"), 4
    elif length == 127:
        length, at = int.from_bytes(frame[2:10], "big"), 10
    mask, data = frame[at : at + 4], frame[at + 4 :]
    assert len(data) == length
    return frame[0], bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))


@pytest.mark.requirement("CLI-22")
def test_the_request_asks_for_mqtt() -> None:
    request = new().request().decode()
    assert request.startswith("GET /mqtt HTTP/1.1\r\nHost: host:80\r\n")
    assert f"Sec-WebSocket-Key: {KEY.decode()}\r\n" in request
    assert "Sec-WebSocket-Protocol: mqtt\r\n" in request
    assert "X-Token: t\r\n\r\n" in request


@given(st.lists(st.binary(max_size=70_000), max_size=4), st.integers(1, 5000))
def test_payload_comes_out_however_it_is_cut(payloads: list[bytes], step: int) -> None:
    wire = UPGRADE + b"".join(
        server_frame(payload[:at], final=False)
        + server_frame(b"ping", 9)
        + server_frame(payload[at:], 0)
        for payload in payloads
        for at in (len(payload) // 2,)
    )
    web_socket, got = new(), b""
    for at in range(0, len(wire), step):
        got += web_socket.receive(wire[at : at + step])
    assert got == b"".join(payloads)
    pongs = web_socket.take_output()
    assert len(pongs) == len(payloads) * 10
    assert all(unmask(pongs[at : at + 10]) == (0x8A, b"ping") for at in range(0, len(pongs), 10))


@given(st.integers(0, 70_000))
def test_frames_of_ours_are_masked_and_come_out_the_same(length: int) -> None:
    data = bytes(i * 7 & 255 for i in range(length))
    frame = opened().frame(data)
    if length <= FRAME_BYTES_MAX:
        assert unmask(frame) == (0x82, data)
    else:
        first = FRAME_BYTES_MAX + 14
        assert unmask(frame[:first])[1] + unmask(frame[first:])[1] == data


def test_a_large_length_reserves_nothing() -> None:
    web_socket = opened()
    assert web_socket.receive(b"\x82\x7f" + (1 << 62).to_bytes(8, "big") + b"abc") == b"abc"
    assert web_socket.receive(b"d" * 1000) == b"d" * 1000


@pytest.mark.parametrize(
    ("answer", "kind", "retryable"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\n", ConnectFailed, False),
        (b"HTTP/1.1 503 Busy\r\n\r\n", ConnectFailed, True),
        (b"\x20\x02\x00\x00\r\n\r\n", RemoteProtocolError, False),
        (UPGRADE.replace(ACCEPT.encode(), b"wrong"), RemoteProtocolError, False),
        (UPGRADE.replace(b"WebSocket", b"h2c"), RemoteProtocolError, False),
        (UPGRADE.replace(b"mqtt", b"chat"), RemoteProtocolError, False),
        (
            UPGRADE[:-2] + b"Sec-WebSocket-Extensions: x\r\n\r\n",
            RemoteProtocolError,
            False,
        ),
        (b"x" * (ANSWER_BYTES_MAX + 1), RemoteProtocolError, False),
    ],
)
def test_bad_answers_are_typed(answer: bytes, kind: type[Exception], retryable: bool) -> None:
    with pytest.raises(kind) as failed:
        new().receive(answer)
    assert getattr(failed.value, "hint", None)
    assert getattr(failed.value, "retryable", None) is retryable


@pytest.mark.parametrize(
    "frame",
    [
        server_frame(b"text", 1),
        server_frame(b"", 0),
        server_frame(b"a", final=False) + server_frame(b"b"),
        b"\x82\x81" + MASK + b"a",
        b"\xc2\x00",
        server_frame(b"x" * 126, 9),
        server_frame(b"", 9, final=False),
        server_frame(b"", 3),
        server_frame(b"", 11),
    ],
)
def test_frames_that_break_the_rules_are_refused(frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        opened().receive(frame)


def test_a_close_is_answered_and_told() -> None:
    web_socket = opened()
    with pytest.raises(ConnectionLost, match="code 1001: bye"):
        web_socket.receive(server_frame((1001).to_bytes(2, "big") + b"bye", 8))
    assert unmask(web_socket.take_output()) == (0x88, (1001).to_bytes(2, "big"))


@given(st.binary(max_size=300))
def test_any_bytes_are_payload_or_a_typed_error(data: bytes) -> None:
    for web_socket in (new(), opened()):
        with contextlib.suppress(ConnectFailed, ConnectionLost, RemoteProtocolError):
            assert len(web_socket.receive(data)) <= len(data)


@pytest.mark.parametrize("headers", [{"a\r\nb": "x"}, {"": "x"}, {"a": "x\r\ny"}, {"a b": "x"}])
def test_headers_cannot_break_out(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="websocket header"):
        WebSocket("h", "/", headers, nonce=NONCE, new_mask=lambda: MASK)
