"""The locking model of docs/internals/locks.md, on real connections and under watch."""

# Receipts can be awaited, and nobody has to.
# mypy: disable-error-code="unused-awaitable"

import ast
import contextlib
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import count
from pathlib import Path
from uuid import uuid4

import pytest

import quantumqtt.client
from quantumqtt.client import Backoff, Message, SyncClient
from quantumqtt.errors import ClientClosed, LocalProtocolError
from tests.client.conftest import Peer
from tests.harness.process_facts import ProcessFacts
from tests.harness.scripted_server import CONNACK_5, ScriptedServer, until_closed
from tests.harness.waiting import wait_until
from tests.harness.watched_client import Watch, watch, watch_writes

DEADLINE_S = 20.0
THREADS = 64
QUICK = Backoff(first_s=0.01, most_s=0.05)


def name() -> str:
    return f"test/{uuid4().hex}"


def on_loop(client: SyncClient, work: Callable[[], object]) -> None:
    """Run something on the loop's thread and wait for it."""
    done = threading.Event()

    def run() -> None:
        work()
        done.set()

    loop = client._loop
    assert loop is not None
    loop.call_soon_threadsafe(run)
    assert done.wait(DEADLINE_S)


@pytest.mark.requirement("CLI-01", "CLI-02", "CLI-03", "CLI-04", "CLI-11", "CLI-17", "CLI-26")
def test_64_threads_with_connections_lost_and_the_client_closed_among_them(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publishing, subscribing, losing the connection, and closing from eight threads at once."""
    before, seen = ProcessFacts.of(os.getpid()), Watch()
    client = SyncClient(
        peer.url,
        version=peer.version,  # type: ignore[arg-type]
        reconnect=QUICK,
        new_lock=seen.order.new_lock,  # type: ignore[arg-type]
    )
    watch(client, seen, monkeypatch)
    topic, tokens, losses = name(), list[object](), count()
    client.connect()

    def lose() -> None:
        transport = client._driver._transport
        if transport is not None:
            transport.abort()

    def work(who: int) -> None:
        for number in range(12):
            tokens.append(client.publish(f"{topic}/{who}", b"x", qos=who % 3))
            if number == who % 12:
                subscription = client.subscribe(f"{topic}/{who}", lambda _: None, qos=1)
                client.statistics()
                _ = client.connected, client.capabilities, client.last_disconnect
                subscription.close(0.05 if who % 2 else None)
            if who % 16 == 0 and number % 4 == 3 and next(losses) < 6:
                loop = client._loop
                assert loop is not None
                loop.call_soon_threadsafe(lose)

    with ThreadPoolExecutor(THREADS) as pool:
        for done in as_completed([pool.submit(work, who) for who in range(THREADS)]):
            # An answer may be late when a lost connection took it along; nothing else may fail.
            with contextlib.suppress(TimeoutError):
                done.result()
        closing = [pool.submit(client.close) for _ in range(8)]
        late = [pool.submit(_publish_late, client, topic) for _ in range(THREADS - 8)]
        for closed in as_completed([*closing, *late], DEADLINE_S):
            closed.result()
    assert all(token.done() for token in tokens)  # type: ignore[attr-defined]
    assert seen.order.violations == []
    assert seen.trespasses == []
    assert {"connection", "session", "subscription"} <= seen.order.taken.keys()
    wait_until(lambda: ProcessFacts.of(os.getpid()).threads <= before.threads, what="threads ended")
    assert ProcessFacts.of(os.getpid()).descriptors <= before.descriptors


def _publish_late(client: SyncClient, topic: str) -> None:
    """Whoever comes while the client closes is told, or served."""
    try:
        client.publish(topic, b"late", qos=1)
    except ClientClosed:
        return


@pytest.mark.requirement("CLI-07", "CLI-17")
def test_packets_leave_in_the_order_in_which_callers_got_the_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[bytes] = []

    def listen(link: socket.socket) -> None:
        link.recv(1000)
        link.sendall(CONNACK_5)
        said.append(until_closed(link))

    seen, per_thread = Watch(), 50
    with ScriptedServer(listen) as server:
        client = SyncClient(
            server.url,
            version="5",
            new_lock=seen.order.new_lock,  # type: ignore[arg-type]
        )
        watch(client, seen, monkeypatch)
        with client, ThreadPoolExecutor(THREADS) as pool:

            def work(who: int) -> None:
                for number in range(per_thread):
                    client.publish("t", f"{who}:{number}")

            for done in as_completed([pool.submit(work, who) for who in range(THREADS)]):
                done.result()
    assert len(seen.published) == THREADS * per_thread
    assert payloads_of(said[0]) == seen.published


def payloads_of(data: bytes) -> list[bytes]:
    """Read the payloads of short publishes of MQTT 5 at QoS 0 to one-letter topics."""
    found = []
    while data and data[0] == 0x30:
        end = 2 + data[1]
        found.append(data[6:end])
        data = data[end:]
    return found


@pytest.mark.requirement("CLI-05", "CLI-08")
def test_calls_record_under_the_lock_and_the_loop_writes_after_it(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Watch()
    client = SyncClient(
        peer.url,
        version=peer.version,  # type: ignore[arg-type]
        new_lock=seen.order.new_lock,  # type: ignore[arg-type]
    )
    watch(client, seen, monkeypatch)
    with client:
        on_loop(client, lambda: watch_writes(client, seen))
        driver, resume = client._driver, threading.Event()
        # While the loop is held up, calls still record everything and return.
        loop = client._loop
        assert loop is not None
        loop.call_soon_threadsafe(resume.wait, DEADLINE_S)
        try:
            token = client.publish(name(), b"x", qos=1)
            subscription = client.subscribe(name(), qos=1)
            with driver._lock:
                pending = dict(driver._session._outbound.pending)
                outbox = list(driver._session._outbound.outbox)
            assert pending[token.packet_id] is token
            assert pending[subscription.ready.packet_id] is subscription.ready
            assert token.packet_id != subscription.ready.packet_id
            assert len(outbox) == 2
            assert [what for what, _, _ in seen.trace if what == "write"] == []
        finally:
            resume.set()
        token.wait(DEADLINE_S)
        subscription.ready.wait(DEADLINE_S)
        gone = driver.unsubscribe(subscription.filters, subscription)
        assert gone is not None
        gone.wait(DEADLINE_S)
        with pytest.raises(LocalProtocolError):
            client.publish("a/#", qos=1)
    assert ("publish", ("session",), False) in seen.trace
    writes = [(held, is_loop) for what, held, is_loop in seen.trace if what == "write"]
    assert writes
    assert set(writes) == {((), True)}
    assert seen.trespasses == []


SOURCES = Path(quantumqtt.client.__file__).parent


def calls_of(method: str, owners: tuple[str, ...]) -> set[str]:
    """Find the functions of the client that call `owner.method(…)`."""
    found = set()
    for file in SOURCES.glob("*.py"):
        for outer in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for node in ast.walk(outer):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    owner = ast.unparse(node.func.value)
                    if node.func.attr == method and owner.endswith(owners):
                        found.add(f"{file.stem}.{outer.name}")
    return found


@pytest.mark.requirement("CLI-09")
def test_one_place_reads_one_decides_and_one_writes() -> None:
    """Reading only tells the session, the session touches no socket, only its output is written."""
    assert calls_of("receive", ("_session",)) == {"driver._on_data"}
    assert calls_of("write", ("transport",)) == {"driver._act", "commits._write"}
    assert calls_of("take_output", ("session",)) == {"driver._act"}
    does_io = {"asyncio", "socket", "ssl", "threading", "time", "os", "random", "selectors"}
    for part in ("protocol", "outbound", "inbound", "journal", "routes", "options", "refusals"):
        tree = ast.parse((SOURCES / f"{part}.py").read_text("utf-8"))
        imported = {
            alias.name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert not imported & does_io, part


@pytest.mark.requirement("CLI-12")
def test_callbacks_that_never_return_stop_nothing(peer: Peer) -> None:
    """`on_connected`, `on_disconnected`, a token's and a handler block; all else goes on."""
    release, stuck, topic = threading.Event(), list[str](), name()
    others: list[Message] = []

    def block(*_: object) -> None:
        stuck.append(threading.current_thread().name)
        release.wait(DEADLINE_S * 3)

    client = SyncClient(
        peer.url,
        version=peer.version,  # type: ignore[arg-type]
        keep_alive_s=1,
        reconnect=QUICK,
        on_connected=block,
        on_disconnected=block,
    )
    try:
        client.connect()
        client.subscribe(f"{topic}/stuck", block, qos=0).ready.wait(DEADLINE_S)
        client.subscribe(f"{topic}/free", others.append, qos=1).ready.wait(DEADLINE_S)
        client.publish(f"{topic}/stuck", b"x").wait(DEADLINE_S)
        client.publish(f"{topic}/free", b"x", qos=1).add_done_callback(block)
        wait_until(lambda: len(others) == 1, what="handled beside a stuck handler")
        connections = client.statistics().connections_total
        on_loop(client, lambda: client._driver._transport.abort())  # type: ignore[union-attr]
        wait_until(
            lambda: client.statistics().connections_total > connections,
            what="connected again",
            deadline_s=DEADLINE_S,
        )
        wait_until(lambda: len(stuck) == 4, what="all four are stuck", deadline_s=DEADLINE_S)
        client.publish(f"{topic}/free", b"y", qos=2).wait(DEADLINE_S)
        # The first may come again: nobody knows whether its PUBACK was out before the cut.
        wait_until(
            lambda: any(message.payload == b"y" for message in others),
            what="handled on the new connection",
        )
        # Each on a thread of its own, and none of them on the protocol's.
        assert len(set(stuck)) == 4
        assert "quantumqtt client" not in stuck
        assert client.connected
    finally:
        release.set()
        client.close()


def public_calls(client: SyncClient) -> dict[str, Callable[[], object]]:
    """Every public method and property of the client, as a call."""
    topic = name()
    calls: dict[str, Callable[[], object]] = {
        "publish": lambda: client.publish(topic, b"x", qos=1).wait(DEADLINE_S),
        "subscribe": lambda: client.subscribe(topic, qos=1).ready.wait(DEADLINE_S),
        "request": lambda: _answered(client),
        "respond": lambda: None,  # asked by `request`
        "statistics": client.statistics,
        "connected": lambda: client.connected,
        "last_disconnect": lambda: client.last_disconnect,
        "client_id": lambda: client.client_id,
        "capabilities": lambda: client.capabilities,
        "recovered": lambda: client.recovered,
        "reauthenticate": lambda: _refused(client),
        "connect": lambda: _connected_twice(client),
    }
    offered = {one for one in vars(SyncClient) if not one.startswith(("_", "on_"))}
    assert offered == {*calls, "close"}, "a new method has to be called from callbacks, too"
    return calls


def _answered(client: SyncClient) -> None:
    capabilities = client.capabilities
    if capabilities is None or capabilities.version != "5":
        return
    topic = name()
    asked = client.subscribe(
        topic, lambda message: client.respond(message, message.payload.upper()), qos=1
    )
    asked.ready.wait(DEADLINE_S)
    assert client.request(topic, b"q", timeout=DEADLINE_S).payload == b"Q"


def _refused(client: SyncClient) -> None:
    with pytest.raises(LocalProtocolError):
        client.reauthenticate()


def _connected_twice(client: SyncClient) -> None:
    with pytest.raises(ClientClosed):
        client.connect()


@pytest.mark.requirement("CLI-13")
@pytest.mark.parametrize("where", ["connected", "disconnected", "token", "message"])
def test_any_method_may_be_called_from_any_callback(peer: Peer, where: str) -> None:
    results: list[BaseException | None] = []

    def call_all(*_: object) -> None:
        if results:
            return
        try:
            for call in public_calls(client).values():
                call()
            client.close()
        except BaseException as error:
            results.append(error)
            raise
        results.append(None)

    hooks = {f"on_{where}": call_all} if where in ("connected", "disconnected") else {}
    client = SyncClient(
        peer.url,
        version=peer.version,  # type: ignore[arg-type]
        reconnect=QUICK,
        **hooks,  # type: ignore[arg-type]
    )
    client.connect()
    try:
        if where == "disconnected":
            on_loop(client, lambda: client._driver._transport.abort())  # type: ignore[union-attr]
        elif where == "token":
            client.publish(name(), b"x", qos=2).add_done_callback(call_all)
        elif where == "message":
            topic = name()
            client.subscribe(topic, call_all, qos=1).ready.wait(DEADLINE_S)
            client.publish(topic, b"x", qos=1)
        wait_until(lambda: bool(results), what="all were called", deadline_s=DEADLINE_S)
    finally:
        client.close()
    assert results == [None]


@pytest.mark.requirement("CLI-14")
def test_a_handler_runs_in_order_one_at_a_time_and_parallel_ones_are_bounded(peer: Peer) -> None:
    topic, came, running, most = name(), list[int](), list[int](), dict[int, int]()
    lock = threading.Lock()

    def handler(limit: int) -> Callable[[Message], None]:
        def handle(message: Message) -> None:
            with lock:
                running.append(limit)
                most[limit] = max(most.get(limit, 0), running.count(limit))
            for _ in range(int(message.payload) % 7 * 200):
                pass  # some take longer than those after them
            with lock:
                running.remove(limit)
                if limit == 1:
                    came.append(int(message.payload))

        return handle

    with SyncClient(peer.url, version=peer.version) as client:  # type: ignore[arg-type]
        for limit in (1, 4):
            client.subscribe(topic, handler(limit), qos=1, parallel=limit).ready.wait(DEADLINE_S)
        for number in range(300):
            client.publish(topic, str(number), qos=1)
        wait_until(lambda: len(came) == 300, what="all came", deadline_s=DEADLINE_S)
    assert came == list(range(300))
    assert most[1] == 1
    assert most[4] <= 4
