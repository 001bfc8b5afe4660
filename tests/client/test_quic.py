"""MQTT over QUIC: our clients through a relay to a real broker's TCP port."""

import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quantumqtt.client import Client, SyncClient
from quantumqtt.client.options import Version
from quantumqtt.client.transports import tls_context
from quantumqtt.errors import ConnectFailed, TlsFailed
from tests.harness.ports import LOOPBACK
from tests.harness.quic_relay import QuicRelay

DEADLINE_S = 20.0
# More than a window of QUIC, a socket's buffer and the client's own high-water mark.
LARGE = bytes(range(256)) * 16_384


@pytest.fixture(scope="module")
def relay(our_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuicRelay]:
    with QuicRelay(tmp_path_factory.mktemp("quic"), our_port) as relay:
        yield relay


def trusting(relay: QuicRelay) -> ssl.SSLContext:
    return tls_context(ca_file=str(relay.authority.file))


@pytest.mark.requirement("CLI-22")
@pytest.mark.parametrize("version", ["3.1.1", "5"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_go_there_and_back(relay: QuicRelay, version: Version, qos: int) -> None:
    with SyncClient(relay.url, tls=trusting(relay), version=version) as client:
        subscription = client.subscribe(f"quic/{version}/{qos}", qos=qos)
        subscription.ready.wait(DEADLINE_S)
        client.publish(f"quic/{version}/{qos}", b"hello", qos=qos).wait(DEADLINE_S)
        assert subscription.get(DEADLINE_S).payload == b"hello"


@pytest.mark.requirement("CLI-22")
async def test_a_large_message_passes_in_pieces(relay: QuicRelay) -> None:
    async with Client(relay.url, tls=trusting(relay)) as client:
        stream = client.subscribe("quic/large", qos=1)
        await stream.ready
        await client.publish("quic/large", LARGE, qos=1)
        message = await stream.next(timeout=DEADLINE_S)
        assert message.payload == LARGE


async def test_a_reader_that_waits_gets_everything_in_order(relay: QuicRelay) -> None:
    async with (
        Client(relay.url, tls=trusting(relay)) as reader,
        Client(relay.url, tls=trusting(relay)) as writer,
    ):
        stream = reader.subscribe("quic/slow", qos=0, overflow="wait", queue_count_max=1)
        await stream.ready
        payloads = [number.to_bytes(2) + LARGE[:100_000] for number in range(40)]
        for payload in payloads:
            await writer.publish("quic/slow", payload, qos=1)
        for payload in payloads:
            assert (await stream.next(timeout=DEADLINE_S)).payload == payload


@pytest.mark.requirement("CLI-22")
def test_a_connection_that_is_cut_is_made_again_with_its_session(relay: QuicRelay) -> None:
    with SyncClient(
        relay.url, tls=trusting(relay), client_id="quic-again", clean_start=False
    ) as client:
        subscription = client.subscribe("quic/again", qos=1)
        subscription.ready.wait(DEADLINE_S)
        relay.cut()
        client.publish("quic/again", b"after", qos=1).wait(DEADLINE_S)
        assert subscription.get(DEADLINE_S).payload == b"after"
        assert client.statistics().connections_total == 2


def test_goodbye_reaches_the_broker(relay: QuicRelay) -> None:
    with SyncClient(relay.url, tls=trusting(relay)) as watcher:
        wills = watcher.subscribe("quic/will", qos=1)
        wills.ready.wait(DEADLINE_S)
        leaving = SyncClient(relay.url, tls=trusting(relay), client_id="quic-leaves")
        leaving.connect()
        said = leaving.publish("quic/will", b"last word", qos=1)
        leaving.close()
        said.wait(DEADLINE_S)
        assert wills.get(DEADLINE_S).payload == b"last word"


def test_who_cannot_be_trusted_is_a_typed_error(relay: QuicRelay) -> None:
    with pytest.raises(TlsFailed) as failed:
        SyncClient(relay.url).connect()
    assert not failed.value.retryable
    with pytest.raises(TlsFailed, match=r"other\.example"):
        SyncClient(relay.url, tls=trusting(relay), tls_server_name="other.example").connect()


def test_verification_is_turned_off_by_the_context_only(relay: QuicRelay) -> None:
    careless = ssl.create_default_context()
    careless.check_hostname = False
    careless.verify_mode = ssl.CERT_NONE
    with SyncClient(relay.url, tls=careless) as client:
        assert client.connected


def test_a_context_that_names_nobody_is_refused_before_anything_is_sent(relay: QuicRelay) -> None:
    half = tls_context(ca_file=str(relay.authority.file))
    half.check_hostname = False
    with pytest.raises(ConnectFailed, match="checks the server's name"):
        SyncClient(relay.url, tls=half, reconnect=None).connect()
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ConnectFailed, match="no authorities"):
        SyncClient(relay.url, tls=nobody, reconnect=None).connect()


def test_something_else_over_quic_is_named(our_port: int, tmp_path: Path) -> None:
    with (
        QuicRelay(tmp_path, our_port, alpn="h3") as other,
        pytest.raises(TlsFailed, match="not MQTT"),
    ):
        SyncClient(other.url, tls=trusting(other)).connect()


def test_nobody_there_fails_at_once() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((LOOPBACK, 0))
        port = taken.getsockname()[1]
    with pytest.raises(ConnectFailed, match="cannot connect"):
        SyncClient(f"quic://{LOOPBACK}:{port}", reconnect=None).connect()


def test_without_aioquic_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "quantumqtt.client.quic", None)
    with pytest.raises(ConnectFailed) as failed:
        SyncClient("quic://localhost").connect()
    assert not failed.value.retryable
    assert failed.value.hint is not None
    assert "quantumqtt[quic]" in failed.value.hint


def test_no_proxy_takes_datagrams() -> None:
    with pytest.raises(ValueError, match="datagrams"):
        SyncClient("quic://localhost", proxy="socks5://localhost")


async def test_where_udp_does_not_pass_the_next_url_is_taken(our_port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind((LOOPBACK, 0))
        urls = [f"quic://{LOOPBACK}:{silent.getsockname()[1]}", f"mqtt://{LOOPBACK}:{our_port}"]
        async with Client(urls) as client:
            assert client.connected
