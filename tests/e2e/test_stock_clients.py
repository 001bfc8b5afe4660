"""Other people's Python clients against `quantumqtt serve`: paho-mqtt, aiomqtt and gmqtt.

Each is driven through the same few verbs, so that every story is told once for all of them. Lost
connections are real: a proxy between client and broker drops them.
"""

import asyncio
import contextlib
import functools
import gc
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import uuid4

import aiomqtt
import gmqtt
import paho.mqtt.client as paho
import pytest
from gmqtt.mqtt.constants import MQTTv50, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.harness.cutting_proxy import CuttingProxy
from tests.harness.node_process import NodeProcess
from tests.harness.paho_sockets import close_paho_sockets
from tests.harness.ports import LOOPBACK

DEADLINE_S = 20.0
KEPT_S: Final = 3_600

pytestmark = [
    pytest.mark.requirement("WIRE-22"),
    pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning"),
]


@dataclass(frozen=True, slots=True)
class Got:
    """A message as it came."""

    topic: str
    payload: bytes
    qos: int
    retain: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """How a client is to connect; with `is_kept` its session outlives the connection."""

    client_id: str
    is_v5: bool
    is_kept: bool = False
    will: tuple[str, bytes] | None = None


class Stock(Protocol):
    """What every story needs of a client."""

    def __init__(self, plan: Plan) -> None: ...

    async def connect(self, port: int) -> None:
        """Connect and wait for CONNACK."""
        ...

    async def subscribe(self, topic: str, qos: int) -> None:
        """Subscribe and wait for SUBACK."""
        ...

    async def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool) -> None:
        """Hand a message to the client."""
        ...

    async def receive(self) -> Got:
        """Wait for the next message."""
        ...

    async def leave(self) -> None:
        """Say DISCONNECT, if there is a connection, and end."""
        ...


def connect_properties(plan: Plan) -> Properties | None:
    if not (plan.is_v5 and plan.is_kept):
        return None
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = KEPT_S
    return properties


class Paho:
    """paho-mqtt, whose callbacks come on a thread of its own."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        self._got: asyncio.Queue[Got] = asyncio.Queue()
        self._happened: asyncio.Queue[str] = asyncio.Queue()
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2,
            plan.client_id,
            clean_session=None if plan.is_v5 else not plan.is_kept,
            protocol=paho.MQTTv5 if plan.is_v5 else paho.MQTTv311,
            reconnect_on_failure=False,
        )
        if plan.will is not None:
            self._client.will_set(*plan.will, qos=1)
        self._client.on_connect = lambda *_: self._say("connected")
        self._client.on_subscribe = lambda *_: self._say("subscribed")
        self._client.on_message = lambda _client, _data, message: self._put(message)

    def _say(self, word: str) -> None:
        self._loop.call_soon_threadsafe(self._happened.put_nowait, word)

    def _put(self, message: paho.MQTTMessage) -> None:
        got = Got(message.topic, bytes(message.payload), message.qos, message.retain)
        self._loop.call_soon_threadsafe(self._got.put_nowait, got)

    async def connect(self, port: int) -> None:
        properties = connect_properties(self._plan)
        clean = not self._plan.is_kept if self._plan.is_v5 else paho.MQTT_CLEAN_START_FIRST_ONLY
        connect = functools.partial(
            self._client.connect, LOOPBACK, port, clean_start=clean, properties=properties
        )
        await asyncio.to_thread(connect)
        self._client.loop_start()
        assert await self._happened.get() == "connected"

    async def subscribe(self, topic: str, qos: int) -> None:
        self._client.subscribe(topic, qos)
        assert await self._happened.get() == "subscribed"

    async def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool) -> None:
        self._client.publish(topic, payload, qos, retain)

    async def receive(self) -> Got:
        return await self._got.get()

    async def leave(self) -> None:
        self._client.disconnect()
        await asyncio.to_thread(self._client.loop_stop)


class Aiomqtt:
    """aiomqtt, which is paho-mqtt behind asyncio."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._ending = AsyncExitStack()
        self._client: aiomqtt.Client

    async def connect(self, port: int) -> None:
        plan = self._plan
        self._client = aiomqtt.Client(
            LOOPBACK,
            port,
            identifier=plan.client_id,
            protocol=aiomqtt.ProtocolVersion.V5 if plan.is_v5 else aiomqtt.ProtocolVersion.V311,
            clean_session=None if plan.is_v5 else not plan.is_kept,
            clean_start=not plan.is_kept if plan.is_v5 else paho.MQTT_CLEAN_START_FIRST_ONLY,
            properties=connect_properties(plan),
            will=None if plan.will is None else aiomqtt.Will(*plan.will, qos=1),
        )
        await self._ending.enter_async_context(self._client)

    async def subscribe(self, topic: str, qos: int) -> None:
        await self._client.subscribe(topic, qos)

    async def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool) -> None:
        await self._client.publish(topic, payload, qos, retain)

    async def receive(self) -> Got:
        message = await anext(aiter(self._client.messages))
        assert isinstance(message.payload, bytes)
        return Got(message.topic.value, message.payload, message.qos, message.retain)

    async def leave(self) -> None:
        # A connection that is lost already cannot be left.
        with contextlib.suppress(aiomqtt.MqttError):
            await self._ending.aclose()


class Gmqtt:
    """gmqtt, a client of its own for asyncio."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        will = None if plan.will is None else gmqtt.Message(*plan.will, qos=1)
        expiry = {"session_expiry_interval": KEPT_S} if plan.is_v5 and plan.is_kept else {}
        self._client = gmqtt.Client(
            plan.client_id, clean_session=not plan.is_kept, will_message=will, **expiry
        )
        self._client.set_config({"reconnect_retries": 0, "reconnect_delay": 0})
        self._got: asyncio.Queue[Got] = asyncio.Queue()
        self._granted = asyncio.Event()
        self._client.on_message = self._on_message
        self._client.on_subscribe = lambda *_, **__: self._granted.set()

    def _on_message(
        self, _client: gmqtt.Client, topic: str, payload: bytes, qos: int, facts: dict[str, object]
    ) -> int:
        self._got.put_nowait(Got(topic, payload, qos, bool(facts["retain"])))
        return 0

    async def connect(self, port: int) -> None:
        version = MQTTv50 if self._plan.is_v5 else MQTTv311
        await self._client.connect(LOOPBACK, port, version=version)

    async def subscribe(self, topic: str, qos: int) -> None:
        self._granted.clear()
        self._client.subscribe(topic, qos)
        await self._granted.wait()

    async def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool) -> None:
        self._client.publish(topic, payload, qos, retain)

    async def receive(self) -> Got:
        return await self._got.get()

    async def leave(self) -> None:
        await self._client.disconnect()


Story = Callable[["Stage"], Coroutine[object, object, None]]


@dataclass(frozen=True, slots=True)
class Stage:
    """One kind of client in one version, and a broker."""

    kind: type[Stock]
    is_v5: bool
    port: int
    leaving: AsyncExitStack
    name: str

    async def client(
        self,
        *,
        client_id: str = "",
        is_kept: bool = False,
        will: tuple[str, bytes] | None = None,
        port: int | None = None,
    ) -> Stock:
        """Connect another one; it leaves when the story is over."""
        one = self.kind(Plan(client_id or uuid4().hex[:20], self.is_v5, is_kept, will))
        await one.connect(self.port if port is None else port)
        self.leaving.push_async_callback(one.leave)
        return one


@pytest.fixture(
    params=[
        pytest.param((kind, is_v5), id=f"{kind.__name__}-{'5' if is_v5 else '3.1.1'}")
        for kind in (Paho, Aiomqtt, Gmqtt)
        for is_v5 in (False, True)
    ]
)
def tell(request: pytest.FixtureRequest, server: NodeProcess) -> Iterator[Callable[[Story], None]]:
    kind, is_v5 = request.param

    async def live(story: Story) -> None:
        async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as leaving:
            await story(Stage(kind, is_v5, server.port, leaving, f"stock/{uuid4().hex}"))

    yield lambda story: asyncio.run(live(story))
    close_paho_sockets()
    with warnings.catch_warnings():
        # gmqtt leaves transports that were cut to the collector, which complains; so it runs here.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_every_qos_passes(tell: Callable[[Story], None]) -> None:
    async def story(stage: Stage) -> None:
        reader, writer = await stage.client(), await stage.client()
        await reader.subscribe(f"{stage.name}/+", 2)
        for qos in (0, 1, 2):
            await writer.publish(f"{stage.name}/{qos}", b"hello", qos, retain=False)
            assert await reader.receive() == Got(f"{stage.name}/{qos}", b"hello", qos, retain=False)

    tell(story)


def test_what_is_retained_greets_who_comes_later(tell: Callable[[Story], None]) -> None:
    async def story(stage: Stage) -> None:
        early, writer, late = [await stage.client() for _ in range(3)]
        await early.subscribe(stage.name, 1)
        await writer.publish(stage.name, b"kept", 1, retain=True)
        assert await early.receive() == Got(stage.name, b"kept", 1, retain=False)
        await late.subscribe(stage.name, 1)
        assert await late.receive() == Got(stage.name, b"kept", 1, retain=True)

    tell(story)


def test_a_will_speaks_for_who_is_lost(tell: Callable[[Story], None]) -> None:
    async def story(stage: Stage) -> None:
        reader = await stage.client()
        await reader.subscribe(stage.name, 1)
        async with CuttingProxy(stage.port, seed=1, bytes_min=1, bytes_max=1) as proxy:
            await stage.client(will=(stage.name, b"gone"), port=proxy.port)
            proxy.cut_all()
            assert await reader.receive() == Got(stage.name, b"gone", 1, retain=False)

    tell(story)


def test_a_session_is_found_again_with_what_it_missed(tell: Callable[[Story], None]) -> None:
    async def story(stage: Stage) -> None:
        client_id = uuid4().hex[:20]
        writer = await stage.client()
        async with CuttingProxy(stage.port, seed=1, bytes_min=1, bytes_max=1) as proxy:
            lost = await stage.client(client_id=client_id, is_kept=True, port=proxy.port)
            await lost.subscribe(stage.name, 1)
            proxy.cut_all()
        await writer.publish(stage.name, b"missed", 1, retain=False)
        back = await stage.client(client_id=client_id, is_kept=True)
        assert await back.receive() == Got(stage.name, b"missed", 1, retain=False)

    tell(story)
