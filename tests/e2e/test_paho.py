"""paho-mqtt against `quantumqtt serve`: the client most Python programs use."""

import queue
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from tests.harness.node_process import NodeProcess
from tests.harness.ports import LOOPBACK

DEADLINE_S = 20.0
CLIENTS = 50
MESSAGES_EACH = 20
VERSIONS = (
    MQTTProtocolVersion.MQTTv31,
    MQTTProtocolVersion.MQTTv311,
    MQTTProtocolVersion.MQTTv5,
)

pytestmark = pytest.mark.requirement("WIRE-22")
each_version = pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)


class Mailbox:
    """One paho client on a thread of its own, and what it received."""

    def __init__(self, client_id: str, version: MQTTProtocolVersion, *, clean: bool = True) -> None:
        self.received: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self._granted: queue.Queue[list[int]] = queue.Queue()
        self._is_connected = threading.Event()
        is_v5 = version == MQTTProtocolVersion.MQTTv5
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=None if is_v5 else clean,
            protocol=version,
        )
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = self._on_subscribe
        self.client.on_message = self._on_message

    def connect(self, port: int) -> None:
        """Connect and wait for CONNACK."""
        self.client.connect(LOOPBACK, port)
        self.client.loop_start()
        assert self._is_connected.wait(DEADLINE_S), "no CONNACK"

    def subscribe(self, topic: str, qos: int) -> list[int]:
        """Subscribe and wait for the granted codes."""
        self.client.subscribe(topic, qos)
        return self._granted.get(timeout=DEADLINE_S)

    def take(self) -> paho.MQTTMessage:
        """Wait for the next message."""
        return self.received.get(timeout=DEADLINE_S)

    def stop(self) -> None:
        """Say DISCONNECT and end the thread."""
        self.client.disconnect()
        self.client.loop_stop()

    def _on_connect(
        self,
        client: paho.Client,
        userdata: object,
        flags: paho.ConnectFlags,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        assert not reason.is_failure
        self._is_connected.set()

    def _on_subscribe(
        self,
        client: paho.Client,
        userdata: object,
        packet_id: int,
        reasons: list[ReasonCode],
        properties: Properties | None,
    ) -> None:
        self._granted.put([reason.value for reason in reasons])

    def _on_message(self, client: paho.Client, userdata: object, message: paho.MQTTMessage) -> None:
        self.received.put(message)


@contextmanager
def mailbox(
    port: int, client_id: str, version: MQTTProtocolVersion, *, clean: bool = True
) -> Iterator[Mailbox]:
    """Connect one client and stop it at the end."""
    box = Mailbox(client_id, version, clean=clean)
    box.connect(port)
    try:
        yield box
    finally:
        box.stop()


@each_version
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_passes_at_each_qos(
    server: NodeProcess, version: MQTTProtocolVersion, qos: int
) -> None:
    topic = f"paho/{version}/{qos}"
    with mailbox(server.port, f"paho-{version}-{qos}", version) as box:
        assert box.subscribe(topic, 2) == [2]
        box.client.publish(topic, b"hello", qos).wait_for_publish(DEADLINE_S)
        message = box.take()
        assert (message.topic, message.payload, message.qos) == (topic, b"hello", qos)
        assert not message.retain


@pytest.mark.requirement("SES-02", "SES-06")
@pytest.mark.parametrize("version", VERSIONS[:2], ids=lambda version: version.name)
def test_a_session_gets_what_it_missed(server: NodeProcess, version: MQTTProtocolVersion) -> None:
    topic = f"paho/missed/{version}"
    client_id = f"paho-kept-{version}"
    with mailbox(server.port, client_id, version, clean=False) as box:
        assert box.subscribe(topic, 1) == [1]
    with mailbox(server.port, "paho-publisher", version) as publisher:
        publisher.client.publish(topic, b"missed", 1).wait_for_publish(DEADLINE_S)
    with mailbox(server.port, client_id, version, clean=False) as box:
        assert box.take().payload == b"missed"


@pytest.mark.requirement("QOS-11", "DP-14")
def test_fifty_clients_exchange_qos_1_messages_without_loss(server: NodeProcess) -> None:
    """Each publishes to its neighbour; every message arrives once, in order."""
    with ExitStack() as running:
        boxes = [
            running.enter_context(mailbox(server.port, f"ring-{number}", VERSIONS[1 + number % 2]))
            for number in range(CLIENTS)
        ]
        for number, box in enumerate(boxes):
            assert box.subscribe(f"ring/{number}", 1) == [1]
        tokens = [
            box.client.publish(f"ring/{(number + 1) % CLIENTS}", b"%d" % step, 1)
            for step in range(MESSAGES_EACH)
            for number, box in enumerate(boxes)
        ]
        for token in tokens:
            token.wait_for_publish(DEADLINE_S)
            assert token.is_published()
        for box in boxes:
            received = [box.take().payload for _ in range(MESSAGES_EACH)]
            assert received == [b"%d" % step for step in range(MESSAGES_EACH)]
            assert box.received.empty()
