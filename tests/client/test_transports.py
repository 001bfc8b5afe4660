"""TLS, Unix sockets and enhanced authentication: what stands between a client and its session."""

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from quantumqtt.client import SyncClient
from quantumqtt.client.auth import ScramSha256, TokenAuthenticator
from quantumqtt.errors import NotAuthorized, TlsFailed
from tests.harness import packets
from tests.harness.mosquitto_broker import MosquittoBroker
from tests.harness.packets import Key
from tests.harness.ports import LOOPBACK, free_port
from tests.harness.waiting import wait_until
from tests.unit.client.test_auth import CLIENT_FINAL, NONCE, SERVER_FINAL, SERVER_FIRST

DEADLINE_S = 20.0


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a self-signed certificate for localhost."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    return certificate, key


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, Path]]:
    """A Mosquitto that asks for client certificates."""
    folder = tmp_path_factory.mktemp("secure")
    certificate, key = make_certificate(folder, "server")
    port = free_port()
    lines = [
        f"listener {port} {LOOPBACK}",
        f"certfile {certificate}",
        f"keyfile {key}",
        f"cafile {certificate}",
        "require_certificate true",
    ]
    with MosquittoBroker(folder, *lines):
        yield f"mqtts://localhost:{port}", certificate, key


def context_of(certificate: Path, key: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificate))
    if key is not None:
        context.load_cert_chain(certificate, key)
    return context


@pytest.mark.needs_program("mosquitto")
@pytest.mark.requirement("CLI-22")
def test_tls_with_a_client_certificate(secure: tuple[str, Path, Path]) -> None:
    url, certificate, key = secure
    with SyncClient(url, tls=context_of(certificate, key)) as client:
        subscription = client.subscribe("t", qos=1)
        subscription.ready.wait(DEADLINE_S)
        client.publish("t", b"x" * 100_000, qos=1).wait(DEADLINE_S)
        assert len(subscription.get(DEADLINE_S).payload) == 100_000


@pytest.mark.needs_program("mosquitto")
def test_tls_that_cannot_be_trusted_is_a_typed_error(secure: tuple[str, Path, Path]) -> None:
    url, certificate, key = secure
    with pytest.raises(TlsFailed) as failed:
        SyncClient(url).connect()
    assert not failed.value.retryable
    with pytest.raises(TlsFailed):
        SyncClient(url, tls=context_of(certificate, key), tls_server_name="other.example").connect()


def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(1)

        def serve() -> None:
            link, _ = server.accept()
            with link:
                link.recv(1000)
                link.sendall(b"\x20\x03\x00\x00\x00")
                link.recv(1000)

        thread = threading.Thread(target=serve)
        thread.start()
        with SyncClient(f"unix://{path}", version="5") as client:
            assert client.connected
        thread.join(DEADLINE_S)


def serve_scram(server: socket.socket, last: bytes) -> None:
    """Play the server of the standard's example; `last` is its proof."""
    link, _ = server.accept()
    with link:
        link.recv(1000)
        method = (Key.AUTHENTICATION_METHOD, "SCRAM-SHA-256")
        challenge = (method, (Key.AUTHENTICATION_DATA, SERVER_FIRST))
        body = b"\x18" + packets.property_block(challenge)
        link.sendall(bytes([0xF0]) + packets.varint(len(body)) + body)
        assert CLIENT_FINAL in link.recv(1000)
        body = b"\x00\x00" + packets.property_block((method, (Key.AUTHENTICATION_DATA, last)))
        link.sendall(bytes([0x20]) + packets.varint(len(body)) + body)
        link.recv(1000)


@pytest.mark.requirement("CLI-22")
@pytest.mark.parametrize("last", [SERVER_FINAL, b"v=AAAA"])
def test_scram_proves_both_sides(last: bytes) -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        thread = threading.Thread(target=serve_scram, args=(server, last))
        thread.start()
        client = SyncClient(
            f"mqtt://{LOOPBACK}:{server.getsockname()[1]}",
            version="5",
            authenticator=ScramSha256("user", "pencil", new_nonce=lambda: NONCE),
        )
        if last == SERVER_FINAL:
            client.connect()
            client.close()
        else:
            with pytest.raises(NotAuthorized, match="does not know our password"):
                client.connect()
        thread.join(DEADLINE_S)


def serve_token(server: socket.socket, proofs: list[bytes], last: bytes) -> None:
    """Take a token at CONNECT and at each proof after it; `last` is said to the second proof."""
    link, _ = server.accept()
    method = (Key.AUTHENTICATION_METHOD, "TOKEN")
    with link:
        proofs.append(link.recv(1000))
        body = b"\x00\x00" + packets.property_block((method,))
        link.sendall(bytes([0x20, len(body)]) + body)
        again = b""
        while b"two" not in again:
            again += link.recv(1000)
        proofs.append(again)
        link.sendall(last)
        link.recv(1000)


AGAIN = b"\x00" + packets.property_block(((Key.AUTHENTICATION_METHOD, "TOKEN"),))


@pytest.mark.requirement("CLI-22")
@pytest.mark.parametrize("is_good", [True, False])
def test_a_client_proves_again_before_its_token_expires(is_good: bool) -> None:
    """The connection stays; the token is fetched anew; a refusal is told with its reason."""
    tokens, proofs, lost = iter([b"one", b"two"]), list[bytes](), threading.Event()
    last = bytes([0xF0, len(AGAIN)]) + AGAIN if is_good else b"\xe0\x01\x87"
    with socket.create_server((LOOPBACK, 0)) as server:
        thread = threading.Thread(target=serve_token, args=(server, proofs, last))
        thread.start()
        client = SyncClient(
            f"mqtt://{LOOPBACK}:{server.getsockname()[1]}",
            version="5",
            authenticator=TokenAuthenticator("TOKEN", lambda: next(tokens)),
            reconnect=None,
            on_disconnected=lambda _: lost.set(),
        )
        client.connect()
        client.reauthenticate()
        if is_good:
            wait_until(lambda: len(proofs) == 2, what="proved again")
            assert client.connected
        else:
            assert lost.wait(DEADLINE_S)
            assert "not authorized" in str(client.last_disconnect)
        client.close(drain_s=0)
        thread.join(DEADLINE_S)
    assert b"one" in proofs[0]
    assert proofs[1].startswith(b"\xf0")
    assert proofs[1][2] == 0x19, "re-authenticate, as MQTT 5 writes it"


@pytest.mark.requirement("CLI-22")
def test_the_server_is_told_which_name_is_meant(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    named: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: named.append(name)

    def serve() -> None:
        link, _ = server.accept()
        with context.wrap_socket(link, server_side=True) as secured:
            secured.recv(1000)
            secured.sendall(b"\x20\x03\x00\x00\x00")
            secured.recv(1000)

    with socket.create_server((LOOPBACK, 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        url = f"mqtts://{LOOPBACK}:{server.getsockname()[1]}"
        with SyncClient(
            url, version="5", tls=context_of(certificate, None), tls_server_name="localhost"
        ) as client:
            assert client.connected
        thread.join(DEADLINE_S)
    assert named == ["localhost"]
