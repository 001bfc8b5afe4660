"""Unix sockets, IPv6, PROXY headers, and settings that stay where they were written."""

import socket
import stat
import struct
from pathlib import Path

import pytest

from quantumqtt.config import FlagLayer, settings_from
from quantumqtt.errors import TransportError
from tests.harness import packets
from tests.harness.live_broker import DEADLINE_S, LiveBroker
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.packets import ConnAck, Disconnect, Publish, Version
from tests.harness.ports import LOOPBACK
from tests.harness.waiting import wait_until
from tests.transports.conftest import StartBroker

LARGEST = packets.Key.MAXIMUM_PACKET_SIZE
V2_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


def over_unix(path: Path) -> MqttPeer:
    wire = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    wire.settimeout(DEADLINE_S)
    wire.connect(str(path))
    return MqttPeer(str(path), 0, Version.V5, over=wire)


def over_tcp(broker: LiveBroker, listener: int = 0) -> MqttPeer:
    one = broker.listeners[listener]
    return MqttPeer(one.host, one.port, Version.V5)


def v2_header(source: str, port: int, *, command: int = 1) -> bytes:
    addresses = socket.inet_aton(source) + socket.inet_aton("127.0.0.1")
    body = addresses + struct.pack("!HH", port, 1883)
    return V2_SIGNATURE + bytes([0x20 | command, 0x11]) + struct.pack("!H", len(body)) + body


def expect_refusals(broker: LiveBroker, reason: str, count: int) -> None:
    """Statistics are gathered now and then, so a count may follow the refusal it counts."""

    def counted() -> bool:
        return broker.statistics().refusals_total[reason] == count

    wait_until(counted, what=f"{count} refused, {reason}")


# --- Unix sockets --------------------------------------------------------------------------------


def test_unix_socket_serves_by_its_mode_and_goes_with_the_broker(tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"
    asked: dict[str, object] = {"listener": [{"url": f"unix://{path}", "socket_mode": "0640"}]}
    with LiveBroker(settings_from([FlagLayer(asked, spoken_by_caller=True)])) as broker:
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert broker.listeners[0].url == f"unix://{path}"
        with over_unix(path) as peer:
            peer.open("local")
            peer.subscribe("t")
            peer.publish("t", b"hello")
            assert peer.receive_a(Publish).payload == b"hello"
            event = broker.wait_event("session_opened", client_id="local")
            assert event.peer is not None
            assert event.peer.startswith("unix:pid=")
    assert not path.exists()


def test_socket_left_by_a_killed_broker_is_replaced(start: StartBroker, tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
        dead.listen(1)
    start(listen=[f"unix://{path}"])
    with over_unix(path) as peer:
        peer.open("after")


def test_what_belongs_to_others_is_left_alone(start: StartBroker, tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"
    first = start(listen=[f"unix://{path}"])
    with pytest.raises(TransportError, match="another program listens there") as caught:
        start(listen=[f"unix://{path}"])
    assert caught.value.hint
    file = tmp_path / "notes.txt"
    file.write_text("mine", encoding="utf-8")
    with pytest.raises(TransportError, match="no socket stands there"):
        start(listen=[f"unix://{file}"])
    assert file.read_text("utf-8") == "mine"
    with over_unix(path) as peer:
        peer.open("still served")
    assert first.statistics().connections_total >= 1


# --- IPv6 ----------------------------------------------------------------------------------------


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
def test_both_families_share_a_port_without_meeting(start: StartBroker) -> None:
    with socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        port = int(probe.getsockname()[1])
    broker = start(listen=[f"tcp://[::]:{port}", f"tcp://0.0.0.0:{port}"], allow_anonymous=True)
    assert broker.listeners[0].url == f"tcp://[::]:{port}"
    for number, host in enumerate(("::1", LOOPBACK)):
        with MqttPeer(host, port, Version.V5) as peer:
            peer.open(f"client-{number}")
            event = broker.wait_event("session_opened", client_id=f"client-{number}")
            assert event.listener == f"tcp-{number + 1}"


# --- settings per listener -----------------------------------------------------------------------


@pytest.mark.hardening("listener-options")
@pytest.mark.parametrize("shards", [1, 2])
def test_settings_of_one_listener_never_reach_another(start: StartBroker, shards: int) -> None:
    broker = start(
        shards=shards,
        listener=[
            {"url": f"tcp://{LOOPBACK}:0", "packet_bytes_max": 2_000},
            {"url": f"tcp://{LOOPBACK}:0", "allow_anonymous": False},
            {"url": f"tcp://{LOOPBACK}:0", "connections_max": 1},
        ],
    )
    for _ in range(4):  # whichever shard a connection lands on
        with over_tcp(broker, 0) as small, over_tcp(broker, 2) as large:
            assert dict(small.open("small").properties)[LARGEST] == 2_000
            whole = dict(large.open("large").properties)[LARGEST]
            assert whole == 16 * 1024 * 1024 + 128 * 1024
            large.subscribe("t")
            large.publish("t", b"x" * 5_000)
            assert len(large.receive_a(Publish).payload) == 5_000
            small.send_publish("t", b"x" * 5_000)
            assert small.receive_a(Disconnect).reason == 0x95
            with over_tcp(broker, 1) as nobody:
                nobody.send(packets.connect("nobody", version=Version.V5))
                assert nobody.receive_a(ConnAck).reason == 0x87
            with over_tcp(broker, 2) as second:
                second.expect_closed()
            large.leave()
        wait_until(lambda: broker.statistics().connections == 0, what="all are gone")
    expect_refusals(broker, "listener_full", 4)


@pytest.mark.requirement("NET-15")
@pytest.mark.hardening("one-address")
def test_one_address_gets_its_share_and_no_more(start: StartBroker) -> None:
    broker = start(listen=[f"tcp://{LOOPBACK}:0"], limits={"connections_per_address_max": 3})
    kept = [broker.client(f"kept-{number}") for number in range(3)]
    for _ in range(5):
        with broker.peer() as peer:
            peer.expect_closed()
    expect_refusals(broker, "address_full", 5)
    kept[0].leave()
    wait_until(lambda: broker.statistics().connections == 2, what="one has left")
    broker.client("comes after")
    kept[1].ping()


# --- PROXY ---------------------------------------------------------------------------------------


@pytest.mark.requirement("NET-03")
@pytest.mark.parametrize(
    ("version", "header"),
    [
        ("v1", b"PROXY TCP4 203.0.113.7 127.0.0.1 4711 1883\r\n"),
        ("v2", v2_header("203.0.113.7", 4711)),
        ("any", b"PROXY TCP4 203.0.113.7 127.0.0.1 4711 1883\r\n"),
        ("any", v2_header("203.0.113.7", 4711)),
    ],
)
def test_client_behind_a_proxy_has_its_own_address(
    start: StartBroker, version: str, header: bytes
) -> None:
    listener = {
        "url": f"tcp://{LOOPBACK}:0",
        "proxy_protocol": version,
        "proxy_trusted": ["127.0.0.0/8"],
    }
    broker = start(listener=[listener])
    for cut in (0, 1, 13, len(header)):
        with over_tcp(broker) as peer:
            peer.send(header[:cut])
            peer.send(header[cut:])
            client = f"behind-{cut}"
            peer.open(client)
            event = broker.wait_event("session_opened", client_id=client)
            assert event.peer == "203.0.113.7:4711"
            peer.subscribe("t")
            peer.publish("t", b"x" * 200_000)
            assert len(peer.receive_a(Publish).payload) == 200_000


@pytest.mark.requirement("NET-03")
def test_proxy_that_speaks_for_itself_keeps_its_address(start: StartBroker) -> None:
    listener = {
        "url": f"tcp://{LOOPBACK}:0",
        "proxy_protocol": "any",
        "proxy_trusted": [LOOPBACK],
    }
    broker = start(listener=[listener])
    for number, header in enumerate((b"PROXY UNKNOWN\r\n", v2_header("203.0.113.7", 1, command=0))):
        with over_tcp(broker) as peer:
            peer.send(header)
            peer.open(f"health-{number}")
            event = broker.wait_event("session_opened", client_id=f"health-{number}")
            assert event.peer is not None
            assert event.peer.startswith("127.0.0.1:")


@pytest.mark.requirement("NET-03")
@pytest.mark.hardening("proxy-header")
def test_untrusted_and_malformed_headers_end_the_connection(start: StartBroker) -> None:
    broker = start(
        listener=[
            {
                "url": f"tcp://{LOOPBACK}:0",
                "proxy_protocol": "v1",
                "proxy_trusted": ["10.0.0.0/8"],
            },
            {
                "url": f"tcp://{LOOPBACK}:0",
                "proxy_protocol": "v1",
                "proxy_trusted": [LOOPBACK],
            },
        ]
    )
    with over_tcp(broker, 0) as peer:
        peer.expect_closed()
    event = broker.wait_event("connection_refused", reason="proxy_untrusted")
    assert event.listener == "tcp-1"
    bad: list[bytes] = [
        packets.connect("no header", version=Version.V5),
        v2_header("203.0.113.7", 4711),
        b"PROXY TCP4 nonsense\r\n",
        b"PROXY UNKNOWN " + b"x" * 200,
    ]
    for header in bad:
        with over_tcp(broker, 1) as peer:
            peer.send(header)
            peer.expect_closed()
    expect_refusals(broker, "proxy_malformed", len(bad))


@pytest.mark.requirement("NET-03", "NET-15")
def test_addresses_are_counted_behind_the_proxy(start: StartBroker) -> None:
    listener = {
        "url": f"tcp://{LOOPBACK}:0",
        "proxy_protocol": "v1",
        "proxy_trusted": [LOOPBACK],
    }
    broker = start(listener=[listener], limits={"connections_per_address_max": 1})
    one = b"PROXY TCP4 203.0.113.7 127.0.0.1 4711 1883\r\n"
    with over_tcp(broker) as first, over_tcp(broker) as second, over_tcp(broker) as other:
        first.send(one)
        first.open("first")
        second.send(one)
        second.expect_closed()
        other.send(one.replace(b"203.0.113.7", b"203.0.113.8"))
        other.open("other")
    expect_refusals(broker, "address_full", 1)


@pytest.mark.requirement("NET-15")
@pytest.mark.hardening("silent-socket")
def test_header_that_drips_has_the_time_of_a_connect(start: StartBroker) -> None:
    listener = {
        "url": f"tcp://{LOOPBACK}:0",
        "proxy_protocol": "v1",
        "proxy_trusted": [LOOPBACK],
    }
    broker = start(listener=[listener], limits={"connect_timeout_ms": 300})
    with over_tcp(broker) as silent, over_tcp(broker) as dripping:
        dripping.send(b"PROXY TCP4 203.0.")
        silent.expect_closed()
        dripping.expect_closed()
    expect_refusals(broker, "handshake_timeout", 2)
