"""Who may come in, and to whom a session belongs."""

import pytest

from quantumqtt.config import Limits, settings_from
from quantumqtt.config.sources import FlagLayer
from quantumqtt.errors import ConfigError
from quantumqtt.node.native import ListenerPlan, NodePlan, open_native_node
from quantumqtt.policy.passwords import hash_password
from tests.authorisation.conftest import VERSIONS, Files, StartBroker
from tests.harness import packets
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.packets import ConnAck, Key, Version
from tests.harness.ports import LOOPBACK

KEPT = ((Key.SESSION_EXPIRY, 300),)
REFUSED = {Version.V311: 5, Version.V5: 0x87}
BAD_CREDENTIALS = {Version.V31: 4, Version.V311: 4, Version.V5: 0x86}


@pytest.mark.requirement("SES-16")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "resuming"])
def test_connected_session_is_refused_to_another_and_its_owner_stays(
    files: Files, start: StartBroker, version: Version, *, clean: bool
) -> None:
    # Mosquitto issue 3553, CVE-2026-6564: the client id alone was the key.
    files.write_users("ada", "bob")
    broker = start()
    ada = broker.client("lamp", "ada")
    for user in ("bob", None):
        password = None if user is None else user.encode()
        refused = broker.knock("lamp", user, password, version=version, clean=clean)
        assert refused == REFUSED[version]
    ada.ping()
    assert broker.statistics().refusals_total["identity_mismatch"] == 2
    broker.wait_event("connection_refused", reason="identity_mismatch", client_id="lamp")


@pytest.mark.requirement("SES-16")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "resuming"])
def test_stored_session_is_refused_to_another_while_its_owner_is_away(
    files: Files, start: StartBroker, version: Version, *, clean: bool
) -> None:
    files.write_users("ada", "bob")
    broker = start()
    ada = broker.client("lamp", "ada", clean=False, properties=KEPT)
    ada.subscribe("private/#", options=1)
    ada.leave()
    for user in ("bob", None):
        password = None if user is None else user.encode()
        refused = broker.knock("lamp", user, password, version=version, clean=clean)
        assert refused == REFUSED[version]
    back = broker.peer()
    assert back.open("lamp", clean=False, user_name="ada", password=b"ada").session_present


@pytest.mark.requirement("SES-16")
def test_anonymous_session_is_adopted_by_the_first_who_proves_who_they_are(
    files: Files, start: StartBroker
) -> None:
    files.write_users("ada", "bob")
    broker = start()
    first = broker.client("lamp", clean=False, properties=KEPT)
    first.subscribe("t", options=1)
    first.leave()
    ada = broker.peer()
    connack = ada.open("lamp", clean=False, user_name="ada", password=b"ada", properties=KEPT)
    assert connack.session_present
    assert broker.knock("lamp", "bob", b"bob", clean=False) == 0x87
    assert broker.knock("lamp", clean=False) == 0x87
    ada.ping()


@pytest.mark.requirement("SEC-17")
@pytest.mark.parametrize("kind", ["argon2id", "sha512-pbkdf2", "sha512"])
@pytest.mark.parametrize("version", [Version.V31, *VERSIONS])
def test_only_the_right_name_and_password_come_in(
    files: Files, start: StartBroker, version: Version, kind: str
) -> None:
    # CVE-2016-9877: a user name without a password was let in.
    hashed = hash_password(b"secret", kind, iterations=1_000)  # type: ignore[arg-type]
    files.passwords.write_text(f"# users\nada:{hashed}\n", encoding="utf-8")
    broker = start(allow_anonymous=False)
    assert broker.knock("a", "ada", b"secret", version=version) == 0
    tries = [
        ("ada", b"Secret"),
        ("ada", b"secret\0"),
        ("ada", b""),
        ("Ada", b"secret"),
        ("", b"secret"),
        ("", b""),
        ("bob", b"secret"),
        ("ada", None),
        ("# users", b""),
    ]
    for user, password in tries:
        refused = broker.knock("a", user, password, version=version)
        assert refused == BAD_CREDENTIALS[version], (user, password)
    assert broker.knock("a", version=version) in {5, 0x87}


@pytest.mark.requirement("SEC-17")
def test_bad_credentials_are_not_anonymous(files: Files, start: StartBroker) -> None:
    files.write_users("ada")
    broker = start(allow_anonymous=True)
    assert broker.knock("a", "ada", b"wrong") == 0x86
    assert broker.knock("a", "nobody", b"x") == 0x86
    assert broker.knock("a") == 0


@pytest.mark.requirement("SEC-11")
@pytest.mark.parametrize(("version", "refused"), [(Version.V311, 2), (Version.V5, 0x85)])
def test_client_ids_can_be_bound_to_users(
    files: Files, start: StartBroker, version: Version, refused: int
) -> None:
    files.write_users("ada")
    broker = start(client_id_rule="user_name")
    assert broker.knock("lamp", "ada", b"ada", version=version) == refused
    assert broker.knock("ada", "ada", b"ada", version=version) == 0
    assert broker.knock("lamp", version=version) == 0, "nobody proved anything: nothing is bound"
    assert broker.statistics().refusals_total["client_id_not_yours"] == 1


@pytest.mark.requirement("SEC-01")
def test_doors_do_not_share_their_locks() -> None:
    # CVE-2018-20145: options of one listener leaked into another.
    listeners = (
        ListenerPlan("open", LOOPBACK, 0, allow_anonymous=True, allow_passwords=False),
        ListenerPlan("closed", LOOPBACK, 0, allow_anonymous=False, allow_passwords=True),
    )
    node = open_native_node(NodePlan(listeners, 1, Limits(), 100, ask_admission=False))
    try:
        doors = {bound.name: bound.port for bound in node.start()}
        codes = {}
        for name, port in doors.items():
            with MqttPeer(LOOPBACK, port, Version.V5) as peer:
                peer.send(packets.connect("c", version=Version.V5))
                codes[name] = peer.receive_a(ConnAck).reason
        assert codes == {"open": 0, "closed": 0x87}
    finally:
        node.stop()


@pytest.mark.requirement("SEC-01")
def test_password_on_an_exposed_door_is_refused_unread() -> None:
    listeners = (ListenerPlan("wire", LOOPBACK, 0, allow_anonymous=True, allow_passwords=False),)
    node = open_native_node(NodePlan(listeners, 1, Limits(), 100, ask_admission=True))
    try:
        port = node.start()[0].port
        with MqttPeer(LOOPBACK, port, Version.V5) as peer:
            peer.send(packets.connect("c", version=Version.V5, user_name="a", password=b"s"))
            assert peer.receive_a(ConnAck).reason == 0x87
        assert node.statistics().refusals_total["plaintext_password"] == 1
        assert not [event for event in node.poll_events() if event.password is not None]
    finally:
        node.stop()


@pytest.mark.requirement("SEC-01", "SEC-02")
@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"listen": ("tcp://0.0.0.0:0",), "password_file": "p"}, "would carry passwords"),
        ({"profile": "production", "allow_anonymous": True}, "lets nobody in"),
        ({"profile": "production", "listen": ("tcp://127.0.0.1:0",)}, "plaintext"),
    ],
)
def test_profiles_refuse_what_would_be_too_open(keys: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        settings_from([FlagLayer(keys, spoken_by_caller=True)])


@pytest.mark.requirement("SEC-02")
def test_embedded_profile_is_open_on_loopback_only() -> None:
    settings = settings_from(
        [FlagLayer({"listen": ("tcp://127.0.0.1:1", "tcp://0.0.0.0:2", "tcp://[::1]:3")})]
    )
    allowed = [settings.anonymous_allowed(address) for address in settings.listen]
    assert allowed == [True, False, True]
    assert [settings.passwords_allowed(address) for address in settings.listen] == allowed
