"""A client that hears anything at all fails in its own words, and can be used again."""

import tracemalloc
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantumqtt.client.options import SessionOptions
from quantumqtt.client.protocol import Failed, State
from quantumqtt.errors import QuantuMQTTError
from tests.harness.packets import Version
from tests.harness.pretend_broker import PretendBroker
from tests.unit.client.rig import Rig
from tests.unit.client.test_codec import BY_SERVERS

VERSIONS: Final = {"3.1.1": Version.V311, "5": Version.V5}
# Whole packets of servers in every version, broken ones too, and the same with one byte bent.
PACKETS: Final = st.sampled_from([vector.data for vector in BY_SERVERS])


@st.composite
def bent(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(PACKETS))
    data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


SPEECH: Final = st.lists(PACKETS | bent() | st.binary(max_size=20), min_size=1, max_size=8)
CUTS: Final = st.lists(st.integers(1, 40), max_size=12)


def connected(version: str) -> Rig:
    broker = PretendBroker(version=VERSIONS[version])
    rig = Rig(broker, SessionOptions(client_id="rig", version=version))  # type: ignore[arg-type]
    rig.connect()
    assert rig.session.state is State.OPEN
    return rig


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    found, at = [], 0
    for length in cuts:
        found.append(stream[at : at + length])
        at += length
    return [piece for piece in (*found, stream[at:]) if piece]


@pytest.mark.requirement("WIRE-21")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("greeted", [True, False], ids=["open", "before-connack"])
@given(speech=SPEECH, cuts=CUTS)
def test_whatever_a_broker_says_is_a_packet_or_a_typed_error(
    version: str, greeted: bool, speech: list[bytes], cuts: list[int]
) -> None:
    rig = connected(version)
    if not greeted:
        rig.cut()
        rig.begin()
    # An acknowledgement that says nothing of ours, or all of it, must not confuse what is waiting.
    waiting = [rig.publish(b"%d" % qos, qos) for qos in (1, 2)]
    rig.collect()
    for piece in pieces(b"".join(speech), cuts):
        rig.session.receive(piece)
        rig.collect()
    failures = [event.error for event in rig.events if isinstance(event, Failed)]
    assert all(isinstance(error, QuantuMQTTError) for error in failures)
    if rig.session.state is not State.IDLE:
        rig.cut()
    rig.to_broker = rig.to_client = b""
    rig.connect()
    assert rig.session.state is State.OPEN, "the next broker is met without prejudice"
    assert len(waiting) == 2


@pytest.mark.hardening("announced-length")
@pytest.mark.requirement("WIRE-21")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("header", "is_the_end"), [("30 ff ff ff 7f", True), ("30 80 80 80 04", False)]
)
def test_a_length_a_broker_announces_reserves_nothing(
    version: str, header: str, is_the_end: bool
) -> None:
    """256 MiB are more than we said we take; 8 MiB are not, and cost what has arrived of them."""
    rig = connected(version)
    tracemalloc.start()
    try:
        rig.session.receive(bytes.fromhex(header))
        rig.session.receive(bytes(1_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    rig.collect()
    assert any(isinstance(event, Failed) for event in rig.events) is is_the_end
    assert peak < 100_000
