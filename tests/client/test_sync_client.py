"""The client for threads: real brokers, many threads, and locks that tell on whoever errs."""

# Receipts can be awaited, and nobody has to.
# mypy: disable-error-code="unused-awaitable"

import socket
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from uuid import uuid4

import pytest

from quantumqtt.client import Backoff, Message, SyncClient
from quantumqtt.client.protocol import Session
from quantumqtt.errors import ClientClosed, ConnectFailed, NotAuthorized, PublishQueueFull
from tests.client.conftest import Peer
from tests.harness import packets
from tests.harness.checked_lock import LockOrder
from tests.harness.packets import Version
from tests.harness.ports import free_port
from tests.harness.waiting import wait_until

DEADLINE_S = 20.0


def client_of(peer: Peer, **options: object) -> SyncClient:
    return SyncClient(peer.url, version=peer.version, **options)  # type: ignore[arg-type]


def name() -> str:
    return f"test/{uuid4().hex}"


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publish_and_callback(peer: Peer, qos: int) -> None:
    topic, got = name(), []
    with client_of(peer) as client:
        subscription = client.subscribe(topic, lambda m: got.append(int(m.payload)), qos=qos)
        subscription.ready.wait(DEADLINE_S)
        tokens = [client.publish(topic, str(number), qos=qos) for number in range(100)]
        for token in tokens:
            token.wait(DEADLINE_S)
        wait_until(lambda: len(got) == 100, what="all came", deadline_s=DEADLINE_S)
    assert got == list(range(100))


def test_iteration_and_get(peer: Peer) -> None:
    topic = name()
    with client_of(peer) as client:
        subscription = client.subscribe(topic, qos=1)
        subscription.ready.wait(DEADLINE_S)
        client.publish(topic, "first", qos=1)
        assert subscription.get(DEADLINE_S).payload == b"first"
        with pytest.raises(TimeoutError):
            subscription.get(0.01)
        client.publish(topic, "second", qos=1)
        for message in subscription:
            assert message.payload == b"second"
            subscription.close()
        with pytest.raises(ClientClosed):
            subscription.get(0)


@pytest.mark.requirement("CLI-20")
def test_tokens_work_with_concurrent_futures_and_callbacks(peer: Peer) -> None:
    called = threading.Event()
    with client_of(peer) as client:
        tokens = [client.publish(name(), b"x", qos=1) for _ in range(10)]
        for future in as_completed([token.future() for token in tokens], DEADLINE_S):
            assert future.result() in (0, 16)
        tokens[0].add_done_callback(lambda token: called.set())
        assert called.wait(DEADLINE_S)


@pytest.mark.requirement("CLI-11", "CLI-13")
def test_every_callback_may_call_the_client(peer: Peer) -> None:
    """From on_connected, from a token and from a message: subscribe, publish, wait."""
    topic, done = name(), threading.Event()

    def on_message(message: Message) -> None:
        if message.payload == b"token":
            client.publish(f"{topic}/more", b"message", qos=2).wait(DEADLINE_S)
            done.set()

    def on_connected(_: object) -> None:
        client.subscribe(f"{topic}/#", on_message, qos=1).ready.wait(DEADLINE_S)
        first = client.publish(f"{topic}/a", b"connected", qos=1)
        first.add_done_callback(
            lambda _: client.publish(f"{topic}/b", b"token", qos=1).wait(DEADLINE_S)
        )

    client = client_of(peer, on_connected=on_connected)
    with client:
        assert done.wait(DEADLINE_S)


@pytest.mark.requirement("CLI-12")
def test_a_handler_that_blocks_stops_nobody_else(peer: Peer) -> None:
    """Up to the server's window, that is: acknowledgements keep the order of receipt."""
    topic, release = name(), threading.Event()
    others: list[Message] = []
    with client_of(peer, keep_alive_s=1) as client:
        stuck = client.subscribe(f"{topic}/a", lambda _: release.wait(DEADLINE_S), qos=1)
        free = client.subscribe(f"{topic}/b", others.append, qos=1)
        stuck.ready.wait(DEADLINE_S)
        free.ready.wait(DEADLINE_S)
        try:
            client.publish(f"{topic}/a", b"x", qos=1).wait(DEADLINE_S)
            for number in range(50):
                client.publish(f"{topic}/b", b"x", qos=int(number < 10)).wait(DEADLINE_S)
            wait_until(lambda: len(others) == 50, what="others handled", deadline_s=DEADLINE_S)
            assert client.connected
        finally:
            release.set()


@pytest.mark.requirement("CLI-14")
def test_order_is_kept_by_default_and_parallel_is_asked_for(peer: Peer) -> None:
    topic, threads, met = name(), set(), threading.Barrier(3)

    def meet(_: Message) -> None:
        threads.add(threading.get_ident())
        met.wait(DEADLINE_S)

    with client_of(peer) as client:
        client.subscribe(topic, meet, parallel=3, qos=1).ready.wait(DEADLINE_S)
        for _ in range(3):
            client.publish(topic, b"x", qos=1)
        wait_until(lambda: len(threads) == 3, what="three at once", deadline_s=DEADLINE_S)


@pytest.mark.requirement("CLI-01", "CLI-03", "CLI-07", "CLI-17")
def test_64_threads_at_once_under_watched_locks(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publishing, subscribing, reading and closing at once; every access holds the lock."""
    order, topic = LockOrder(), name()
    unguarded = watch_accesses(monkeypatch, order)
    per_thread, seen = 25, defaultdict(list)
    with client_of(peer, new_lock=order.new_lock) as client:

        def on_message(message: Message) -> None:
            who, number = message.payload.split(b":")
            seen[who].append(int(number))

        client.subscribe(f"{topic}/+", on_message, qos=1).ready.wait(DEADLINE_S)

        def work(who: int) -> None:
            for number in range(per_thread):
                token = client.publish(f"{topic}/{who}", f"{who}:{number}", qos=1 + who % 2)
                if number % 8 == 0:
                    token.wait(DEADLINE_S)
                if number == who % per_thread:
                    client.subscribe(f"{topic}/side/{who}").close(DEADLINE_S)
                    client.statistics()
                    _ = client.connected, client.capabilities, client.last_disconnect

        with ThreadPoolExecutor(64) as pool:
            for future in as_completed([pool.submit(work, who) for who in range(64)]):
                future.result()
        wait_until(
            lambda: sum(map(len, seen.values())) == 64 * per_thread,
            what="all came",
            deadline_s=DEADLINE_S,
        )
    assert all(numbers == list(range(per_thread)) for numbers in seen.values())
    assert order.violations == []
    assert unguarded == []
    assert order.taken["connection"]
    assert order.taken["subscription"]


def watch_accesses(monkeypatch: pytest.MonkeyPatch, order: LockOrder) -> list[str]:
    """Note every call of the session by a thread that does not hold its lock."""
    unguarded: list[str] = []
    for attribute, method in list(vars(Session).items()):
        if attribute.startswith("_") or not callable(method):
            continue

        def guarded(
            self: object,
            *arguments: object,
            _name: str = attribute,
            _method: Callable[..., object] = method,
            **keywords: object,
        ) -> object:
            if "session" not in order.held():
                unguarded.append(_name)
            return _method(self, *arguments, **keywords)

        monkeypatch.setattr(Session, attribute, guarded)
    return unguarded


@pytest.mark.requirement("CLI-03")
def test_the_checker_refuses_the_wrong_order() -> None:
    order = LockOrder()
    connection, session = order.new_lock("connection"), order.new_lock("session")
    with connection, session:
        pass
    with pytest.raises(AssertionError, match="connection taken while holding"), session:
        connection.acquire()
    with pytest.raises(AssertionError, match="session taken while holding"), session:
        session.acquire()
    assert len(order.violations) == 2


@pytest.mark.requirement("CLI-04", "CLI-24")
def test_a_socket_that_never_drains_leaves_the_api_alive() -> None:
    """The server answers CONNECT and then reads nothing: calls return, the bound is reached."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def serve() -> None:
            link, _ = server.accept()
            held.append(link)
            link.recv(1000)
            link.sendall(b"\x20\x03\x00\x00\x00")

        serving = threading.Thread(target=serve)
        serving.start()
        url = f"mqtt://127.0.0.1:{server.getsockname()[1]}"
        client = SyncClient(url, version="5", queue_bytes_max=8_000_000)
        client.connect()
        serving.join(DEADLINE_S)
        payload = b"x" * 100_000
        tokens = [client.publish("a", payload, qos=1) for _ in range(79)]
        with pytest.raises(PublishQueueFull):
            client.publish("a", payload, qos=1)
        with pytest.raises(TimeoutError):
            client.publish("a", payload, full="wait", full_timeout=0.05)
        client.subscribe("b")
        assert client.connected
        assert client.statistics().unacknowledged_bytes > 7_000_000
        held[0].close()
        client.close(drain_s=0)
        assert all(isinstance(token.exception(), ClientClosed) for token in tokens)


@pytest.mark.requirement("CLI-02")
def test_the_last_disconnect_can_be_read_after_the_loss(peer: Peer) -> None:
    lost = threading.Event()
    with client_of(
        peer,
        reconnect=Backoff(first_s=0.01, most_s=0.05),
        on_disconnected=lambda _: lost.set(),
    ) as client:
        before = client.statistics().connections_total
        loop, transport = client._loop, client._driver._transport
        assert loop is not None
        assert transport is not None
        loop.call_soon_threadsafe(transport.abort)
        assert lost.wait(DEADLINE_S)
        wait_until(lambda: client.connected, what="connected again", deadline_s=DEADLINE_S)
        assert "lost" in str(client.last_disconnect)
        assert client.statistics().connections_total == before + 1


@pytest.mark.requirement("CLI-26")
def test_closing_leaves_no_thread_and_no_promise(peer: Peer) -> None:
    before = threading.active_count()
    client = client_of(peer)
    client.connect()
    client.subscribe(name(), lambda _: None).ready.wait(DEADLINE_S)
    tokens = [client.publish(name(), b"x", qos=2) for _ in range(50)]
    tokens[0].add_done_callback(lambda _: None)
    client.close()
    client.close()
    assert all(token.done() for token in tokens)
    wait_until(lambda: threading.active_count() <= before, what="threads ended")
    with pytest.raises(ClientClosed):
        client.publish("a", b"")


def test_closing_from_a_callback_is_allowed(peer: Peer) -> None:
    topic, closed = name(), threading.Event()

    def on_message(_: Message) -> None:
        client.close()
        closed.set()

    client = client_of(peer)
    client.connect()
    client.subscribe(topic, on_message, qos=1).ready.wait(DEADLINE_S)
    client.publish(topic, b"x", qos=1)
    assert closed.wait(DEADLINE_S)


def test_a_refusal_and_nobody_there_are_told_to_the_caller() -> None:
    with pytest.raises(ConnectFailed):
        SyncClient(f"mqtt://127.0.0.1:{free_port()}").connect()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            link, _ = server.accept()
            with link:
                link.recv(1000)
                block = packets.property_block(((packets.Key.REASON_STRING, "no visitors"),))
                body = b"\x00\x87" + block
                link.sendall(bytes([0x20, len(body)]) + body)
                link.recv(1000)

        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(NotAuthorized, match="no visitors") as refused:
            SyncClient(f"mqtt://127.0.0.1:{server.getsockname()[1]}", version="5").connect()
        thread.join(DEADLINE_S)
        assert refused.value.reason_code == 0x87


def test_a_server_of_older_days_is_spoken_to_in_3_1_1() -> None:
    """It refuses MQTT 5 as 3.1.1 says; `auto` falls back and connects."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        levels: list[int] = []

        def serve() -> None:
            for answer in (b"\x20\x02\x00\x01", b"\x20\x02\x00\x00"):
                link, _ = server.accept()
                with link:
                    connect = link.recv(1000)
                    levels.append(connect[8])
                    link.sendall(answer)
                    link.recv(1000)

        thread = threading.Thread(target=serve)
        thread.start()
        with SyncClient(f"mqtt://127.0.0.1:{server.getsockname()[1]}") as client:
            capabilities = client.capabilities
            assert capabilities is not None
            assert capabilities.version == "3.1.1"
        thread.join(DEADLINE_S)
        assert levels == [Version.V5, Version.V311]
