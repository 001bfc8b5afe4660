"""Every point at which a right is checked, with the answer each version has for it."""

import pytest

from tests.authorisation.conftest import VERSIONS, Files, StartBroker
from tests.harness import packets
from tests.harness.live_broker import LiveBroker
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.packets import Ack, Disconnect, Key, Kind, Publish, SubAck, Version, Will
from tests.harness.waiting import wait_until

RULES = """\
topic read open/#
topic write open/#
user ada
topic readwrite #
user bob
topic readwrite open/#
topic readwrite secret/own
topic deny open/closed/#
pattern readwrite devices/%c/#
pattern read users/%u/#
"""
NOT_AUTHORIZED = 0x87
KEPT = ((Key.SESSION_EXPIRY, 300),)

pytestmark = pytest.mark.requirement("SEC-18")


@pytest.fixture
def broker(files: Files, start: StartBroker) -> LiveBroker:
    files.write_users("ada", "bob")
    files.write_rules(RULES)
    return start()


def expect_nothing(peer: MqttPeer) -> None:
    """Whatever was sent to the peer before the answer to a ping would stand before it."""
    peer.ping()


@pytest.mark.parametrize(
    ("version", "refused"), [(Version.V311, 0x80), (Version.V5, NOT_AUTHORIZED)]
)
@pytest.mark.requirement("SEC-20")
@pytest.mark.parametrize("clean", [True, False], ids=["transient", "stored"])
def test_every_filter_of_a_subscribe_is_checked(
    broker: LiveBroker, version: Version, refused: int, *, clean: bool
) -> None:
    # dojot issue 2529: only the first filter was looked at.
    bob = broker.client("b", "bob", version=version, clean=clean, properties=stored(version, clean))
    codes = bob.subscribe("open/a", "secret/x", "open/b", "open/closed/+", options=1)
    assert codes == (1, refused, 1, refused)
    broker.wait_event("access_denied", reason="subscribe", topic="secret/x", user_name="bob")
    assert broker.statistics().denials_total["subscribe"] == 2
    bob.ping()


def stored(version: Version, clean: bool) -> packets.Properties:
    return KEPT if version == Version.V5 and not clean else packets.NO_PROPERTIES


@pytest.mark.requirement("SEC-20")
@pytest.mark.parametrize("qos", [1, 2])
def test_v5_publisher_is_told_and_then_ended(broker: LiveBroker, qos: int) -> None:
    bob = broker.client("b", "bob")
    bob.send_publish("secret/x", b"no", qos=qos)
    answer = bob.receive_a(Ack)
    kind = Kind.PUBACK if qos == 1 else Kind.PUBREC
    assert (answer.kind, answer.reason) == (kind, NOT_AUTHORIZED)
    assert bob.receive_a(Disconnect).reason == NOT_AUTHORIZED
    bob.expect_closed()
    broker.wait_event("access_denied", reason="publish", topic="secret/x", user_name="bob")


@pytest.mark.requirement("SEC-20")
def test_v5_publisher_is_only_told_where_the_operator_wants_so(
    files: Files, start: StartBroker
) -> None:
    files.write_rules("topic write open\n")
    peer = start(denied_publish="answer").client("p")
    for qos, packet_id in ((1, 1), (2, 2), (1, 1), (2, 2)):
        peer.send_publish("secret/x", qos=qos, packet_id=packet_id)
        assert peer.receive_a(Ack).reason == NOT_AUTHORIZED
    peer.publish("open", qos=1)
    peer.publish("open", qos=2)
    # QoS 0 has no answer of its own: what cannot be said is shown.
    peer.send_publish("secret/x")
    peer.expect_end(NOT_AUTHORIZED)


@pytest.mark.requirement("SEC-20")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [Version.V31, Version.V311])
def test_older_publisher_is_ended_whatever_the_policy(
    files: Files, start: StartBroker, version: Version, qos: int
) -> None:
    files.write_rules("topic read #\n")
    broker = start(denied_publish="answer")
    watcher = broker.client("w")
    watcher.subscribe("#")
    peer = broker.client("p", version=version)
    peer.send_publish("a", b"no", qos=qos)
    peer.expect_closed()
    expect_nothing(watcher)
    wait_until(
        lambda: broker.statistics().closes_total["not_authorized"] == 1, what="the end is counted"
    )


@pytest.mark.requirement("SEC-20")
def test_denied_publish_reaches_nobody_and_is_not_retained(broker: LiveBroker) -> None:
    ada = broker.client("a", "ada")
    ada.subscribe("#", options=2)
    for qos in (0, 1, 2):
        bob = broker.client("b", "bob")
        bob.send_publish("secret/x", b"no", qos=qos, retain=True)
        assert bob.receive_until_closed()
    expect_nothing(ada)
    assert broker.client("a2", "ada").subscribe("secret/#") == (0,)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("clean", [True, False], ids=["transient", "stored"])
@pytest.mark.parametrize("version", VERSIONS)
def test_wildcard_subscription_brings_only_what_may_be_read(
    broker: LiveBroker, version: Version, qos: int, *, clean: bool
) -> None:
    # CVE-2026-49186: the filter was checked, the topic delivered was not.
    bob = broker.client("b", "bob", version=version, clean=clean, properties=stored(version, clean))
    assert bob.subscribe("#", "+/x", options=qos) == (qos, qos)
    ada = broker.client("a", "ada")
    for packet_id, topic in enumerate(
        ("secret/x", "secret/own", "open/closed/x", "devices/a/x", "open/x"), start=1
    ):
        ada.publish(topic, topic.encode(), qos=qos, packet_id=packet_id)
    assert [bob.take().topic for _ in range(2)] == ["secret/own", "open/x"]
    expect_nothing(bob)


@pytest.mark.parametrize("clean", [True, False], ids=["transient", "stored"])
def test_reader_is_checked_when_retained_messages_are_delivered(
    broker: LiveBroker, *, clean: bool
) -> None:
    # CVE-2018-12546, emqx 10192: retained messages were handed to whoever subscribed.
    ada = broker.client("a", "ada")
    for packet_id, topic in enumerate(("open/r", "secret/r", "open/closed/r"), start=1):
        ada.publish(topic, b"kept", qos=1, retain=True, packet_id=packet_id)
    bob = broker.client("b", "bob", clean=clean, properties=() if clean else KEPT)
    bob.send(packets.subscribe(1, ("#", 1), version=Version.V5))
    seen = [bob.receive(), bob.receive()]
    topics = [one.topic for one in seen if isinstance(one, Publish)]
    assert topics == ["open/r"]
    assert any(isinstance(one, SubAck) for one in seen)
    expect_nothing(bob)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("clean", [True, False], ids=["transient", "stored"])
def test_a_message_of_a_group_goes_to_a_member_that_may_read_it(
    broker: LiveBroker, qos: int, *, clean: bool
) -> None:
    kept = () if clean else KEPT
    publisher = broker.client("p", "ada")
    bobs = [broker.client(f"b{at}", "bob", clean=clean, properties=kept) for at in range(2)]
    for bob in bobs:
        bob.subscribe("$share/g/#", options=qos)
    publisher.publish("secret/x", b"nobody's", qos=qos)
    wait_until(
        lambda: broker.statistics().drops_total["share_unserved"] == 1,
        what="a message that no member may read is counted",
    )
    ada = broker.client("a", "ada", clean=clean, properties=kept)
    ada.subscribe("$share/g/#", options=qos)
    payloads = [b"%d" % number for number in range(9)]
    for payload in payloads:
        publisher.publish("secret/x", payload, qos=qos)
        assert ada.take().payload == payload
    assert broker.statistics().drops_total["not_authorized"] == 0
    assert broker.statistics().drops_total["share_unserved"] == 1
    for bob in bobs:
        expect_nothing(bob)


@pytest.mark.parametrize(
    "filter_", ["$share/g/secret/x", "$queue/secret/x", "$share/g/$queue/secret/x"]
)
def test_prefixes_do_not_hide_what_is_forbidden(broker: LiveBroker, filter_: str) -> None:
    # emqx 3931, nats 2386.
    bob = broker.client("b", "bob")
    (code,) = bob.subscribe(filter_)
    assert code >= 0x80
    assert bob.subscribe("$queue/open/x") == (0,)


@pytest.mark.parametrize(
    "topic", ["open/../secret/x", "open//../secret", "/open/x", "OPEN/x", "open/closed/../x"]
)
def test_names_are_never_tidied_up(broker: LiveBroker, topic: str) -> None:
    # Mosquitto issues 3671, 3672: nothing is mapped, so nothing can be escaped from.
    ada = broker.client("a", "ada")
    ada.subscribe("secret/#")
    bob = broker.client("b", "bob")
    bob.send_publish(topic, b"x")
    if topic.startswith("open/") and not topic.startswith("open/closed/"):
        bob.ping()  # a topic of its own below open/, however strange
    else:
        bob.expect_end(NOT_AUTHORIZED)
    expect_nothing(ada)


@pytest.mark.parametrize("client_id", ["+", "#", "a/b", "lamp/#", "$SYS", "../lamp"])
def test_client_ids_never_widen_a_rule(broker: LiveBroker, client_id: str) -> None:
    # CVE-2017-7650.
    lamp = broker.client("lamp")
    assert lamp.subscribe("devices/lamp/#") == (0,)
    odd = broker.client(client_id)
    filters = ("devices/lamp/x", "devices/+/x", "devices/#", "devices/lamp/#")
    assert [code >= 0x80 for code in odd.subscribe(*filters)] == [True] * 4
    odd.send_publish("devices/lamp/x")
    odd.expect_end(NOT_AUTHORIZED)
    expect_nothing(lamp)


def test_huge_client_id_has_its_own_topics_and_no_others(broker: LiveBroker) -> None:
    huge = "x" * 60_000
    peer = broker.client(huge)
    assert peer.subscribe(f"devices/{huge}/a", "devices/x/a") == (0, NOT_AUTHORIZED)


@pytest.mark.parametrize("version", VERSIONS)
def test_forbidden_will_is_refused_at_connect(broker: LiveBroker, version: Version) -> None:
    # mochi issue 503: a will was a way around the rules.
    refused = broker.knock("b", "bob", b"bob", version=version, will=Will("secret/x"))
    assert refused == (NOT_AUTHORIZED if version == Version.V5 else 5)
    assert broker.knock("b", "bob", b"bob", version=version, will=Will("open/x")) == 0
    assert broker.statistics().refusals_total["will_not_authorized"] == 1


def test_topic_alias_is_checked_by_the_topic_it_stands_for(broker: LiveBroker) -> None:
    bob = broker.client("b", "bob")
    alias = ((Key.TOPIC_ALIAS, 1),)
    bob.publish("open/x", qos=1, properties=alias)
    bob.publish("", qos=1, properties=alias)
    bob.send_publish("secret/x", qos=1, properties=alias)
    assert bob.receive_a(Ack).reason == NOT_AUTHORIZED


def test_file_without_rules_denies_everything(files: Files, start: StartBroker) -> None:
    # CVE-2018-12550: an empty file was read as no file.
    files.write_rules("# nothing\n")
    peer = start().client("p")
    assert peer.subscribe("#", "$SYS/#", "a") == (NOT_AUTHORIZED,) * 3
    peer.send_publish("a")
    peer.expect_end(NOT_AUTHORIZED)


def test_without_a_file_everything_is_allowed(start: StartBroker) -> None:
    peer = start().client("p")
    assert peer.subscribe("#", options=1) == (1,)
    peer.send_publish("a", b"me", qos=1)
    kinds = {type(peer.receive()) for _ in range(2)}
    assert kinds == {Ack, Publish}
