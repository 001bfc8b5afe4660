"""Servers that lie, stall, send garbage or leave: a typed error each time, and never a hang."""

# Receipts can be awaited, and nobody has to.
# mypy: disable-error-code="unused-awaitable"

import socket
import threading
from collections.abc import Callable

import pytest

from quantumqtt.client import Backoff, Subscription, SyncClient
from quantumqtt.errors import (
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    QuantuMQTTError,
    RemoteProtocolError,
)
from tests.harness import packets
from tests.harness.packets import Version
from tests.harness.scripted_server import CONNACK_5, Script, ScriptedServer, until_closed

DEADLINE_S = 20.0


def after_connack(*said: bytes, stays: bool = True) -> Script:
    """Accept, and then say something that no server should."""

    def script(link: socket.socket) -> None:
        link.recv(1000)
        link.sendall(CONNACK_5)
        for one in said:
            link.sendall(one)
        if stays:
            until_closed(link)

    return script


def publish(packet_id: int) -> bytes:
    return packets.publish("t", b"x", version=Version.V5, qos=1, packet_id=packet_id)


BAD: dict[str, tuple[Script, type[QuantuMQTTError]]] = {
    "garbage": (after_connack(b"\xff" * 100), RemoteProtocolError),
    "an endless length": (after_connack(b"\x30\xff\xff\xff\xff\x01"), RemoteProtocolError),
    "a packet above our limit": (after_connack(b"\x30\xff\xff\xff\x7f"), RemoteProtocolError),
    "half a packet": (after_connack(publish(1)[:5], stays=False), ConnectionLost),
    "a second CONNACK": (after_connack(CONNACK_5), RemoteProtocolError),
    "an answer to nothing": (after_connack(b"\x90\x04\x00\x09\x00\x01"), RemoteProtocolError),
    "what only clients say": (after_connack(b"\x82\x06\x00\x01\x00\x00\x01a"), RemoteProtocolError),
    "more than our window": (
        after_connack(*(publish(packet_id) for packet_id in range(1, 5))),
        RemoteProtocolError,
    ),
    "an unknown alias": (after_connack(b"\x30\x06\x00\x00\x03\x23\x00\x07"), RemoteProtocolError),
    "AUTH without a method": (after_connack(b"\xf0\x00"), RemoteProtocolError),
    "a plain goodbye": (after_connack(b"\xe0\x00"), ConnectionLost),
    "nothing at all": (after_connack(stays=False), ConnectionLost),
}


def take_all(subscription: Subscription) -> None:
    """Take messages until that fails."""
    while True:
        subscription.get(DEADLINE_S)


@pytest.mark.parametrize("what", BAD)
def test_each_fault_has_its_type_a_hint_and_ends_every_promise(what: str) -> None:
    script, kind = BAD[what]
    with ScriptedServer(script) as server:
        client = SyncClient(server.url, version="5", reconnect=None, receive_maximum=2)
        # Nobody takes the messages, so they stay unacknowledged.
        subscription = client.subscribe("t", qos=1, manual_ack=True)
        token = client.publish("a", b"x", qos=2)
        client.connect()
        with pytest.raises(kind) as failed:
            token.wait(DEADLINE_S)
        with pytest.raises(kind):
            subscription.ready.wait(DEADLINE_S)
        with pytest.raises((kind, ClientClosed)):
            take_all(subscription)
        assert isinstance(client.last_disconnect, kind)
        if not isinstance(failed.value, ConnectionLost):
            assert failed.value.hint
        client.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [(b"", "no connection to"), (b"\x20", "no connection to"), (b"\xd0\x00", "before CONNACK")],
)
def test_a_server_that_stalls_before_its_answer(answer: bytes, words: str) -> None:
    def stall(link: socket.socket) -> None:
        link.recv(1000)
        link.sendall(answer)
        until_closed(link)

    with ScriptedServer(stall) as server:
        client = SyncClient(server.url, version="5", connect_timeout_s=0.2)
        with pytest.raises((ConnectFailed, RemoteProtocolError), match=words) as failed:
            client.connect()
        assert failed.value.hint


def test_a_server_that_stops_reading_cannot_hold_up_our_leaving() -> None:
    """Its window is full and it answers no ping: the loss is told and the client goes on."""
    told = threading.Event()
    held: list[socket.socket] = []

    def stop_reading(link: socket.socket) -> None:
        link.recv(1000)
        link.sendall(CONNACK_5)
        held.append(link.dup())
        assert told.wait(DEADLINE_S)

    with ScriptedServer(stop_reading, after_connack()) as server:
        client = SyncClient(
            server.url,
            version="5",
            keep_alive_s=1,
            reconnect=Backoff(first_s=0.01, most_s=0.05),
            on_disconnected=lambda _: told.set(),
        )
        with client:
            for _ in range(100):
                client.publish("a", b"x" * 100_000, qos=1)
            assert told.wait(DEADLINE_S)
            assert "no answer to a ping" in str(client.last_disconnect)
            client.close(drain_s=0)
    held[0].close()


def test_a_broken_authenticator_is_told_as_the_applications() -> None:
    class Broken:
        method = "TOKEN"

        def start(self) -> bytes:
            raise OSError("vault sealed")

        def answer(self, challenge: bytes | None) -> bytes:
            raise AssertionError("never asked")

        def finish(self, data: bytes | None) -> None:
            raise AssertionError("never asked")

    with ScriptedServer(until_closed_quietly) as server:
        client = SyncClient(server.url, version="5", authenticator=Broken())
        with pytest.raises(ConnectFailed, match="vault sealed"):
            client.connect()


def until_closed_quietly(link: socket.socket) -> None:
    assert until_closed(link) == b""


WRONG: dict[str, Callable[[SyncClient], object]] = {
    "a filter as topic": lambda client: client.publish("a/#"),
    "no topic": lambda client: client.publish(""),
    "a QoS that is none": lambda client: client.publish("a", qos=3),
    "an object as payload": lambda client: client.publish("a", object()),  # type: ignore[arg-type]
    "a time that is none": lambda client: client.publish("a", message_expiry_s=-1),
    "no filter": lambda client: client.subscribe([]),
    "a broken filter": lambda client: client.subscribe("a/#/b"),
    "no threads": lambda client: client.subscribe("a", lambda _: None, parallel=0),
    "an empty row": lambda client: client.subscribe("a", queue_count_max=0),
    "a policy that is none": lambda client: client.subscribe(
        "a",
        overflow="hope",  # type: ignore[arg-type]
    ),
}


def test_wrong_arguments_fail_at_the_call_and_nothing_is_sent() -> None:
    said: list[bytes] = []

    def listen(link: socket.socket) -> None:
        link.recv(1000)
        link.sendall(CONNACK_5)
        said.append(until_closed(link))

    with ScriptedServer(listen) as server, SyncClient(server.url, version="5") as client:
        for what, call in WRONG.items():
            with pytest.raises((QuantuMQTTError, ValueError, TypeError)):
                call(client)
            assert client.connected, what
    assert said[0][:1] == b"\xe0", "goodbye comes first: nothing else was said"


WRONG_OPTIONS: dict[str, dict[str, object]] = {
    "session expiry": {"session_expiry_s": -1},
    "session expiry beyond 32 bits": {"session_expiry_s": 1 << 32},
    "alias maximum": {"topic_alias_maximum": 70_000},
    "packet size": {"packet_bytes_max": 1 << 33},
    "keep alive": {"keep_alive_s": -1},
    "user properties": {"user_properties": {"a": 1}},
    "client id": {"client_id": "a\0b"},
}


@pytest.mark.parametrize("what", WRONG_OPTIONS)
def test_wrong_options_fail_when_the_client_is_made(what: str) -> None:
    with pytest.raises((QuantuMQTTError, ValueError, TypeError)):
        SyncClient(**WRONG_OPTIONS[what])  # type: ignore[arg-type]
