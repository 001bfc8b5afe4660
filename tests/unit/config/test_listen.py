"""Addresses: what is understood, what is refused, and whether the refusal helps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantumqtt.config.listen import SCHEMES, Address, parse_admin, parse_flight, parse_listen
from quantumqtt.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("tcp://127.0.0.1:1883", "127.0.0.1", 1883),
        ("tcp://127.0.0.1", "127.0.0.1", 1883),
        ("tcp://[::1]:0", "::1", 0),
        ("tcp://[::]:1", "::", 1),
        ("tcp://0.0.0.0:65535/", "0.0.0.0", 65535),
        ("TCP://localhost:1883", "localhost", 1883),
        ("tcp://broker-1.example:1883", "broker-1.example", 1883),
    ],
)
def test_listen_url_is_understood(text: str, host: str, port: int) -> None:
    assert parse_listen(text) == Address("tcp", host, port)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tls://127.0.0.1", Address("tls", "127.0.0.1", 8883)),
        ("ws://[::1]:0", Address("ws", "::1", 0, "/mqtt")),
        ("ws://localhost/", Address("ws", "localhost", 8083, "/mqtt")),
        ("wss://broker.example/a/b-1/", Address("wss", "broker.example", 8084, "/a/b-1")),
        ("unix:///run/mqtt.sock", Address("unix", "/run/mqtt.sock", 0)),
    ],
)
def test_every_kind_of_listener_has_a_url(text: str, expected: Address) -> None:
    address = parse_listen(text)
    assert address == expected
    assert parse_listen(address.url) == address
    assert address.is_encrypted is (address.scheme in {"tls", "wss"})
    assert address.is_plaintext is (address.scheme == "ws")


@pytest.mark.parametrize(
    ("text", "complaint", "remedy"),
    [
        ("127.0.0.1:1883", "scheme is missing", "tcp://127.0.0.1:1883"),
        ("", "scheme is missing", "tcp://127.0.0.1:1883"),
        ("quic://127.0.0.1:14567", "not in this release", "tls://"),
        ("tls://127.0.0.1:8883/x", "a tls address ends after the port", "after the port"),
        ("ws://127.0.0.1:8083/a b", "spaces", "tcp://"),
        ("ws://127.0.0.1:8083//x", "the path of a WebSocket", "/mqtt"),
        ("ws://127.0.0.1:8083/mqtt?x=1", "the path of a WebSocket", "/mqtt"),
        ("unix://run/x.sock", "absolute", "three slashes"),
        ("unix:///run/", "is a file", "mqtt.sock"),
        (f"unix:///{'x' * 107}", "of at most 107 bytes", "mqtt.sock"),
        ("mqtt://127.0.0.1", "what clients write", "tcp://"),
        ("http://127.0.0.1:80", "unknown scheme 'http'", "tcp://"),
        ("tcp://:1883", "host is missing", "0.0.0.0"),
        ("tcp://127.0.0.1:65536", "not a number from 0 to 65535", "1883"),
        ("tcp://127.0.0.1:-1", "not a number from 0 to 65535", "1883"),
        ("tcp://127.0.0.1:mqtt", "not a number from 0 to 65535", "1883"),
        ("tcp://127.0.0.1:1883/mqtt", "ends after the port", "after the port"),
        ("tcp://127.0.0.1:1883?x=1", "ends after the port", "after the port"),
        ("tcp://me:secret@127.0.0.1:1883", "no user name", "before @"),
        ("tcp://1.2.3:1883", "neither an IP address nor a host name", "127.0.0.1"),
        ("tcp://256.0.0.1:1883", "neither an IP address nor a host name", "127.0.0.1"),
        ("tcp://::1:1883", "brackets", "[::1]"),
        ("tcp://[::1", "is not an address", "brackets"),
        ("tcp://[fe80::1%eth0]:1883", "neither an IP address nor a host name", "127.0.0.1"),
        ("tcp://127.0.0.1:1883\n", "control characters", "tcp://"),
        ("tcp://a b:1883", "spaces", "tcp://"),
    ],
)
def test_listen_url_is_refused_with_a_remedy(text: str, complaint: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        parse_listen(text)
    assert caught.value.hint is not None
    assert remedy in caught.value.hint


@given(st.sampled_from(SCHEMES), st.text())
def test_any_text_is_an_address_or_a_config_error(scheme: str, text: str) -> None:
    try:
        address = parse_listen(f"{scheme}://{text}")
    except ConfigError:
        return
    assert 0 <= address.port <= 65_535
    assert parse_listen(address.url) == address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("off", None),
        ("OFF", None),
        ("127.0.0.1:8080", Address("http", "127.0.0.1", 8080)),
        ("http://127.0.0.1:8080/", Address("http", "127.0.0.1", 8080)),
        ("[::1]:0", Address("http", "::1", 0)),
    ],
)
def test_admin_address_is_understood(text: str, expected: Address | None) -> None:
    assert parse_admin(text) == expected


@pytest.mark.parametrize(
    "text", ["", "8080", "127.0.0.1", "127.0.0.1:http", "a/b:1", "::1:8080", "127.0.0.1:1/x"]
)
def test_admin_address_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_admin(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.2", False),
        ("localhost.example", False),
    ],
)
def test_loopback_is_recognised(host: str, *, expected: bool) -> None:
    assert Address("tcp", host, 1883).is_loopback is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("off", None),
        ("127.0.0.1:0", Address("grpc", "127.0.0.1", 0)),
        ("127.0.0.1", Address("grpc", "127.0.0.1", 8815)),
        ("grpc://[::1]:9/", Address("grpc", "::1", 9)),
        ("grpc+tls://log.example:8815", Address("grpc+tls", "log.example", 8815)),
    ],
)
def test_the_place_of_the_log_service_is_understood(text: str, expected: Address | None) -> None:
    assert parse_flight(text) == expected


@pytest.mark.parametrize("text", ["", "http://127.0.0.1:1", "127.0.0.1:1/x", "a b", "1.2.3.4:x"])
def test_what_is_no_place_of_a_log_service_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_flight(text)
    assert refused.value.hint
