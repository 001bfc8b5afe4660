"""Checks of connecting, staying and leaving."""

from quantumqtt._core import Message
from quantumqtt.cli.probe.check import Probe, check, value_of
from quantumqtt.cli.probe.peer import V5, Closed, NotOffered, violated, words
from quantumqtt.mqtt import PropertyId

_KEEP_ALIVE_S = 1


@check("CONNECT is answered by CONNACK", v311="MQTT-3.2.0-1", v5="MQTT-3.2.0-1")
def connack_comes_first(probe: Probe) -> None:
    probe.open().expect_silence()


@check("a clean start finds no session", v311="MQTT-3.2.2-1", v5="MQTT-3.2.2-2")
def no_session_after_clean_start(probe: Probe) -> None:
    client_id = probe.new_id()
    probe.open(client_id, keeps=True).leave()
    peer = probe.open(client_id)
    assert peer.connack is not None, "it is open"
    if peer.connack.session_present:
        violated("session present is 1 after a clean start")


@check("an assigned client id is told", v5="MQTT-3.2.2-16")
def assigned_id_is_told(probe: Probe) -> None:
    peer = probe.peer()
    connack = peer.connect("")
    if connack.reason_code:
        raise NotOffered(f"an empty client id is refused with {connack.reason_code:#04x}")
    given = dict(connack.properties).get(PropertyId.ASSIGNED_CLIENT_ID)
    if not isinstance(given, str) or not given:
        violated("a client without an id is not told which one it got")


@check("an empty client id needs a clean session", v311="MQTT-3.1.3-8")
def empty_id_needs_clean_session(probe: Probe) -> None:
    peer = probe.peer()
    connack = peer.connect("", clean=False)
    if not connack.reason_code:
        violated("an empty client id with a session that stays is accepted")
    peer.expect_closed("refusing the client id")


@check("PINGREQ is answered", v311="MQTT-3.12.4-1", v5="MQTT-3.12.4-1")
def ping_is_answered(probe: Probe) -> None:
    peer = probe.open()
    for _ in range(3):
        peer.expect_silence()


@check("a silent client is given up", v311="MQTT-3.1.2-24", v5="MQTT-3.1.2-22")
def keep_alive_is_enforced(probe: Probe) -> None:
    peer = probe.open(keep_alive_s=_KEEP_ALIVE_S)
    allowed_s = value_of(peer, PropertyId.SERVER_KEEP_ALIVE, _KEEP_ALIVE_S)
    if allowed_s > 10 * _KEEP_ALIVE_S:
        raise NotOffered(f"the broker sets the keep alive to {allowed_s} s; too long to wait here")
    peer.expect_closed(f"{allowed_s} s of silence", 1.5 * allowed_s + probe.timeout_s)


@check("a client that pings is not given up", v311="MQTT-3.1.2-24", v5="MQTT-3.1.2-22")
def keep_alive_is_not_exceeded(probe: Probe) -> None:
    peer = probe.open(keep_alive_s=2)
    came = peer.receive(2.2)
    if came is not None:
        violated(f"{words(came)} came within one and a half times the keep alive")
    peer.expect_silence()


@check("a second client of an id ends the first", v311="MQTT-3.1.4-2", v5="MQTT-3.1.4-3")
def takeover(probe: Probe) -> None:
    client_id = probe.new_id()
    first = probe.open(client_id)
    second = probe.open(client_id)
    first.expect_closed("another client came with its id")
    second.expect_silence()


@check("a taken-over client is told why", v5="MQTT-3.1.4-3")
def takeover_is_explained(probe: Probe) -> None:
    client_id = probe.new_id()
    first = probe.open(client_id)
    probe.open(client_id)
    came = first.receive()
    if came not in (Closed(0x8E), None):
        violated(f"DISCONNECT with 0x8e was due, {words(came)} came")


@check("the will is published when its client vanishes", v311="MQTT-3.1.2-8", v5="MQTT-3.1.2-8")
def will_is_published(probe: Probe) -> None:
    topic = probe.new_topic()
    listener = probe.listener(topic, 1)
    dying = probe.open(will=(topic, b"gone", 1, False))
    dying.close()
    message = listener.take()
    if message.payload != b"gone":
        violated(f"the will says {message.payload!r} instead of b'gone'")


@check("no will after DISCONNECT", v311="MQTT-3.1.2-10", v5="MQTT-3.14.4-3")
def no_will_after_goodbye(probe: Probe) -> None:
    topic = probe.new_topic()
    listener = probe.listener(topic)
    leaving = probe.open(will=(topic, b"gone", 0, False))
    leaving.leave()
    listener.expect_silence()
    probe.open().publish(topic, b"marker", 1)
    message = listener.take()
    if message.payload != b"marker":
        violated("the will was published although its client said goodbye")


@check("the will can be asked for with DISCONNECT", v5="MQTT-3.1.2-8")
def will_with_goodbye(probe: Probe) -> None:
    topic = probe.new_topic()
    listener = probe.listener(topic)
    leaving = probe.open(will=(topic, b"gone", 0, False))
    leaving.send(b"\xe0\x01\x04")
    message = listener.receive()
    if not isinstance(message, Message):
        violated(f"reason 0x04 asks for the will, {words(message)} came")


@check("a server closes after DISCONNECT", v311="MQTT-3.14.4-1", v5="MQTT-3.14.4-1")
def goodbye_ends_it(probe: Probe) -> None:
    peer = probe.open()
    peer.send(b"\xe0\x00")
    peer.expect_closed("DISCONNECT")


@check("an unknown protocol level is refused", v311="MQTT-3.1.2-2", v5="MQTT-3.1.2-2")
def unknown_level(probe: Probe) -> None:
    peer = probe.peer()
    peer.version = V5  # a client of the future is refused in the newest form the broker knows
    more = b"\x00" if probe.version == V5 else b""
    body = b"\x00\x04MQTT\x63\x02\x00\x3c" + more + b"\x00\x04qmqt"
    peer.send(bytes([0x10, len(body)]) + body)
    came = peer.receive()
    if isinstance(came, Closed):
        return
    if came is None or isinstance(came, Message) or not came.reason_code:
        violated(f"{words(came)} answers protocol level 99")
    peer.expect_closed("refusing the protocol level")
