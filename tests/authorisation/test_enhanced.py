"""Enhanced authentication: SCRAM-SHA-256 for users of the password file, and broken rules."""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

import pytest

from quantumqtt.client import Client
from quantumqtt.client.auth import ScramSha256
from quantumqtt.errors import NotAuthorized
from quantumqtt.mqtt import ReasonCode
from quantumqtt.policy import AuthRequest, AuthStep, Exchange, Hooks, Mechanism
from quantumqtt.policy.passwords import hash_password
from tests.authorisation.conftest import Files, StartBroker
from tests.harness import packets
from tests.harness.live_broker import LiveBroker
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.packets import ConnAck, Disconnect, Key, Properties, Publish, Version, Will
from tests.harness.packets import value as value_of

METHOD: Final = "SCRAM-SHA-256"
GO_ON: Final = 0x18
AGAIN: Final = 0x19


def with_users(files: Files, *names: str) -> None:
    """Keep SCRAM verifiers of users whose password is their name, and one user without."""
    lines = [f"{n}:{hash_password(n.encode(), 'scram-sha-256', iterations=4096)}\n" for n in names]
    lines.append(f"plain:{hash_password(b'plain', 'sha512')}\n")
    files.passwords.write_text("".join(lines), encoding="utf-8")


def facts(data: bytes | None, method: str = METHOD) -> Properties:
    """Spell method and data."""
    spelled: Properties = ((Key.AUTHENTICATION_METHOD, method),)
    return spelled if data is None else (*spelled, (Key.AUTHENTICATION_DATA, data))


def begin(
    peer: MqttPeer, data: bytes | None, *, client_id: str = "c", will: Will | None = None
) -> None:
    """Send a CONNECT that names the method."""
    peer.send(packets.connect(client_id, version=Version.V5, will=will, properties=facts(data)))


def data_of(properties: Properties) -> bytes:
    """Read the authentication data."""
    assert value_of(properties, Key.AUTHENTICATION_METHOD) == METHOD
    data = value_of(properties, Key.AUTHENTICATION_DATA)
    assert isinstance(data, bytes)
    return data


def challenge_of(peer: MqttPeer) -> bytes:
    """Read an AUTH that asks to go on."""
    auth = peer.receive_a(packets.Auth)
    assert auth.reason == GO_ON
    return data_of(auth.properties)


def come_in(
    broker: LiveBroker, name: str, *, client_id: str = "c", will: Will | None = None
) -> MqttPeer:
    """Authenticate by hand, both proofs checked."""
    peer, scram = broker.peer(), ScramSha256(name, name)
    begin(peer, scram.start(), client_id=client_id, will=will)
    peer.send(packets.auth(GO_ON, facts(scram.answer(challenge_of(peer)))))
    connack = peer.receive_a(ConnAck)
    assert connack.reason == 0
    scram.finish(data_of(connack.properties))
    return peer


@pytest.mark.requirement("WIRE-02", "WIRE-11")
@pytest.mark.clause("MQTT-4.12.0-1", "MQTT-4.12.0-4", "MQTT-4.12.0-5")
def test_both_sides_prove_what_they_know(files: Files, start: StartBroker) -> None:
    with_users(files, "ada")
    broker = start(allow_anonymous=False)
    peer = come_in(broker, "ada")
    peer.ping()
    event = broker.wait_event("session_opened", client_id="c")
    assert event.user_name == "ada"


@pytest.mark.requirement("WIRE-02", "SEC-17")
def test_our_client_comes_in_and_authenticates_again(files: Files, start: StartBroker) -> None:
    with_users(files, "ada")
    broker = start(allow_anonymous=False)

    async def talk() -> None:
        scram = ScramSha256("ada", "ada")
        async with Client(f"mqtt://127.0.0.1:{broker.port}", authenticator=scram) as client:
            await client.publish("t", b"x", qos=1)
            client.reauthenticate()
            await client.publish("t", b"y", qos=1)

    asyncio.run(talk())


@pytest.mark.requirement("SEC-17")
def test_our_client_is_refused_with_a_wrong_password(files: Files, start: StartBroker) -> None:
    with_users(files, "ada")
    broker = start(allow_anonymous=False)

    async def talk(name: str, password: str) -> None:
        scram = ScramSha256(name, password)
        async with Client(f"mqtt://127.0.0.1:{broker.port}", authenticator=scram, reconnect=None):
            pass

    for name, password in (("ada", "wrong"), ("nobody", "nobody"), ("plain", "plain")):
        with pytest.raises(NotAuthorized):
            asyncio.run(talk(name, password))


def test_a_verifier_checks_plain_passwords_too(files: Files, start: StartBroker) -> None:
    with_users(files, "ada")
    broker = start(allow_anonymous=False)
    assert broker.knock("a", "ada", b"ada") == 0
    assert broker.knock("a", "ada", b"eve") == 0x86


@pytest.mark.requirement("WIRE-02")
@pytest.mark.clause("MQTT-4.12.0-1")
@pytest.mark.parametrize("method", ["SCRAM-SHA-1", "scram-sha-256", "PLAIN", ""])
def test_a_method_nobody_knows_is_refused(files: Files, start: StartBroker, method: str) -> None:
    with_users(files, "ada")
    peer = start(allow_anonymous=False).peer()
    peer.send(packets.connect("c", version=Version.V5, properties=facts(b"n,,n=ada,r=x", method)))
    assert peer.receive_a(ConnAck).reason == 0x8C
    peer.expect_closed()


@pytest.mark.requirement("WIRE-02", "WIRE-11")
@pytest.mark.clause("MQTT-3.1.2-30", "MQTT-4.12.0-3")
@pytest.mark.parametrize(
    ("reason", "method", "expected"),
    [(GO_ON, "OTHER", 0x8C), (AGAIN, METHOD, 0x82), (0, METHOD, 0x82)],
)
def test_an_answer_that_is_none_is_refused(
    files: Files, start: StartBroker, reason: int, method: str, expected: int
) -> None:
    with_users(files, "ada")
    peer, scram = start(allow_anonymous=False).peer(), ScramSha256("ada", "ada")
    begin(peer, scram.start())
    proof = scram.answer(challenge_of(peer))
    peer.send(packets.auth(reason, facts(proof, method)))
    assert peer.receive_a(ConnAck).reason == expected
    peer.expect_closed()


@pytest.mark.requirement("WIRE-11")
@pytest.mark.clause("MQTT-3.1.2-30")
def test_nothing_but_auth_may_come_before_connack(files: Files, start: StartBroker) -> None:
    with_users(files, "ada")
    broker = start(allow_anonymous=False)
    for packet in (packets.PACKET_PINGREQ, packets.publish("t", b"x", version=Version.V5)):
        peer = broker.peer()
        begin(peer, ScramSha256("ada", "ada").start())
        challenge_of(peer)
        peer.send(packet)
        assert peer.receive_a(ConnAck).reason == 0x82
        peer.expect_closed()
    peer = broker.peer()
    begin(peer, ScramSha256("ada", "ada").start())
    challenge_of(peer)
    peer.send(packets.PACKET_DISCONNECT)
    peer.expect_closed()


@pytest.mark.requirement("WIRE-11")
def test_a_client_that_does_not_go_on_is_not_waited_for(files: Files, start: StartBroker) -> None:
    with_users(files, "ada")
    peer = start(allow_anonymous=False, limits={"connect_timeout_ms": 200}).peer()
    begin(peer, ScramSha256("ada", "ada").start())
    challenge_of(peer)
    assert peer.receive_a(ConnAck).reason == 0x87
    peer.expect_closed()


@pytest.mark.requirement("SEC-17")
def test_strangers_see_the_same_as_users(files: Files, start: StartBroker) -> None:
    """A challenge has the same form for everybody, and the same salt each time it is asked for."""
    with_users(files, "ada")
    broker = start(allow_anonymous=False)

    def salt_of(name: str) -> str:
        peer = broker.peer()
        begin(peer, ScramSha256(name, "x").start())
        challenge = challenge_of(peer).decode()
        peer.close()
        return challenge.split(",")[1]

    salts = {name: salt_of(name) for name in ("ada", "nobody", "plain")}
    assert len({len(salt) for salt in salts.values()}) == 1
    assert len(set(salts.values())) == 3
    assert {name: salt_of(name) for name in salts} == salts


@pytest.mark.requirement("WIRE-02")
@pytest.mark.parametrize(
    "first",
    [
        None, b"", b"\xff", b"n,,", b"n,,n=ada", b"n,,r=x,n=ada", b"p=tls-unique,,n=ada,r=x",
        b"n,a=eve,n=ada,r=x", b"n,,m=ext,n=ada,r=x", b"n,,n=a=ada,r=x", b"n,,n=,r=x",
        b"n,,n=ada,r=", b"n,,n=ada,r=\x7f", b"q,,n=ada,r=x",
    ],
)  # fmt: skip
def test_a_first_message_that_is_none_is_refused(
    files: Files, start: StartBroker, first: bytes | None
) -> None:
    with_users(files, "ada")
    peer = start(allow_anonymous=False).peer()
    begin(peer, first)
    assert peer.receive_a(ConnAck).reason == 0x87
    peer.expect_closed()


def proof_for(challenge: str, first_bare: str, binding: str, nonce: str) -> bytes:
    """Compute the last message of a client whose name and password are `ada`, from the RFC."""
    fields = dict(part.split("=", 1) for part in challenge.split(","))
    salted = hashlib.pbkdf2_hmac("sha256", b"ada", base64.b64decode(fields["s"]), int(fields["i"]))
    without = f"c={binding},r={nonce}"
    signed = f"{first_bare},{challenge},{without}".encode()
    key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))
    return f"{without},p={proof.decode()}".encode()


@pytest.mark.requirement("SEC-17")
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("", 0), ("binding", 0x87), ("nonce", 0x87), ("proof", 0x87), ("short", 0x87),
        ("none", 0x87),
    ],
)  # fmt: skip
def test_a_last_message_is_taken_only_as_it_must_be(
    files: Files, start: StartBroker, damage: str, reason: int
) -> None:
    with_users(files, "ada")
    peer = start(allow_anonymous=False).peer()
    begin(peer, b"n,,n=ada,r=mine")
    challenge = challenge_of(peer).decode()
    nonce = challenge.split(",")[0].removeprefix("r=")
    assert nonce.startswith("mine")
    binding = "eSws" if damage == "binding" else "biws"
    last = proof_for(challenge, "n=ada,r=mine", binding, nonce + "x" * (damage == "nonce"))
    if damage == "proof":
        last = last[:-8] + b"AAAAAAA="
    elif damage == "short":
        last = last.partition(b",p=")[0] + b",p=AAAA"
    elif damage == "none":
        last = last.partition(b",p=")[0]
    peer.send(packets.auth(GO_ON, facts(last)))
    assert peer.receive_a(ConnAck).reason == reason


@pytest.mark.requirement("WIRE-02")
@pytest.mark.clause("MQTT-4.12.1-1", "MQTT-4.12.1-2")
def test_messages_flow_while_a_client_authenticates_again(files: Files, start: StartBroker) -> None:
    with_users(files, "ada")
    broker = start()
    peer, publisher = come_in(broker, "ada"), broker.client("publisher")
    peer.subscribe("t", options=1)
    scram = ScramSha256("ada", "ada")
    peer.send(packets.auth(AGAIN, facts(scram.start())))
    challenge = challenge_of(peer)
    publisher.publish("t", b"meanwhile", qos=1)
    assert peer.take().payload == b"meanwhile"
    peer.publish("t", b"")
    assert peer.receive_a(Publish).payload == b""
    peer.send(packets.auth(GO_ON, facts(scram.answer(challenge))))
    done = peer.receive_a(packets.Auth)
    assert done.reason == 0
    scram.finish(data_of(done.properties))


@pytest.mark.requirement("WILL-07", "WIRE-02")
@pytest.mark.clause("MQTT-4.12.1-2")
@pytest.mark.parametrize("name", ["ada", "eve"])
def test_who_fails_to_authenticate_again_is_ended_without_its_will(
    files: Files, start: StartBroker, name: str
) -> None:
    with_users(files, "ada", "eve")
    broker = start()
    watcher = broker.client("watcher")
    watcher.subscribe("last", options=1)
    peer = come_in(broker, "ada", will=Will("last", b"gone", qos=1))
    # A wrong password; and a right one, but of somebody else.
    scram = ScramSha256(name, "wrong" if name == "ada" else name)
    peer.send(packets.auth(AGAIN, facts(scram.start())))
    peer.send(packets.auth(GO_ON, facts(scram.answer(challenge_of(peer)))))
    assert peer.receive_a(Disconnect).reason == 0x87
    peer.expect_closed()
    broker.wait_event("session_closed", reason="reauthentication_failed")
    watcher.ping()


@pytest.mark.requirement("WIRE-02", "WIRE-15")
@pytest.mark.clause("MQTT-4.12.0-6", "MQTT-4.12.0-7")
@pytest.mark.parametrize(
    ("has_method", "reason", "method", "expected"),
    [
        (False, AGAIN, METHOD, 0x82), (False, GO_ON, METHOD, 0x82), (True, AGAIN, "OTHER", 0x8C),
        (True, GO_ON, METHOD, 0x82), (True, 0, METHOD, 0x82),
    ],
)  # fmt: skip
def test_an_auth_nobody_waits_for_ends_the_connection(
    files: Files,
    start: StartBroker,
    has_method: bool,
    reason: int,
    method: str,
    expected: int,
) -> None:
    with_users(files, "ada")
    broker = start()
    peer = come_in(broker, "ada") if has_method else broker.client("c")
    peer.send(packets.auth(reason, facts(b"x", method)))
    assert peer.receive_a(Disconnect).reason == expected
    peer.expect_closed()


@pytest.mark.requirement("SEC-21")
def test_the_verifier_that_counts_is_the_one_in_force(files: Files, start: StartBroker) -> None:
    with_users(files, "ada")
    broker = start(allow_anonymous=False)
    peer, scram = broker.peer(), ScramSha256("ada", "ada")
    begin(peer, scram.start())
    proof = scram.answer(challenge_of(peer))
    with_users(files, "eve")
    broker.reload()
    peer.send(packets.auth(GO_ON, facts(proof)))
    assert peer.receive_a(ConnAck).reason == 0x87


class _Echo:
    """Asks for the client's name once more, and takes it at its word."""

    def __init__(self) -> None:
        self.said: list[bytes] = []

    async def step(self, data: bytes | None) -> AuthStep:
        self.said.append(data or b"")
        if len(self.said) == 1:
            return AuthStep.go_on(b"once more")
        if self.said[0] != self.said[1]:
            return AuthStep.refuse(ReasonCode.BANNED)
        return AuthStep.admit(self.said[0].decode(), b"welcome")


class _Twice:
    name = "TWICE"

    def begin(self, request: AuthRequest) -> Exchange:
        assert request.client_id == "c"
        return _Echo()


class _Broken:
    name = "BROKEN"

    def begin(self, request: AuthRequest) -> Exchange:
        raise RuntimeError("a mechanism of this test fails")


class _WithMechanisms(Hooks):
    def mechanisms(self) -> Sequence[Mechanism]:
        return (_Twice(), _Broken())


@pytest.mark.parametrize(("again", "reason"), [(b"max", 0), (b"moritz", 0x8A)])
def test_a_program_adds_a_mechanism(start: StartBroker, again: bytes, reason: int) -> None:
    broker = start(hooks=_WithMechanisms(), allow_anonymous=False)
    peer = broker.peer()
    peer.send(packets.connect("c", version=Version.V5, properties=facts(b"max", "TWICE")))
    assert peer.receive_a(packets.Auth).reason == GO_ON
    peer.send(packets.auth(GO_ON, facts(again, "TWICE")))
    assert peer.receive_a(ConnAck).reason == reason
    if reason == 0:
        assert broker.wait_event("session_opened").user_name == "max"


def test_a_mechanism_that_fails_refuses_its_client_only(start: StartBroker) -> None:
    broker = start(hooks=_WithMechanisms())
    peer = broker.peer()
    peer.send(packets.connect("c", version=Version.V5, properties=facts(b"", "BROKEN")))
    assert peer.receive_a(ConnAck).reason == 0x88
    broker.client("other").ping()


@pytest.mark.parametrize("version", [Version.V31, Version.V311])
def test_older_versions_have_no_auth(files: Files, start: StartBroker, version: Version) -> None:
    with_users(files, "ada")
    peer = start().client("c", version=version)
    peer.send("f0 00")
    peer.expect_closed()
