"""New users and rules while clients are connected.

They take effect at once for whoever lost a right, and for nobody else.
"""

import time

import pytest

from quantumqtt.errors import ConfigError
from quantumqtt.policy.passwords import hash_password
from tests.authorisation.conftest import Files, StartBroker
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.packets import NO_PROPERTIES, Key, Publish, Version, Will
from tests.harness.waiting import wait_until

KEPT = ((Key.SESSION_EXPIRY, 300),)
OPEN = "topic readwrite #\n"
NARROW = "topic readwrite open/#\n"
# What a reload may take; asserted with a margin because the machine is shared.
EFFECTIVE_S = 1.0

pytestmark = pytest.mark.requirement("SEC-21")


@pytest.mark.parametrize("clean", [True, False], ids=["transient", "stored"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_delivery_stops_when_the_right_is_gone_and_comes_back_with_it(
    files: Files, start: StartBroker, qos: int, *, clean: bool
) -> None:
    # CVE-2021-34434, emqx 10396: a revoked right kept delivering.
    files.write_rules(OPEN)
    broker = start()
    reader = broker.client("r", clean=clean, properties=NO_PROPERTIES if clean else KEPT)
    reader.subscribe("#", options=qos)
    writer = broker.client("w")
    publish_both(writer, qos, 1)
    assert [reader.take().topic, reader.take().topic] == ["secret/x", "open/x"]
    files.write_rules("topic readwrite open/#\ntopic write secret/#\n")
    begun = time.monotonic()
    broker.reload()
    publish_both(writer, qos, 3)
    assert reader.take().topic == "open/x"
    assert time.monotonic() - begun < EFFECTIVE_S
    files.write_rules(OPEN)
    broker.reload()
    publish_both(writer, qos, 5)
    assert [reader.take().topic, reader.take().topic] == ["secret/x", "open/x"]
    reader.ping()


def publish_both(writer: MqttPeer, qos: int, packet_id: int) -> None:
    writer.publish("secret/x", qos=qos, packet_id=packet_id)
    writer.publish("open/x", qos=qos, packet_id=packet_id + 1)


@pytest.mark.parametrize("qos", [1, 2])
def test_right_lost_while_away_means_the_backlog_brings_nothing_of_it(
    files: Files, start: StartBroker, qos: int
) -> None:
    files.write_rules(OPEN)
    broker = start()
    away = broker.client("r", clean=False, properties=KEPT)
    away.subscribe("#", options=qos)
    away.leave()
    writer = broker.client("w")
    for packet_id in range(1, 40, 2):
        writer.publish("secret/x", qos=qos, packet_id=packet_id)
        writer.publish("open/x", b"%d" % packet_id, qos=qos, packet_id=packet_id + 1)
    files.write_rules(NARROW)
    broker.reload()
    # A window of two: forbidden messages must not hold their places in it.
    back = broker.peer()
    back.open("r", clean=False, properties=((Key.RECEIVE_MAXIMUM, 2), *KEPT))
    taken = [back.take() for _ in range(20)]
    assert [message.payload for message in taken] == [b"%d" % n for n in range(1, 40, 2)]
    back.ping()
    assert broker.statistics().drops_total["not_authorized"] == 20


def test_publisher_is_ended_at_its_next_message_and_others_stay(
    files: Files, start: StartBroker
) -> None:
    files.write_rules(OPEN)
    broker = start()
    allowed, denied = broker.client("a"), broker.client("d")
    for peer, topic in ((allowed, "open/x"), (denied, "secret/x")):
        peer.publish(topic, qos=1)
        peer.publish(topic, qos=1)
    files.write_rules(NARROW)
    broker.reload()
    denied.send_publish("secret/x")
    denied.expect_end(0x87)
    allowed.publish("open/x", qos=1)
    allowed.ping()


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_will_of_a_transient_session_is_checked_when_it_fires(
    files: Files, start: StartBroker, version: Version
) -> None:
    files.write_rules(OPEN)
    broker = start()
    watcher = broker.client("watcher")
    watcher.subscribe("#")
    for number, topic in enumerate(("secret/w", "open/w")):
        broker.client(f"w{number}", version=version, will=Will(topic))
    files.write_rules("topic read #\ntopic write open/#\n")
    broker.reload()
    broker.close_peers_but(watcher)
    assert watcher.receive_a(Publish).topic == "open/w"
    broker.wait_event("access_denied", reason="will", topic="secret/w")
    watcher.ping()


@pytest.mark.parametrize(
    ("delay_s", "reload_first"),
    [(0, True), (1, True), (1, False)],
    ids=["at once", "delayed", "waiting already"],
)
def test_will_of_a_stored_session_is_checked_when_it_fires(
    files: Files, start: StartBroker, delay_s: int, *, reload_first: bool
) -> None:
    files.write_rules(OPEN)
    broker = start()
    watcher = broker.client("watcher")
    watcher.subscribe("#")
    delay = ((Key.WILL_DELAY, delay_s),)
    for name in ("secret", "open"):
        will = Will(f"{name}/w", properties=delay)
        broker.client(name, clean=False, will=will, properties=KEPT)
    files.write_rules("topic read #\ntopic write open/#\n")
    if reload_first:
        broker.reload()
    broker.close_peers_but(watcher)
    broker.wait_event("session_closed", client_id="secret")
    broker.wait_event("session_closed", client_id="open")
    if not reload_first:
        broker.reload()
    assert watcher.receive_a(Publish).topic == "open/w"
    wait_until(lambda: broker.statistics().denials_total["will"] == 1, what="the denial counted")
    watcher.ping()


def test_users_that_are_gone_or_changed_are_ended_and_others_stay(
    files: Files, start: StartBroker
) -> None:
    files.write_users("ada", "bob", "eve")
    broker = start()
    peers = {name: broker.client(name, name) for name in ("ada", "bob", "eve")}
    nobody = broker.client("nobody")
    again = hash_password(b"another", "sha512")
    lines = files.passwords.read_text(encoding="utf-8").splitlines(keepends=True)
    files.passwords.write_text(f"{lines[0]}bob:{again}\n", encoding="utf-8")
    broker.reload()
    for name in ("bob", "eve"):
        peers[name].expect_end(0x87)
        assert broker.knock(name, name, name.encode()) == 0x86, "the warm verdict is gone, too"
    assert broker.knock("bob", "bob", b"another") == 0
    peers["ada"].ping()
    nobody.ping()
    assert broker.statistics().closes_total["credentials_revoked"] == 2


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("rules", "topic read a\ntopics read b\n", ":2: 'topics' is no keyword"),
        ("rules", "topic read a/#/b\n", ":1: "),
        ("passwords", "ada:plain\n", ":1: the password is not hashed"),
    ],
)
def test_broken_file_changes_nothing_and_says_so(
    files: Files, start: StartBroker, file: str, text: str, complaint: str
) -> None:
    # CVE-2018-12551: a bad line left a file half in force.
    files.write_users("ada")
    files.write_rules(NARROW + "user ada\n" + NARROW)
    broker = start()
    ada = broker.client("a", "ada")
    getattr(files, file).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        broker.reload()
    assert complaint in str(caught.value)
    assert caught.value.hint
    assert ada.subscribe("open/x", "secret/x") == (0, 0x87)
    assert broker.knock("b", "ada", b"ada") == 0


def test_start_with_a_broken_file_is_refused(files: Files, start: StartBroker) -> None:
    files.write_rules("user\n")
    with pytest.raises(ConfigError, match="rules:1: a user name is missing"):
        start()
