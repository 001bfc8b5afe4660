"""MQTT in WebSockets: the upgrade and its refusals, frames of every cut, lies, the way out."""

import socket
import struct

import pytest

from tests.harness import packets
from tests.harness.live_broker import DEADLINE_S, LiveBroker
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.packets import ConnAck, Publish, Version
from tests.harness.ports import LOOPBACK
from tests.harness.raw_peer import RawPeer
from tests.harness.waiting import wait_until
from tests.harness.websocket_peer import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    WebSocketWire,
    frame,
    read_answer,
    request,
)
from tests.transports.conftest import StartBroker

URL = f"ws://{LOOPBACK}:0/mqtt"


def dial(broker: LiveBroker) -> socket.socket:
    return socket.create_connection((LOOPBACK, broker.port), timeout=DEADLINE_S)


def peer_over(wire: WebSocketWire, version: Version = Version.V5) -> MqttPeer:
    # MqttPeer uses nothing of a socket but what the wire has too.
    return MqttPeer(LOOPBACK, 0, version, over=wire)  # type: ignore[arg-type]


@pytest.mark.requirement("NET-13")
@pytest.mark.hardening("websocket-framing")
@pytest.mark.parametrize("cut", [None, 1, 7, 1_000])
@pytest.mark.parametrize("shards", [1, 2])
def test_packets_may_span_frames_and_share_them(
    start: StartBroker, cut: int | None, shards: int
) -> None:
    broker = start(listen=[URL], shards=shards)
    with WebSocketWire(dial(broker), cut=cut) as first, WebSocketWire(dial(broker)) as second:
        sender, receiver = peer_over(first), peer_over(second, Version.V311)
        sender.open("sender")
        receiver.open("receiver")
        receiver.subscribe("t/#", options=2)
        for qos in (0, 1, 2):
            sender.publish("t/q", bytes([qos]), qos=qos)
            assert receiver.take().payload == bytes([qos])
        many = b"".join(
            packets.publish(f"t/{number}", b"x" * number, version=Version.V5)
            for number in range(50)
        )
        sender.send(many)
        assert [len(receiver.receive_a(Publish).payload) for _ in range(50)] == list(range(50))


@pytest.mark.requirement("NET-13")
def test_large_messages_pass_both_ways(start: StartBroker) -> None:
    broker = start(listen=[URL])
    payload = bytes(range(256)) * 12_000
    with WebSocketWire(dial(broker)) as wire:
        peer = peer_over(wire)
        peer.open("large")
        peer.subscribe("t", options=1)
        peer.send_publish("t", payload, qos=1)
        got = None
        for _ in range(2):
            received = peer.receive()
            got = received if isinstance(received, Publish) else got
        assert got is not None
        assert got.payload == payload


@pytest.mark.requirement("NET-13")
def test_pings_are_answered_between_the_halves_of_a_packet(start: StartBroker) -> None:
    broker = start(listen=[URL])
    connect = packets.connect("pings", version=Version.V5)
    with WebSocketWire(dial(broker)) as wire:
        wire.wire.sendall(
            frame(0x02, connect[:5]) + frame(PING, b"there?") + frame(0x80, connect[5:])
        )
        assert peer_over(wire).receive_a(ConnAck).reason == 0
        assert wire.controls == [(PONG, b"there?")]
        wire.wire.sendall(frame(PONG, b"not asked for"))
        peer_over(wire).ping()


@pytest.mark.requirement("NET-13")
def test_close_is_answered_with_its_code_and_the_will_goes_out(start: StartBroker) -> None:
    broker = start(listen=[URL, f"tcp://{LOOPBACK}:0"])
    plain = broker.listeners[1]
    with MqttPeer(plain.host, plain.port, Version.V5) as watcher:
        watcher.open("watcher")
        watcher.subscribe("gone")
        with WebSocketWire(dial(broker)) as wire:
            peer_over(wire).open("leaver", will=packets.Will("gone", b"without DISCONNECT"))
            wire.wire.sendall(frame(CLOSE, struct.pack("!H", 1000)))
            assert wire.read_control() == (CLOSE, struct.pack("!H", 1000))
            assert wire.recv(1) == b""
        assert watcher.receive_a(Publish).payload == b"without DISCONNECT"


def test_our_own_close_says_goodbye_in_both_tongues(start: StartBroker) -> None:
    broker = start(listen=[URL])
    with WebSocketWire(dial(broker)) as wire:
        peer = peer_over(wire)
        peer.open("polite")
        peer.send(packets.PACKET_DISCONNECT)
        assert wire.recv(1) == b""
        assert wire.controls == [(CLOSE, struct.pack("!H", 1000))]
    event = broker.wait_event("session_closed", client_id="polite")
    assert event.reason == "normal"


@pytest.mark.requirement("NET-13")
@pytest.mark.hardening("websocket-framing")
@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (bytes([BINARY, 2]) + b"ab", 1002),
        (frame(0x81, b"text"), 1003),
        (frame(0xC2, b"compressed"), 1002),
        (frame(0x80, b"continues nothing"), 1002),
        (bytes([BINARY, 0xFF]) + struct.pack("!Q", 1 << 63) + b"mask", 1002),
        (bytes([PING, 0xFE]) + struct.pack("!H", 126) + b"mask", 1002),
    ],
    # Masks are random, so the frames themselves cannot name the tests.
    ids=["unmasked", "text", "compressed", "continuation", "endless", "long ping"],
)
def test_lies_close_with_their_code_and_are_counted(
    start: StartBroker, bad: bytes, code: int
) -> None:
    broker = start(listen=[URL])
    with WebSocketWire(dial(broker)) as wire:
        peer_over(wire).open("liar")
        wire.wire.sendall(bad)
        assert wire.read_control() == (CLOSE, struct.pack("!H", code))
        assert wire.recv(1) == b""
    event = broker.wait_event("session_closed", client_id="liar")
    assert event.reason == "websocket_protocol"


@pytest.mark.requirement("NET-13")
@pytest.mark.parametrize(
    ("change", "to", "status", "why"),
    [
        ("GET", "POST", 405, "begins with GET"),
        ("/mqtt", "/other", 404, "no WebSocket at this path"),
        ("Upgrade: websocket\r\n", "", 426, "speak WebSocket"),
        ("Version: 13", "Version: 8", 426, "not 13"),
        ("Protocol: mqtt", "Protocol: chat", 400, "neither mqtt nor mqttv3.1"),
        ("Host: localhost\r\n", "", 400, "Host"),
        ("HTTP/1.1", "HTTP/1.0", 400, "HTTP/1.1"),
    ],
)
def test_refused_requests_are_told_why(
    start: StartBroker, change: str, to: str, status: int, why: str
) -> None:
    broker = start(listen=[URL])
    with RawPeer(LOOPBACK, broker.port) as peer:
        peer.send(request().decode().replace(change, to).encode())
        answered, head = read_answer(peer._socket)
        assert answered == status
        length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
        assert why in peer.receive_exactly(length).decode()
        peer.expect_closed()
    broker.wait_event("connection_refused", reason="websocket_upgrade_refused")


@pytest.mark.requirement("NET-13")
def test_pages_of_other_origins_are_kept_out(start: StartBroker) -> None:
    broker = start(listener=[{"url": URL, "origins": ["https://house.example"]}])
    for origin, status in (
        ("Origin: https://house.example\r\n", 101),
        ("Origin: https://elsewhere.example\r\n", 403),
        ("", 101),
    ):
        with dial(broker) as wire:
            wire.sendall(request(origin))
            assert read_answer(wire)[0] == status


@pytest.mark.requirement("NET-13", "NET-15")
@pytest.mark.hardening("websocket-handshake")
def test_headers_are_bounded_in_size_number_and_time(start: StartBroker) -> None:
    broker = start(listen=[URL], limits={"connect_timeout_ms": 400})
    for flood in (f"X: {'y' * 9_000}\r\n", "X: y\r\n" * 70):
        with dial(broker) as wire:
            wire.sendall(request(flood))
            assert read_answer(wire)[0] == 431
    with RawPeer(LOOPBACK, broker.port) as dripping:
        dripping.send(request()[:-2])
        dripping.expect_closed()
    broker.wait_event("connection_refused", reason="handshake_timeout")
    with dial(broker) as wire:
        extended = request("Sec-WebSocket-Extensions: permessage-deflate\r\n")
        wire.sendall(extended)
        status, head = read_answer(wire)
        assert status == 101
        assert "extensions" not in head.lower(), "compression is never agreed upon"
    wait_until(lambda: broker.statistics().connections == 0, what="all are gone")


def test_drain_ends_websockets_and_half_open_ones(start: StartBroker) -> None:
    broker = start(listen=[URL])
    with WebSocketWire(dial(broker)) as wire, RawPeer(LOOPBACK, broker.port) as half:
        peer_over(wire).open("drained")
        half.send("474554")
        broker.drain()
        assert peer_over(wire).receive_a(packets.Disconnect).reason == 0x8B
        assert wire.recv(1) == b""
        half.expect_closed()
