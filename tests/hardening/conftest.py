"""Brokers to be hurt: a real process where its resources are looked at, a node here where not."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from quantumqtt.config import Limits
from tests.conformance.conftest import Broker, our_broker
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.node_process import NodeProcess
from tests.harness.packets import NO_PROPERTIES, Properties, Version
from tests.harness.ports import LOOPBACK
from tests.harness.process_facts import ProcessFacts
from tests.harness.waiting import wait_until

SETTLE_DEADLINE_S = 20.0


class Victim:
    """A broker process, what it uses, and peers to see whether it still serves."""

    def __init__(self, process: NodeProcess) -> None:
        self.process = process
        self.port = process.port

    def facts(self) -> ProcessFacts:
        """Look at memory, descriptors and threads."""
        return ProcessFacts.of(self.process.process_id)

    def statistics(self) -> dict[str, object]:
        """Ask the admin endpoint."""
        with urllib.request.urlopen(f"{self.process.admin_url}/v1/statistics") as answer:
            told = json.load(answer)["statistics"]
        assert isinstance(told, dict)
        return told

    def connections(self) -> int:
        """Count the open connections, as the broker sees them."""
        return int(str(self.statistics()["connections"]))

    def wait_connections(self, count: int) -> None:
        """Wait until so many are left; closing is the broker's own business and takes a moment."""
        wait_until(
            lambda: self.connections() == count,
            what=f"{count} connections left",
            deadline_s=SETTLE_DEADLINE_S,
        )

    def wait_descriptors(self, count: int) -> None:
        """Wait until it holds no more than so many; the admin's own sockets close in their time."""
        wait_until(
            lambda: self.facts().descriptors <= count,
            what=f"{count} descriptors left",
            deadline_s=SETTLE_DEADLINE_S,
        )

    def peer(
        self, client_id: str, *, clean: bool = True, keep: Properties = NO_PROPERTIES
    ) -> MqttPeer:
        """Open a session."""
        peer = MqttPeer(LOOPBACK, self.port, Version.V5)
        peer.open(client_id, clean=clean, properties=keep)
        return peer

    def still_serves(self) -> None:
        """Pass one message from a newcomer to a newcomer."""
        with self.peer("witness") as witness:
            witness.subscribe("witness/t", options=1)
            witness.send_publish("witness/t", b"alive", qos=1)
            kinds = {type(witness.receive()).__name__ for _ in range(2)}
            assert kinds == {"Publish", "Ack"}


@contextmanager
def run_victim(*arguments: str, **limits: int) -> Iterator[Victim]:
    """Run a broker with two shards and little to say."""
    environment = {
        f"QUANTUMQTT_LIMITS__{name.upper()}": str(value) for name, value in limits.items()
    }
    quiet = ("--shards", "2", "--admin", f"{LOOPBACK}:0", "--log-level", "error")
    with NodeProcess(*quiet, *arguments, environment=environment) as process:
        yield Victim(process)


@pytest.fixture(scope="module")
def victim() -> Iterator[Victim]:
    """Share one broker among the tests of a file: each leaves it as it was, or fails."""
    with run_victim() as running:
        yield running


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Run a node with two shards in this process."""
    with our_broker(2, Limits()) as running:
        yield running
