"""Ways to a broker: WebSocket, proxies, several URLs, redirects."""

# Receipts can be awaited, and nobody has to.
# mypy: disable-error-code="unused-awaitable"

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from quantumqtt.client import Backoff, Client, SyncClient, tls_context
from quantumqtt.client.transports import race
from quantumqtt.errors import ConnectFailed, ConnectionLost, RemoteProtocolError, ServerRedirect
from tests.client.test_transports import make_certificate
from tests.harness import packets
from tests.harness.mosquitto_broker import MosquittoBroker
from tests.harness.packets import Key
from tests.harness.ports import LOOPBACK, free_port
from tests.harness.proxy_servers import ProxyServer
from tests.harness.scripted_server import CONNACK_5, ScriptedServer, until_closed
from tests.harness.waiting import wait_until

DEADLINE_S = 20.0


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int, Path]]:
    """A Mosquitto that speaks WebSocket, plain and in TLS."""
    folder = tmp_path_factory.mktemp("web")
    certificate, key = make_certificate(folder, "server")
    plain, secure = free_port(), free_port()
    lines = [
        f"listener {plain} {LOOPBACK}",
        "protocol websockets",
        f"listener {secure} {LOOPBACK}",
        "protocol websockets",
        f"certfile {certificate}",
        f"keyfile {key}",
    ]
    with MosquittoBroker(folder, *lines):
        for port in (plain, secure):
            wait_until(partial(listens, port), what="the listener is there")
        yield plain, secure, certificate


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


def pass_messages(client: SyncClient) -> None:
    topic, large = uuid4().hex, bytes(range(256)) * 40
    with client:
        subscription = client.subscribe(topic, qos=1)
        subscription.ready.wait(DEADLINE_S)
        for payload in (b"", b"small", large):
            client.publish(topic, payload, qos=1).wait(DEADLINE_S)
            assert subscription.get(DEADLINE_S).payload == payload


@pytest.mark.needs_program("mosquitto")
@pytest.mark.requirement("CLI-22")
@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_websocket_plain_and_in_tls(web: tuple[int, int, Path], version: str) -> None:
    plain, secure, certificate = web
    plain_url = f"ws://{LOOPBACK}:{plain}/mqtt"
    pass_messages(SyncClient(plain_url, version=version))  # type: ignore[arg-type]
    context = tls_context(ca_file=str(certificate))
    pass_messages(SyncClient(f"wss://localhost:{secure}", tls=context))


@pytest.mark.parametrize("scheme", ["socks5", "http"])
@pytest.mark.requirement("CLI-22")
def test_proxies_with_credentials(our_port: int, scheme: str) -> None:
    with ProxyServer(user_name="me", password="s3cret") as proxy:
        url = f"mqtt://localhost:{our_port}"
        way = f"{scheme}://me:s3cret@{LOOPBACK}:{proxy.port}"
        pass_messages(SyncClient(url, proxy=way))
        assert proxy.asked_for == [f"localhost:{our_port}"]
        with pytest.raises(ConnectFailed, match="proxy") as failed:
            SyncClient(url, proxy=f"{scheme}://me:wrong@{LOOPBACK}:{proxy.port}").connect()
        assert failed.value.hint


@pytest.mark.needs_program("mosquitto")
def test_websocket_in_tls_through_a_proxy(web: tuple[int, int, Path]) -> None:
    _, secure, certificate = web
    with ProxyServer() as proxy:
        client = SyncClient(
            f"wss://localhost:{secure}",
            tls=tls_context(ca_file=str(certificate)),
            proxy=f"socks5://{LOOPBACK}:{proxy.port}",
        )
        pass_messages(client)


@pytest.mark.parametrize("scheme", ["socks5", "http"])
def test_proxies_that_refuse_or_are_not_there(scheme: str) -> None:
    with ProxyServer(refuse=True) as proxy, pytest.raises(ConnectFailed, match="no way to"):
        SyncClient("mqtt://localhost:1", proxy=f"{scheme}://{LOOPBACK}:{proxy.port}").connect()
    with pytest.raises(ConnectFailed, match="cannot connect to proxy"):
        SyncClient("mqtt://localhost:1", proxy=f"{scheme}://{LOOPBACK}:{free_port()}").connect()


def test_what_is_no_websocket_is_told() -> None:
    def refuse(link: socket.socket) -> None:
        link.recv(4096)
        link.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    def is_something_else(link: socket.socket) -> None:
        link.recv(4096)
        link.sendall(b"220 smtp ready\r\n\r\n")

    def leave(link: socket.socket) -> None:
        link.recv(4096)

    with ScriptedServer(refuse, is_something_else, leave) as server:
        for kind, words in (
            (ConnectFailed, "404 Not Found"),
            (RemoteProtocolError, "breaks WebSocket"),
            (ConnectionLost, "before WebSocket was open"),
        ):
            with pytest.raises(kind, match=words):
                SyncClient(f"ws://{LOOPBACK}:{server.port}/x", version="5").connect()


def test_of_several_urls_the_first_that_answers_is_taken(our_port: int) -> None:
    silent = socket.create_server((LOOPBACK, 0), backlog=1)
    urls = [
        f"mqtt://{LOOPBACK}:{free_port()}",
        f"ws://{LOOPBACK}:{silent.getsockname()[1]}",
        f"mqtt://{LOOPBACK}:{our_port}",
    ]
    with silent:
        pass_messages(SyncClient(urls))


def test_when_none_answers_all_are_named() -> None:
    ports = [free_port(), free_port()]
    with pytest.raises(ConnectFailed) as failed:
        SyncClient([f"mqtt://{LOOPBACK}:{port}" for port in ports]).connect()
    assert all(str(port) in str(failed.value) for port in ports)


def test_a_server_that_is_unavailable_gives_the_next_one_its_turn(our_port: int) -> None:
    lost = threading.Event()

    def busy(link: socket.socket) -> None:
        link.recv(1000)
        link.sendall(CONNACK_5)
        link.sendall(b"\xe0\x02\x8b\x00")  # the server shuts down
        until_closed(link)

    with ScriptedServer(busy) as server:
        urls = [server.url, f"mqtt://{LOOPBACK}:{our_port}"]
        with SyncClient(
            urls,
            version="5",
            reconnect=Backoff(first_s=0.01, most_s=0.05),
            on_disconnected=lambda _: lost.set(),
        ) as client:
            assert lost.wait(DEADLINE_S)
            client.publish("a", b"arrives", qos=1).wait(DEADLINE_S)


async def test_losers_of_a_race_are_dropped() -> None:
    dropped: list[str] = []
    started: list[str] = []

    async def fail() -> str:
        started.append("fail")
        raise ConnectFailed("no")

    async def win(name: str) -> str:
        started.append(name)
        return name

    async def never() -> str:
        started.append("never")
        await asyncio.Event().wait()
        return "never"

    won = await race([fail, lambda: win("b"), lambda: win("c")], dropped.append)
    assert (won.place, won.opened, started) == (1, "b", ["fail", "b"])
    won = await race([never, lambda: win("b")], dropped.append, head_start_s=0)
    assert won.opened == "b"
    racing = asyncio.ensure_future(race([never], dropped.append))
    await asyncio.sleep(0)
    racing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await racing
    assert dropped == []


# --- redirects -----------------------------------------------------------------------------------


def redirecting(link: socket.socket) -> None:
    link.recv(1000)
    block = packets.property_block(((Key.SERVER_REFERENCE, "elsewhere"),))
    body = b"\x00\x9c" + block
    link.sendall(bytes([0x20, len(body)]) + body)
    until_closed(link)


@pytest.mark.requirement("CLI-18")
@pytest.mark.parametrize("is_async", [False, True])
async def test_the_application_decides_about_a_redirect(our_port: int, is_async: bool) -> None:
    asked: list[str | None] = []
    target = f"mqtt://{LOOPBACK}:{our_port}"

    def decide(reference: str | None) -> str:
        asked.append(reference)
        return target

    async def decide_later(reference: str | None) -> str:
        return decide(reference)

    quick = Backoff(first_s=0.01, most_s=0.05)
    with ScriptedServer(redirecting) as server:
        hook = decide_later if is_async else decide
        async with (
            Client(server.url, version="5", on_redirect=hook, reconnect=quick) as client,
            asyncio.timeout(DEADLINE_S),
        ):
            await client.publish("a", b"x", qos=1)
    assert asked == ["elsewhere"]


@pytest.mark.requirement("CLI-12", "CLI-18")
def test_a_thread_decides_about_a_redirect_and_may_fail(our_port: int) -> None:
    threads: list[str] = []

    def decide(_: str | None) -> str:
        threads.append(threading.current_thread().name)
        return f"mqtt://{LOOPBACK}:{our_port}"

    quick = Backoff(first_s=0.01, most_s=0.05)
    with (
        ScriptedServer(redirecting) as server,
        SyncClient(server.url, version="5", on_redirect=decide, reconnect=quick) as client,
    ):
        client.publish("a", b"x", qos=1).wait(DEADLINE_S)
    assert threads == ["quantumqtt on_disconnected"]

    def fail(_: str | None) -> str:
        raise RuntimeError("on purpose")

    for hook in (None, fail, lambda _: "no://url"):
        with ScriptedServer(redirecting) as server, pytest.raises(ServerRedirect) as redirected:
            SyncClient(server.url, version="5", on_redirect=hook).connect()
        assert redirected.value.server_reference == "elsewhere"


def test_wrong_ways_fail_at_the_call(tmp_path: Path) -> None:
    wrong: tuple[dict[str, object], ...] = (
        {"url": []},
        {"url": "gopher://x"},
        {"url": f"unix://{tmp_path}/s", "proxy": "socks5://p"},
        {"proxy": "ftp://p"},
        {"websocket_headers": {"a\n": "b"}},
        {"connect_timeout_s": 0},
    )
    for arguments in wrong:
        with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
            Client(**arguments)  # type: ignore[arg-type]
    with pytest.raises((OSError, ssl.SSLError)):
        tls_context(ca_file=str(tmp_path / "absent"))
    assert tls_context(alpn=["mqtt"]).check_hostname
