"""Every bound at both ends on the real native node: it serves, or it is refused by name."""

import asyncio
from pathlib import Path

import pytest

from quantumqtt.config import FlagLayer, settings_from
from quantumqtt.config.keys import Key, catalogue
from quantumqtt.errors import ConfigError
from quantumqtt.node import Broker, NodeState
from tests.harness.raw_peer import RawPeer, connect_packet

KEYS = [key for key in catalogue().values() if key.facts.minimum is not None]
CASES = [
    pytest.param(key, value, id=f"{key.name}={value}")
    for key in KEYS
    for value in (0, 1, key.facts.minimum, key.facts.maximum)
]


def broker_with(key: Key, value: int, data: Path) -> Broker:
    """Make a broker with one bound changed; ConfigError when it cannot be."""
    listen = ["tcp://127.0.0.1:0"]
    table, _, name = key.name.rpartition(".")
    if table == "limits":
        return Broker(listen=listen, shards=1, limits={name: value})
    if table == "storage":
        # A small packet fits whatever size of segment is tried.
        bounds = {"packet_bytes_max": 1024, "offline_bytes_max": 1024}
        storage = {"data": str(data), "storage": {name: value}, "limits": bounds}
        return Broker(settings_from([FlagLayer({**storage, "listen": listen, "shards": 1})]))
    if table == "listener":
        return Broker(listener=[{"url": listen[0], name: value}], shards=1)
    asked: dict[str, object] = {"listen": tuple(listen), "shards": 1, key.name: value}
    return Broker(settings_from([FlagLayer(asked, spoken_by_caller=True)]))


def greet(port: int) -> bytes:
    """Connect as MQTT 5 and return what the broker answers."""
    with RawPeer("127.0.0.1", port) as peer:
        peer.send(connect_packet("bounds", level=5))
        return peer.receive_packet()


@pytest.mark.hardening("numeric-options")
@pytest.mark.parametrize(("key", "value"), CASES)
def test_a_bound_serves_or_is_refused_by_name(key: Key, value: int, tmp_path: Path) -> None:
    async def serve() -> NodeState:
        async with broker_with(key, value, tmp_path / "data") as broker:
            connack = await asyncio.to_thread(greet, broker.listeners[0].port)
            assert connack[0] == 0x20
            assert connack[3] == 0x00, "admitted"
            return broker.state

    try:
        state = asyncio.run(serve())
    except ConfigError as error:
        # Refused before anything started, with the key and a remedy.
        complaint, remedy = str(error), error.hint or ""
        assert key.name.rpartition(".")[2] in complaint
        assert remedy
        return
    assert state is NodeState.READY
    assert key.facts.minimum is not None
    assert value >= key.facts.minimum, "a value out of range must not start"
