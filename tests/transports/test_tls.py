"""TLS: who is let in by certificate, what is refused and under which name, reload, resumption."""

import contextlib
import socket
import ssl
from pathlib import Path

import pytest

from quantumqtt.config import FlagLayer, settings_from
from quantumqtt.errors import ConfigError
from quantumqtt.node import load_contexts
from tests.harness import packets
from tests.harness.certificates import Authority, Credentials
from tests.harness.live_broker import DEADLINE_S, LiveBroker
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.packets import ConnAck, Publish, Version, Will
from tests.harness.ports import LOOPBACK
from tests.harness.raw_peer import RawPeer
from tests.harness.waiting import wait_until
from tests.harness.websocket_peer import WebSocketWire
from tests.transports.conftest import StartBroker

TLS = f"tls://{LOOPBACK}:0"
Keys = dict[str, object]


def shown(server: Credentials, **more: object) -> Keys:
    """A listener's keys for a certificate."""
    return {"url": TLS, "certificate": server.certificate, "key": server.key, **more}


def demanding(authority: Authority, **more: object) -> Keys:
    """The keys of a listener that wants certificates of clients."""
    more = {"client_ca": authority.file, "require_client_certificate": True, **more}
    return shown(authority.server(), **more)


def secure(
    broker: LiveBroker,
    context: ssl.SSLContext,
    *,
    listener: int = 0,
    session: ssl.SSLSession | None = None,
) -> ssl.SSLSocket:
    """Connect and shake hands."""
    port = broker.listeners[listener].port
    wire = socket.create_connection((LOOPBACK, port), timeout=DEADLINE_S)
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        return context.wrap_socket(wire, server_hostname="localhost", session=session)
    except BaseException:
        wire.close()
        raise


def peer_over(wire: ssl.SSLSocket, version: Version = Version.V5) -> MqttPeer:
    return MqttPeer(LOOPBACK, 0, version, over=wire)


def knock(broker: LiveBroker, context: ssl.SSLContext, listener: int = 0) -> None:
    """Shake hands and wait for an answer; raises when the broker wants none of it.

    In TLS 1.3 a client learns only when it reads that what it showed was bad.
    """
    with secure(broker, context, listener=listener) as wire:
        wire.sendall(packets.connect("x", version=Version.V5))
        if wire.recv(1) == b"":
            raise ConnectionResetError


def expect_refused(broker: LiveBroker, context: ssl.SSLContext, reason: str) -> None:
    """Knock in vain, for a reason that is counted and told."""
    before = broker.statistics().refusals_total[reason]
    with pytest.raises((ssl.SSLError, ConnectionError)):
        knock(broker, context)
    wait_until(
        lambda: broker.statistics().refusals_total[reason] == before + 1, what=f"{reason} counted"
    )
    broker.wait_event("connection_refused", reason=reason)


@pytest.mark.requirement("NET-01")
@pytest.mark.parametrize("shards", [1, 2])
def test_messages_of_every_qos_and_size_cross_connections(
    start: StartBroker, authority: Authority, shards: int
) -> None:
    broker = start(
        shards=shards, listener=[shown(authority.server())], listen=[f"tcp://{LOOPBACK}:0"]
    )
    context = authority.context(alpn=("mqtt",))
    with (
        secure(broker, context, listener=1) as first,
        secure(broker, context, listener=1) as second,
        broker.peer(Version.V311) as plain,
    ):
        assert first.version() == "TLSv1.3"
        assert first.selected_alpn_protocol() == "mqtt"
        sender, receiver = peer_over(first), peer_over(second)
        for name, peer in (("s", sender), ("r", receiver), ("p", plain)):
            peer.open(name)
        for peer in (receiver, plain):
            peer.subscribe("t/#", options=2)
        for size in (0, 1, 1_000, 16_384, 16_385, 400_000):
            payload = bytes(size)
            for qos in (0, 1, 2):
                sender.publish("t/x", payload, qos=qos)
                assert receiver.take().payload == payload
                assert plain.take().payload == payload
        receiver.subscribe("back", options=1)
        plain.publish("back", b"from plain", qos=1)
        assert receiver.take().payload == b"from plain"


@pytest.mark.requirement("SEC-04", "NET-01")
def test_only_tls_13_and_its_strong_suites_unless_asked(
    start: StartBroker, authority: Authority
) -> None:
    server = authority.server()
    broker = start(
        listener=[shown(server), shown(server, tls_min_version="1.2")],
    )
    old = authority.context(newest=ssl.TLSVersion.TLSv1_2)
    expect_refused(broker, old, "tls_handshake")
    with secure(broker, authority.context()) as wire:
        suite = wire.cipher()
        assert suite is not None
        assert suite[0] in {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"}
    chacha = authority.context(newest=ssl.TLSVersion.TLSv1_2)
    chacha.set_ciphers("ECDHE-ECDSA-CHACHA20-POLY1305")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        secure(broker, chacha, listener=1)
    with secure(broker, old, listener=1) as wire:
        assert wire.version() == "TLSv1.2"
        peer_over(wire).open("old")


def test_foreign_protocol_names_are_refused(start: StartBroker, authority: Authority) -> None:
    broker = start(listener=[shown(authority.server())])
    expect_refused(broker, authority.context(alpn=("http/1.1",)), "tls_handshake")
    with secure(broker, authority.context()) as wire:
        peer_over(wire).open("names no protocol")


@pytest.mark.hardening("foreign-protocol")
def test_the_wrong_protocol_is_closed_and_counted(start: StartBroker, authority: Authority) -> None:
    broker = start(listener=[shown(authority.server())], listen=[f"tcp://{LOOPBACK}:0"])
    plain, encrypted = broker.listeners
    for bad in (packets.connect("x", version=Version.V5), b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64):
        with RawPeer(encrypted.host, encrypted.port) as peer:
            peer.send(bad)
            peer.expect_closed()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        secure(broker, authority.context(), listener=0)
    counted = broker.statistics
    wait_until(lambda: counted().refusals_total["not_tls"] == 3, what="plaintext on TLS")
    wait_until(lambda: counted().refusals_total["tls_on_plain_listener"] == 1, what="and back")
    assert plain.scheme == "tcp"


# --- certificates of clients ---------------------------------------------------------------------


@pytest.mark.requirement("SEC-01")
@pytest.mark.parametrize(
    ("part", "user"),
    [("cn", "pump-1"), ("san", "pump@plant.example"), ("dn", "CN=pump-1,C=AT"), ("off", None)],
)
def test_certificate_names_the_user_without_a_password(
    start: StartBroker, authority: Authority, tmp_path: Path, part: str, user: str | None
) -> None:
    rules = tmp_path / "rules"
    rules.write_text("pattern readwrite %u/#\npattern read open/#\n", encoding="utf-8")
    broker = start(
        listener=[demanding(authority, certificate_user=part, allow_anonymous=user is None)],
        acl_file=rules,
    )
    client = authority.client("pump-1", mail="pump@plant.example")
    with secure(broker, authority.context(client)) as wire:
        peer = peer_over(wire)
        # What CONNECT says of itself is not who the certificate says it is.
        peer.open("device", user_name="admin", password=b"guess")
        event = broker.wait_event("session_opened", client_id="device")
        assert event.user_name == user
        codes = peer.subscribe(f"{user}/in", "admin/in", "open/x")
        assert codes == ((0, 0x87, 0) if user else (0x87, 0x87, 0))


@pytest.mark.requirement("SEC-11")
@pytest.mark.parametrize(("part", "own"), [("cn", "pump-1"), ("san", "pump@plant.example")])
def test_client_id_may_be_bound_to_the_certificate(
    start: StartBroker, authority: Authority, part: str, own: str
) -> None:
    broker = start(
        listener=[demanding(authority, certificate_user=part)], client_id_rule="user_name"
    )
    context = authority.context(authority.client("pump-1", mail="pump@plant.example"))
    with secure(broker, context) as wire:
        peer = peer_over(wire)
        # Neither its id nor its user name makes it somebody else.
        peer.send(packets.connect("pump-2", version=Version.V5, user_name="pump-2"))
        assert peer.receive_a(ConnAck).reason == 0x85
    with secure(broker, context) as wire:
        peer_over(wire).open(own)


@pytest.mark.requirement("SEC-01")
def test_certificates_that_do_not_count_are_refused_by_name(
    start: StartBroker, own_authority: Authority, tmp_path: Path
) -> None:
    authority = own_authority
    revoked = authority.client("revoked")
    crl = authority.revoke(revoked)
    broker = start(listener=[demanding(authority, crl=crl)])
    foreign_folder = tmp_path / "foreign"
    foreign_folder.mkdir()
    foreign = Authority(foreign_folder, "foreign").client("pump-1")
    for client, reason in (
        (None, "certificate_missing"),
        (authority.client("old", expired=True), "certificate_expired"),
        (revoked, "certificate_revoked"),
        (foreign, "certificate_untrusted"),
        (authority.server(), "certificate_untrusted"),
        (authority.client(None), "certificate_unnamed"),
        (authority.client("pump\x001"), "certificate_unnamed"),
    ):
        expect_refused(broker, authority.context(client), reason)
    with secure(broker, authority.context(authority.client("pump-1"))) as wire:
        peer_over(wire).open("good")


def test_certificate_may_be_optional(start: StartBroker, authority: Authority) -> None:
    keys = demanding(authority, require_client_certificate=False, allow_anonymous=False)
    broker = start(listener=[keys])
    with secure(broker, authority.context(authority.client("pump-1"))) as wire:
        peer_over(wire).open("with")
    with secure(broker, authority.context()) as wire:
        peer = peer_over(wire)
        peer.send(packets.connect("without", version=Version.V5))
        assert peer.receive_a(ConnAck).reason == 0x87


@pytest.mark.hardening("listener-options")
def test_authorities_of_one_listener_open_no_other(
    start: StartBroker, authority: Authority, own_authority: Authority
) -> None:
    server = authority.server()
    mine = demanding(authority)
    theirs = {**mine, "client_ca": own_authority.file}
    broker = start(
        listener=[mine, theirs],
        tls={"certificate": server.certificate, "key": server.key, "client_ca": authority.file},
    )
    context = authority.context(authority.client("pump-1"))
    with secure(broker, context, listener=0) as wire:
        peer_over(wire).open("mine")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        knock(broker, context, listener=1)


# --- reload and resumption -----------------------------------------------------------------------


def exchange(wire: ssl.SSLSocket, client_id: str) -> ssl.SSLSession:
    """Open a session, which also lets the ticket arrive."""
    peer_over(wire).open(client_id)
    peer_over(wire).ping()
    assert wire.session is not None
    return wire.session


def test_sessions_are_resumed_by_ticket(start: StartBroker, authority: Authority) -> None:
    broker = start(listener=[demanding(authority)])
    context = authority.context(authority.client("pump-1"))
    with secure(broker, context) as wire:
        session = exchange(wire, "first")
        assert not wire.session_reused
    with secure(broker, context, session=session) as wire:
        exchange(wire, "again")
        assert wire.session_reused
        event = broker.wait_event("session_opened", client_id="again")
        assert event.user_name == "pump-1", "a ticket remembers who it was made for"
    statistics = broker.statistics()
    assert (statistics.tls_handshakes_total, statistics.tls_resumptions_total) == (2, 1)


@pytest.mark.requirement("NET-01")
@pytest.mark.hardening("stale-certificate")
def test_reload_takes_new_files_and_keeps_clients(
    start: StartBroker, own_authority: Authority
) -> None:
    authority = own_authority
    crl = authority.revoke()
    server, client = authority.server(), authority.client("pump-1")
    keys = demanding(authority, crl=crl, certificate=server.certificate, key=server.key)
    broker = start(listener=[keys])
    context = authority.context(client)
    with secure(broker, context) as kept:
        session = exchange(kept, "kept")
        before = kept.getpeercert(binary_form=True)
        renewed = authority.server()
        server.certificate.write_bytes(renewed.certificate.read_bytes())
        server.key.write_bytes(renewed.key.read_bytes())
        broker.reload()
        with secure(broker, context) as fresh:
            exchange(fresh, "fresh")
            assert fresh.getpeercert(binary_form=True) != before
        authority.revoke(client)
        broker.reload()
        expect_refused(broker, context, "certificate_revoked")
        # An old ticket is no way past the new list.
        with (
            contextlib.suppress(ssl.SSLError, ConnectionError),
            secure(broker, context, session=session) as wire,
        ):
            wire.sendall(packets.connect("past", version=Version.V5))
            assert wire.recv(1) == b""


@pytest.mark.requirement("SEC-01", "WILL-07")
@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_who_is_revoked_while_connected_is_told_and_closed_and_leaves_no_will(
    start: StartBroker, own_authority: Authority, version: Version
) -> None:
    authority = own_authority
    crl = authority.revoke()
    good, bad = authority.client("good"), authority.client("bad")
    broker = start(listener=[demanding(authority, crl=crl)])
    with (
        secure(broker, authority.context(good)) as watching,
        secure(broker, authority.context(bad)) as wire,
    ):
        watcher = peer_over(watching)
        watcher.open("watcher")
        watcher.subscribe("#")
        peer = peer_over(wire, version)
        peer.open("bad", will=Will("last", b"words"))
        broker.reload()
        peer.ping()
        authority.revoke(bad)
        broker.reload()
        peer.expect_end(0x87)
        wait_until(
            lambda: broker.statistics().closes_total["certificate_revoked"] == 1,
            what="the end is counted",
        )
        watcher.publish("marker", qos=0)
        assert watcher.take().topic == "marker"
    closed = [event for event in broker.events if event.kind == "session_closed"]
    assert [event.client_id for event in closed if event.reason == "certificate_revoked"] == ["bad"]


@pytest.mark.requirement("SEC-01")
def test_an_authority_in_between_can_be_revoked_too(
    start: StartBroker, own_authority: Authority
) -> None:
    authority = own_authority
    between = authority.between("between")
    client = between.client("pump-1")
    client.certificate.write_bytes(client.certificate.read_bytes() + between.file.read_bytes())
    lists = authority.crl_file
    issued = between.revoke().read_bytes()
    authority.revoke()
    lists.write_bytes(lists.read_bytes() + issued)
    broker = start(listener=[demanding(authority, crl=lists)])
    with secure(broker, authority.context(client)) as wire:
        peer = peer_over(wire)
        peer.open("pump-1")
        authority.revoke(between.own)
        lists.write_bytes(lists.read_bytes() + issued)
        broker.reload()
        peer.expect_end(0x87)
    expect_refused(broker, authority.context(client), "certificate_revoked")


@pytest.mark.hardening("stale-certificate")
def test_bad_files_keep_the_old_ones_and_are_named(
    start: StartBroker, own_authority: Authority
) -> None:
    authority = own_authority
    server = authority.server()
    crl = authority.revoke()
    client = authority.client("pump-1")
    good = server.key.read_bytes()
    broker = start(
        listener=[demanding(authority, crl=crl, certificate=server.certificate, key=server.key)]
    )
    for file, content, complaint in (
        (server.key, authority.server().key.read_bytes(), "does not belong to the certificate"),
        (server.key, b"", "holds no private key"),
        (server.certificate, b"-----BEGIN CERTIFICATE-----\nxx", "certificate = "),
        (authority.file, b"nothing", "client_ca = "),
        (crl, b"nothing", "crl = "),
    ):
        kept = file.read_bytes()
        file.write_bytes(content)
        with pytest.raises(ConfigError, match=complaint) as caught:
            broker.reload()
        assert str(file) in str(caught.value)
        assert caught.value.hint
        file.write_bytes(kept)
        # `context` reads the authority's file, which is whole again.
        with secure(broker, authority.context(client)) as wire:
            exchange(wire, "still served")
    assert server.key.read_bytes() == good
    authority.revoke(expired=True)
    broker.reload()
    expect_refused(broker, authority.context(client), "certificate_revoked")


def test_encrypted_key_is_named_with_its_remedy(authority: Authority, tmp_path: Path) -> None:
    server = authority.server()
    key = tmp_path / "encrypted.key"
    text = server.key.read_text("ascii").replace(" PRIVATE", " ENCRYPTED PRIVATE")
    key.write_text(text, encoding="ascii")
    settings = settings_from(
        [FlagLayer({"listener": [shown(server, key=key)]}, spoken_by_caller=True)]
    )
    with pytest.raises(ConfigError, match="encrypted with a passphrase") as caught:
        load_contexts(settings)
    assert "openssl pkey" in (caught.value.hint or "")


# --- hostile and slow peers ----------------------------------------------------------------------


@pytest.mark.requirement("NET-15")
@pytest.mark.hardening("silent-socket")
def test_handshake_has_the_time_of_a_connect(start: StartBroker, authority: Authority) -> None:
    broker = start(listener=[shown(authority.server())], limits={"connect_timeout_ms": 500})
    port = broker.port
    with RawPeer(LOOPBACK, port) as silent, RawPeer(LOOPBACK, port) as dripping:
        dripping.send(b"\x16\x03\x01\x02\x00\x01")
        silent.expect_closed()
        dripping.expect_closed()
    counted = broker.statistics
    wait_until(lambda: counted().refusals_total["handshake_timeout"] == 2, what="both counted")
    with secure(broker, authority.context()) as wire:
        assert wire.recv(1) == b"", "a handshake buys no time for CONNECT"


def test_garbage_after_the_handshake_is_a_typed_close(
    start: StartBroker, authority: Authority
) -> None:
    broker = start(listener=[shown(authority.server())])
    with secure(broker, authority.context()) as wire:
        peer_over(wire).open("broken")
        with socket.socket(fileno=wire.detach()) as bare:
            bare.sendall(b"\x17\x03\x03\x00\x20" + b"\0" * 32)
            event = broker.wait_event("session_closed", client_id="broken")
            assert event.reason == "tls_broken"


def test_slow_reader_is_bounded_and_others_are_served(
    start: StartBroker, authority: Authority
) -> None:
    limits = {
        "out_buffer_bytes_soft": 64 * 1024,
        "out_buffer_bytes_max": 256 * 1024,
        "packet_bytes_max": 128 * 1024,
    }
    broker = start(listener=[shown(authority.server())], limits=limits)
    context = authority.context()
    with (
        secure(broker, context) as slow_wire,
        secure(broker, context) as quick_wire,
        secure(broker, context) as sender_wire,
    ):
        slow, quick, sender = (peer_over(one) for one in (slow_wire, quick_wire, sender_wire))
        for name, peer in (("slow", slow), ("quick", quick), ("sender", sender)):
            peer.open(name)
        slow.subscribe("t")
        quick.subscribe("t")
        payload = b"x" * 50_000
        for _ in range(1_000):
            sender.send_publish("t", payload)
            assert quick.receive_a(Publish).payload == payload
            if broker.statistics().drops_total["slow_subscriber"]:
                break
        else:
            pytest.fail("nothing was dropped in 1,000 messages")
        slow.send(packets.PACKET_PINGREQ)
        while isinstance(slow.receive(), Publish):
            pass  # what it had coming, in order, then the answer


@pytest.mark.requirement("NET-13")
def test_secure_websocket_carries_both_layers(start: StartBroker, authority: Authority) -> None:
    keys = demanding(authority, url=f"wss://{LOOPBACK}:0/mqtt")
    broker = start(listener=[keys])
    context = authority.context(authority.client("page"), alpn=("http/1.1",))
    with secure(broker, context) as first, secure(broker, context) as second:
        wires = [WebSocketWire(one, cut=cut) for one, cut in ((first, 900), (second, None))]
        sender, receiver = (
            MqttPeer(LOOPBACK, 0, Version.V5, over=wire)  # type: ignore[arg-type]
            for wire in wires
        )
        sender.open("sender")
        receiver.open("receiver")
        assert broker.wait_event("session_opened", client_id="sender").user_name == "page"
        receiver.subscribe("t", options=1)
        sender.publish("t", bytes(300_000), qos=1)
        assert receiver.take().payload == bytes(300_000)
        receiver.send(packets.PACKET_DISCONNECT)
        assert wires[1].recv(1) == b""
        assert wires[1].controls[0][1] == b"\x03\xe8"


def test_closing_tls_cleanly_is_peer_closed(start: StartBroker, authority: Authority) -> None:
    broker = start(listener=[shown(authority.server())])
    with secure(broker, authority.context()) as wire:
        peer_over(wire).open("leaver")
        wire.unwrap().close()
    assert broker.wait_event("session_closed", client_id="leaver").reason == "peer_closed"
    with secure(broker, authority.context()) as wire:
        peer = peer_over(wire)
        peer.open("last words")
        # DISCONNECT and the end of TLS in one breath: it has said goodbye, its will stays.
        peer.send(packets.PACKET_DISCONNECT)
        with contextlib.suppress(OSError):
            wire.unwrap().close()
    assert broker.wait_event("session_closed", client_id="last words").reason == "normal"
