"""Checks of what a broker does with packets that break MQTT; each ends one connection of ours."""

from quantumqtt import _core
from quantumqtt._core import Control
from quantumqtt.cli.probe.check import Probe, check
from quantumqtt.cli.probe.peer import PINGREQ_BYTES, SUBACK, V5, Closed, violated, words


def _ends(probe: Probe, packet: bytes, why: str) -> None:
    peer = probe.open()
    peer.send(packet)
    came = peer.receive()
    if not isinstance(came, Closed):
        what = "the connection stays open" if came is None else f"{words(came)} came"
        violated(f"{what} after {why}")


def _no_properties(probe: Probe) -> bytes:
    return b"\x00" if probe.version == V5 else b""


def _packet(first: int, body: bytes) -> bytes:
    return bytes([first, len(body)]) + body


@check("nothing but CONNECT may come first", v311="MQTT-3.1.0-1", v5="MQTT-3.1.0-1",
       breaks_rules=True)  # fmt: skip
def connect_comes_first(probe: Probe) -> None:
    peer = probe.peer()
    peer.send(PINGREQ_BYTES)
    peer.expect_closed("a PINGREQ before CONNECT")


@check("a second CONNECT ends it", v311="MQTT-3.1.0-2", v5="MQTT-3.1.0-2", breaks_rules=True)
def second_connect(probe: Probe) -> None:
    connect = _core.encode_connect(
        probe.version,
        probe.new_id(),
        clean_start=True,
        keep_alive_s=60,
        properties=b"" if probe.version == V5 else None,
    )
    _ends(probe, connect, "a second CONNECT")


@check("the reserved flag of CONNECT is zero", v311="MQTT-3.1.2-3", v5="MQTT-3.1.2-3",
       breaks_rules=True)  # fmt: skip
def reserved_connect_flag(probe: Probe) -> None:
    peer = probe.peer()
    name = b"\x00\x04MQTT" + bytes([probe.version, 0x03]) + b"\x00\x3c"
    peer.send(_packet(0x10, name + _no_properties(probe) + b"\x00\x04qmqt"))
    came = peer.receive()
    if isinstance(came, Control) and came.reason_code:
        came = peer.receive()
    if not isinstance(came, Closed):
        violated(f"a CONNECT with its reserved flag set is answered with {words(came)}")


@check("reserved header flags are as fixed", v311="MQTT-2.2.2-2", v5="MQTT-2.1.3-1",
       breaks_rules=True)  # fmt: skip
def reserved_header_flags(probe: Probe) -> None:
    _ends(probe, b"\xc1\x00", "a PINGREQ with a reserved flag")


@check("SUBSCRIBE names a filter", v311="MQTT-3.8.3-3", v5="MQTT-3.8.3-2", breaks_rules=True)
def subscribe_names_a_filter(probe: Probe) -> None:
    _ends(probe, _packet(0x82, b"\x00\x01" + _no_properties(probe)), "a SUBSCRIBE of nothing")


@check("SUBSCRIBE has no QoS 3", v311="MQTT-3-8.3-4", v5="MQTT-3.8.3-5", breaks_rules=True)
def subscribe_has_no_qos_3(probe: Probe) -> None:
    body = b"\x00\x01" + _no_properties(probe) + b"\x00\x01a\x03"
    _ends(probe, _packet(0x82, body), "a subscription at QoS 3")


@check("# stands at the end only", v311="MQTT-4.7.1-2", v5="MQTT-4.7.1-1", breaks_rules=True)
def hash_stands_last(probe: Probe) -> None:
    peer = probe.open()
    body = b"\x00\x01" + _no_properties(probe) + b"\x00\x05a/#/b\x00"
    peer.send(_packet(0x82, body))
    came = peer.receive()
    if isinstance(came, Control) and came.kind == SUBACK and came.codes[:1] >= b"\x80":
        return
    if not isinstance(came, Closed):
        violated(f"the filter a/#/b is answered with {words(came)}")


@check("PUBLISH has no QoS 3", v311="MQTT-3.3.1-4", v5="MQTT-3.3.1-4", breaks_rules=True)
def publish_has_no_qos_3(probe: Probe) -> None:
    body = b"\x00\x01a\x00\x01" + _no_properties(probe)
    _ends(probe, _packet(0x36, body), "a PUBLISH at QoS 3")


@check("PUBLISH names no wildcard", v311="MQTT-3.3.2-2", v5="MQTT-3.3.2-2", breaks_rules=True)
def publish_names_no_wildcard(probe: Probe) -> None:
    topic = (probe.new_topic() + "/+").encode()
    body = len(topic).to_bytes(2, "big") + topic + _no_properties(probe)
    _ends(probe, _packet(0x30, body), "a PUBLISH to a filter")


@check("packet id 0 is refused", v311="MQTT-2.3.1-1", v5="MQTT-2.2.1-3", breaks_rules=True)
def packet_id_is_not_zero(probe: Probe) -> None:
    topic = probe.new_topic().encode()
    body = len(topic).to_bytes(2, "big") + topic + b"\x00\x00" + _no_properties(probe)
    _ends(probe, _packet(0x32, body), "a PUBLISH with packet id 0")


@check("text is UTF-8", v311="MQTT-1.5.3-1", v5="MQTT-1.5.4-1", breaks_rules=True)
def text_is_utf8(probe: Probe) -> None:
    _ends(probe, _packet(0x30, b"\x00\x02\xc3\x28" + _no_properties(probe)), "a topic not in UTF-8")


@check("text holds no null character", v311="MQTT-1.5.3-2", v5="MQTT-1.5.4-2", breaks_rules=True)
def text_holds_no_null(probe: Probe) -> None:
    _ends(probe, _packet(0x30, b"\x00\x03a\x00b" + _no_properties(probe)), "a topic with a null")


@check("a length has at most four bytes", v311="MQTT 2.2.3", v5="MQTT 1.5.5", breaks_rules=True)
def lengths_are_short(probe: Probe) -> None:
    _ends(probe, b"\x30\xff\xff\xff\xff\x01", "a length of five bytes")


@check("topic alias 0 is refused", v5="MQTT-3.3.2-8", breaks_rules=True)
def topic_alias_is_not_zero(probe: Probe) -> None:
    _ends(probe, _packet(0x30, b"\x00\x01a\x03\x23\x00\x00"), "topic alias 0")


@check("a property that does not belong is refused", v5="MQTT-2.2.2-2", breaks_rules=True)
def property_belongs(probe: Probe) -> None:
    body = b"\x00\x01a\x05\x11\x00\x00\x00\x01"
    _ends(probe, _packet(0x30, body), "a PUBLISH with a session expiry")


@check("no-local is no option of a share group", v5="MQTT-3.8.3-4", breaks_rules=True)
def no_local_is_not_shared(probe: Probe) -> None:
    peer = probe.open()
    name = b"$share/qmqt/a"
    peer.send(_packet(0x82, b"\x00\x01\x00" + len(name).to_bytes(2, "big") + name + b"\x04"))
    came = peer.receive()
    refused = isinstance(came, Control) and came.kind == SUBACK and came.codes[:1] >= b"\x80"
    if not refused and not isinstance(came, Closed):
        violated(f"no-local on a shared subscription is answered with {words(came)}")
