"""The broker under test, behind one small fixture.

Every test gets a broker of its own, started in well under a millisecond, so nothing one test leaves
behind can help or hurt another. Ours runs with one shard and with two: the same tests, the same
answers (GEN-10). `CONFORMANCE_BROKER=mosquitto` runs the suite against Mosquitto instead, which
keeps the tests themselves honest; what asks for our limits or our counters is then left out.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from quantumqtt.config import Limits
from quantumqtt.node.native import (
    ListenerPlan,
    LogPlan,
    NativeNode,
    NodePlan,
    Statistics,
    open_native_node,
)
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.packets import NO_PROPERTIES, Properties, Version, Will
from tests.harness.ports import LOOPBACK, free_port
from tests.harness.raw_peer import DEADLINE_S, RawPeer
from tests.harness.waiting import wait_until
from tools.system_packages import find_program

TARGET: Final = os.environ.get("CONFORMANCE_BROKER", "quantumqtt")
CONNECTIONS_MAX: Final = 1_000
SHARED_MEMORY: Final = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
DRAIN_DEADLINE_MS: Final = 5_000


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known that says which clause of the standard a test is about."""
    config.addinivalue_line("markers", "clause(id, ...): the clauses of the OASIS standard shown")
    config.addinivalue_line(
        "markers", "largest_packets: sends packets as large as the broker takes"
    )


class Broker:
    """Where the broker listens, and the peers a test has connected to it."""

    def __init__(self, host: str, port: int, node: NativeNode | None = None) -> None:
        self.host = host
        self.port = port
        self._node = node
        self._peers = ExitStack()

    def peer(self, version: Version, *, deadline_s: float = DEADLINE_S) -> MqttPeer:
        """Connect a socket and say nothing yet."""
        peer = MqttPeer(self.host, self.port, version, deadline_s=deadline_s)
        return self._peers.enter_context(peer)

    def raw_peer(self) -> RawPeer:
        """Connect a socket that knows nothing of MQTT."""
        return self._peers.enter_context(RawPeer(self.host, self.port))

    def client(
        self,
        version: Version,
        client_id: str = "",
        *,
        clean: bool = True,
        keep_alive_s: int = 60,
        will: Will | None = None,
        properties: Properties = NO_PROPERTIES,
    ) -> MqttPeer:
        """Connect and open a session; MQTT 3.1 has no empty id, so one is made up for it."""
        peer = self.peer(version)
        peer.open(
            client_id or f"peer-{id(peer)}",
            clean=clean,
            keep_alive_s=keep_alive_s,
            will=will,
            properties=properties,
        )
        return peer

    @property
    def node(self) -> NativeNode:
        """Our node; a test that asks for it means nothing for another broker."""
        if self._node is None:
            pytest.skip("looks into our own node")
        return self._node

    def statistics(self) -> Statistics:
        """Take a snapshot of our counters."""
        return self.node.statistics()

    def close_peers(self) -> None:
        """Drop every connection of the test."""
        self._peers.close()


StartBroker = Callable[..., Broker]


@dataclass(frozen=True, slots=True)
class Shape:
    """How a broker of ours is run; what clients see is the same in all of them."""

    shards: int
    is_durable: bool = False

    def __str__(self) -> str:
        """Name the case."""
        return f"{self.shards}-shard" + ("-strict" if self.is_durable else "")


SHAPES: Final = (Shape(1), Shape(2), Shape(2, is_durable=True))


def small_log(folder: Path, *, takes_largest: bool) -> LogPlan:
    """Plan a log in a folder of its own, as small as the packets of a test allow."""
    data = folder / f"data-{len(list(folder.iterdir()))}"
    return LogPlan(
        directory=data,
        key_file=folder / f"{data.name}.keys",
        group_delay_ms=None,
        segment_bytes=(68 if takes_largest else 1) * 1024 * 1024,
        checkpoint_interval_s=300,
        checkpoint_log_bytes=1024 * 1024,
    )


@contextmanager
def our_broker(shards: int, limits: Limits, log: LogPlan | None = None) -> Iterator[Broker]:
    """Run one native node; a shard that died meanwhile fails the test, whatever else it saw."""
    listener = ListenerPlan("tcp", LOOPBACK, 0, allow_anonymous=True)
    node = open_native_node(
        NodePlan((listener,), shards, limits, CONNECTIONS_MAX, ask_admission=False, log=log)
    )
    bound = node.start()[0]
    broker = Broker(bound.host, bound.port, node)
    try:
        yield broker
        broker.close_peers()
        failures = [event.reason for event in node.poll_events() if event.kind == "shard_failed"]
        assert not failures, f"a shard died: {failures}"
    finally:
        broker.close_peers()
        node.stop()


@contextmanager
def mosquitto(folder: Path) -> Iterator[Broker]:
    """Run Mosquitto, which cannot be asked for a free port."""
    port = free_port()
    settings = folder / "mosquitto.conf"
    settings.write_text(
        f"listener {port} {LOOPBACK}\nallow_anonymous true\nset_tcp_nodelay true\n",
        encoding="utf-8",
    )
    program = find_program("mosquitto")
    assert program is not None, "mosquitto is not installed"
    process = subprocess.Popen(
        [program, "-c", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    broker = Broker(LOOPBACK, port)
    try:
        wait_until(lambda: listens(LOOPBACK, port), what="mosquitto listens")
        yield broker
    finally:
        broker.close_peers()
        process.terminate()
        process.wait()


def listens(host: str, port: int) -> bool:
    """Tell whether somebody accepts connections there."""
    try:
        RawPeer(host, port).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.fixture(params=SHAPES if TARGET == "quantumqtt" else SHAPES[:1], ids=str)
def shape(request: pytest.FixtureRequest) -> Shape:
    """Run the test with one worker and with several, in memory and with a log (GEN-10)."""
    assert isinstance(request.param, Shape)
    return request.param


@pytest.fixture
def start_broker(
    shape: Shape, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[StartBroker]:
    """Start a broker with other limits than the default ones: `start_broker(receive_maximum=2)`."""
    # What clients see does not depend on the disk: memory is as good, and spares hundreds of syncs.
    with ExitStack() as running:
        folder = Path(running.enter_context(TemporaryDirectory(dir=SHARED_MEMORY)))

        def start(**limits: int) -> Broker:
            if TARGET == "quantumqtt":
                takes_largest = request.node.get_closest_marker("largest_packets") is not None
                log = small_log(folder, takes_largest=takes_largest) if shape.is_durable else None
                return running.enter_context(our_broker(shape.shards, Limits(**limits), log))
            if limits:
                pytest.skip("sets limits of our own node")
            return running.enter_context(mosquitto(tmp_path))

        yield start


@pytest.fixture
def broker(start_broker: StartBroker) -> Broker:
    """Start a broker as a newcomer would: with default limits."""
    return start_broker()
