"""Ways through proxies, answered by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantumqtt.client.proxies import ANSWER_BYTES_MAX, Proxy
from quantumqtt.errors import ConnectFailed

SOCKS_OK = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x00"


def talk(proxy: str, *answers: bytes, host: str = "broker") -> list[bytes]:
    """Answer in turn; returns what was said."""
    way = Proxy.parse(proxy).way_to(host, 1883)
    said = [next(way)]
    for answer in answers:
        try:
            said.append(way.send(answer))
        except StopIteration:
            return [one for one in said if one]
    raise AssertionError("the way did not end")


@pytest.mark.requirement("CLI-22")
def test_socks5_without_and_with_a_password() -> None:
    assert talk("socks5://p", b"\x05\x00", SOCKS_OK) == [
        b"\x05\x01\x00",
        b"\x05\x01\x00\x03\x06broker\x07\x5b",
    ]
    said = talk("socks5h://me:p%40ss@p:99", b"\x05\x02", b"\x01\x00", SOCKS_OK)
    assert said[:2] == [b"\x05\x02\x00\x02", b"\x01\x02me\x04p@ss"]


def test_answers_may_come_byte_by_byte() -> None:
    wire = b"\x05\x00" + SOCKS_OK
    assert len(talk("socks5://p", *(wire[at : at + 1] for at in range(len(wire))))) == 2


@pytest.mark.requirement("CLI-22")
def test_http_connect_says_who_we_are() -> None:
    said = talk("http://me:secret@p", b"HTTP/1.1 200 OK\r\nX: y\r\n", b"\r\n", host="::1")
    assert said == [
        b"CONNECT [::1]:1883 HTTP/1.1\r\nHost: [::1]:1883\r\n"
        b"Proxy-Authorization: Basic bWU6c2VjcmV0\r\n\r\n"
    ]


@pytest.mark.parametrize(
    ("proxy", "answers", "why"),
    [
        ("socks5://p", [b"\x04\x00"], "does not speak SOCKS5"),
        ("socks5://p", [b"\x05\xff"], "another way to say who we are"),
        ("socks5://a:b@p", [b"\x05\x02", b"\x01\x01"], "user name and password"),
        ("socks5://p", [b"\x05\x00", b"\x05\x05\x00\x01\x00"], "connection refused"),
        ("socks5://p", [b"\x05\x00", b"\x05\x00\x00\x09\x00"], "does not speak SOCKS5"),
        ("socks5://p", [b"\x05\x00", SOCKS_OK + b"x"], "spoke before we did"),
        ("http://p", [b"HTTP/1.1 407 Who are you\r\n\r\n"], "407 Who are you"),
        ("http://p", [b"SSH-2.0\r\n\r\n"], "it answers"),
        ("http://p", [b"HTTP/1.1 200 OK\r\n\r\nx"], "spoke before we did"),
        ("http://p", [b"x" * (ANSWER_BYTES_MAX + 1), b"x"], "has no end"),
    ],
)
def test_refusals_are_typed(proxy: str, answers: list[bytes], why: str) -> None:
    with pytest.raises(ConnectFailed, match=why) as failed:
        talk(proxy, *answers)
    assert failed.value.hint


@given(st.sampled_from(["socks5://p", "http://p"]), st.lists(st.binary(max_size=60), max_size=5))
def test_any_answer_opens_refuses_or_waits(proxy: str, answers: list[bytes]) -> None:
    way = Proxy.parse(proxy).way_to("broker", 1883)
    next(way)
    for answer in answers:
        try:
            way.send(answer)
        except (ConnectFailed, StopIteration):
            return


@pytest.mark.parametrize("url", ["ftp://p", "socks5://", "http://" + "u" * 256 + ":x@p"])
def test_urls_that_name_no_proxy_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="proxy"):
        Proxy.parse(url)


def test_secrets_are_not_shown() -> None:
    proxy = Proxy.parse("socks5://me:secret@[::1]")
    assert str(proxy) == "socks5://[::1]:1080"
    assert "secret" not in repr(proxy)
