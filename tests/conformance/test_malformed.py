"""Bytes that are no packet, or no packet a client may send: what the sender hears, and nobody else.

Each row is bytes sent by a connected client, and the reason codes MQTT 5 allows for it. Where the
standard leaves the choice between "malformed packet" and "protocol error", both are accepted; a
silent close is not, since a client with a bug deserves to hear so.
"""

from typing import Final

import pytest

from tests.conformance.conftest import Broker
from tests.harness.packets import Version
from tests.harness.raw_peer import as_bytes, packet, text

MALFORMED: Final = 0x81
PROTOCOL: Final = 0x82
EITHER: Final = (MALFORMED, PROTOCOL)
TOPIC: Final = (0x90, MALFORMED, PROTOCOL)

# Rows that mean the same in every version. Bodies are short of properties, so they hold none.
EVERY_VERSION: Final = {
    "type 0": ("00 00", EITHER),
    "five-byte length": ("30 ff ff ff ff 01", EITHER),
    "five-byte length of zeros": ("c0 80 80 80 80 00", EITHER),
    "publish qos 3": ("36 06 00 01 74 00 01 00", EITHER),
    "publish dup at qos 0": ("38 04 00 01 74 00", EITHER),
    "publish without topic": ("30 00", EITHER),
    "publish ends in topic length": ("30 01 00", EITHER),
    "publish ends in topic": ("30 03 00 05 74", EITHER),
    "publish ends in packet id": ("32 04 00 01 74 00", EITHER),
    "publish with packet id 0": ("32 06 00 01 74 00 00 00", EITHER),
    "topic of bad utf-8": ("30 05 00 02 c3 28 00", TOPIC),
    "topic of overlong utf-8": ("30 05 00 02 c0 80 00", TOPIC),
    "topic with a surrogate": ("30 06 00 03 ed a0 80 00", TOPIC),
    "topic with U+0000": ("30 05 00 02 61 00 00", TOPIC),
    "puback without packet id": ("40 00", EITHER),
    "puback with half a packet id": ("40 01 00", EITHER),
    "puback with packet id 0": ("40 02 00 00", EITHER),
    "puback with flags": ("41 02 00 01", EITHER),
    "pubrec with flags": ("52 02 00 01", EITHER),
    "pubrel without flags": ("60 02 00 01", EITHER),
    "pubrel with other flags": ("63 02 00 01", EITHER),
    "pubcomp with flags": ("78 02 00 01", EITHER),
    "subscribe without flags": ("80 07 00 01 00 00 01 74 00", EITHER),
    "subscribe with other flags": ("83 07 00 01 00 00 01 74 00", EITHER),
    "subscribe with packet id 0": ("82 07 00 00 00 00 01 74 00", EITHER),
    "subscribe ends before options": ("82 06 00 01 00 00 01 74", EITHER),
    "subscribe of nothing at all": ("82 00", EITHER),
    "unsubscribe without flags": ("a0 06 00 01 00 00 01 74", EITHER),
    "unsubscribe with packet id 0": ("a2 06 00 00 00 00 01 74", EITHER),
    "unsubscribe ends in its filter": ("a2 06 00 01 00 00 05 74", EITHER),
    "pingreq with flags": ("c1 00", EITHER),
    "pingreq with a body": ("c0 01 00", EITHER),
    "disconnect with flags": ("e1 00", EITHER),
    "auth before 5, without method in 5": ("f0 02 18 00", EITHER),
}

ONLY_5: Final = {
    "unknown property": ("30 06 00 01 74 02 7f 00", EITHER),
    "property of another packet": ("30 08 00 01 74 04 18 00 00 00 01", EITHER),
    "property twice": ("30 08 00 01 74 04 01 00 01 00", EITHER),
    "property block beyond the end": ("30 05 00 01 74 09 01", EITHER),
    "property ends in its value": ("30 07 00 01 74 03 02 00 00", EITHER),
    "property length of five bytes": ("30 08 00 01 74 ff ff ff ff 01", EITHER),
    "payload format 2": ("30 06 00 01 74 02 01 02", EITHER),
    "response topic with a wildcard": ("30 08 00 01 74 04 08 00 01 23", (*TOPIC,)),
    "response topic of bad utf-8": ("30 08 00 01 74 04 08 00 01 ff", (*TOPIC,)),
    "user property with half a pair": ("30 08 00 01 74 04 26 00 01 61", EITHER),
    "topic alias 0": ("30 07 00 01 74 03 23 00 00", (0x94, *EITHER)),
    "puback with a code of another packet": ("40 04 00 01 92 00", EITHER),
    "pubrel with a code of another packet": ("62 04 00 01 80 00", EITHER),
    "retain handling 3": ("82 07 00 01 00 00 01 74 30", EITHER),
    "subscription identifier 0": ("82 09 00 01 02 0b 00 00 01 74 00", EITHER),
    "subscription identifier twice": ("82 0b 00 01 04 0b 01 0b 02 00 01 74 00", EITHER),
    "disconnect with a code of another packet": ("e0 02 92 00", EITHER),
    "disconnect with session expiry twice": (
        "e0 0c 00 0a 11 00 00 00 01 11 00 00 00 01",
        EITHER,
    ),
    "disconnect with bytes behind the end": ("e0 03 00 00 00", EITHER),
    "re-authentication without a method": ("f0 02 19 00", EITHER),
    "auth with an unknown reason": ("f0 02 77 00", EITHER),
}

ONLY_3: Final = {
    "puback with a reason code": ("40 03 00 01 00", EITHER),
    "disconnect with a body": ("e0 01 00", EITHER),
    "auth": ("f0 00", EITHER),
}

ROWS: Final = [
    pytest.param(version, as_bytes(sent), reasons, id=f"{version.name}-{name}")
    for version in Version
    for name, (sent, reasons) in {
        **EVERY_VERSION,
        **(ONLY_5 if version == Version.V5 else ONLY_3),
    }.items()
]


@pytest.mark.hardening("five-byte-integer", "bad-text")
@pytest.mark.requirement("WIRE-10", "DP-30", "WIRE-01")
@pytest.mark.clause("MQTT-2.1.3-1", "MQTT-1.5.4-1", "MQTT-1.5.4-2", "MQTT-2.2.1-3", "MQTT-4.8.0-1")
@pytest.mark.parametrize(("version", "sent", "reasons"), ROWS)
def test_the_sender_is_told_and_closed_and_nobody_else_is_touched(
    broker: Broker, version: Version, sent: bytes, reasons: tuple[int, ...]
) -> None:
    bystander = broker.client(version, "bystander")
    bystander.subscribe("#", options=1)
    broken = broker.client(version, "broken")
    broken.send(sent)
    broken.expect_end(*reasons)
    broker.client(version, "publisher").publish("t", b"still here", qos=1)
    assert bystander.take().payload == b"still here"


@pytest.mark.requirement("WIRE-01")
@pytest.mark.clause("MQTT-4.12.0-6", "MQTT-4.12.1-1")
def test_auth_without_an_agreed_method_is_a_protocol_error(broker: Broker) -> None:
    peer = broker.client(Version.V5)
    peer.send(packet(0xF0, b"\x19", b"\x07\x15", text("nope")))
    peer.expect_end(PROTOCOL)


@pytest.mark.requirement("WIRE-06", "DP-30")
@pytest.mark.clause("MQTT-1.5.5-1")
@pytest.mark.parametrize("version", Version)
def test_a_length_longer_than_needed_is_malformed(broker: Broker, version: Version) -> None:
    peer = broker.client(version)
    peer.send("c0 80 00")
    peer.expect_end(MALFORMED)


CONNECTS: Final = {
    "ends in the name": "10 05 00 04 4d 51 54",
    "ends before flags": "10 07 00 04 4d 51 54 54 04",
    "ends before keep alive": "10 08 00 04 4d 51 54 54 04 02",
    "ends before client id": "10 0a 00 04 4d 51 54 54 04 02 00 3c",
    "client id of bad utf-8": "10 0d 00 04 4d 51 54 54 04 02 00 3c 00 01 ff",
    "client id with U+0000": "10 0d 00 04 4d 51 54 54 04 02 00 3c 00 01 00",
    "bytes behind the end": "10 0e 00 04 4d 51 54 54 04 02 00 3c 00 01 61 00",
    "will flag without will": "10 0d 00 04 4d 51 54 54 04 06 00 3c 00 01 61",
    "user name flag without user name": "10 0d 00 04 4d 51 54 54 04 82 00 3c 00 01 61",
    "header flags": "11 0d 00 04 4d 51 54 54 04 02 00 3c 00 01 61",
    "five-byte length": "10 ff ff ff ff 01",
    "properties beyond the end": "10 0e 00 04 4d 51 54 54 05 02 00 3c 09 00 01 61",
    "request problem information 2": "10 10 00 04 4d 51 54 54 05 02 00 3c 02 17 02 00 01 61",
    "authentication data without method": (
        "10 12 00 04 4d 51 54 54 05 02 00 3c 04 16 00 01 00 00 01 61"
    ),
}


@pytest.mark.requirement("WIRE-10", "WIRE-05")
@pytest.mark.clause("MQTT-3.1.3-3", "MQTT-3.1.3-4", "MQTT-3.1.4-1")
@pytest.mark.parametrize("sent", CONNECTS.values(), ids=CONNECTS.keys())
def test_a_connect_that_cannot_be_read_opens_nothing(broker: Broker, sent: str) -> None:
    peer = broker.peer(Version.V311)
    peer.send(sent)
    answer = peer.receive_until_closed()
    assert answer == b"" or answer[3] in {0x81, 0x82}
    broker.client(Version.V311, "a").ping()


@pytest.mark.requirement("DP-30")
@pytest.mark.parametrize("version", Version)
def test_what_stands_before_the_fault_counts_and_what_stands_behind_it_does_not(
    broker: Broker, version: Version
) -> None:
    listener = broker.client(version, "listener")
    listener.subscribe("t", options=0)
    properties = b"\x00" if version == Version.V5 else b""
    good = [packet(0x30, text("t"), properties, payload) for payload in (b"before", b"behind")]
    peer = broker.client(version, "peer")
    peer.send(good[0], "c1 00", good[1])
    peer.expect_end(MALFORMED)
    broker.client(version, "marker").publish("t", b"marker")
    assert [listener.take().payload for _ in range(2)] == [b"before", b"marker"]
