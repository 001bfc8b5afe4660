"""Programs written for aiomqtt run over our client; each test also runs with aiomqtt.

What both do the same way is what the compatibility is worth.
"""

import asyncio
from collections.abc import Iterator
from types import ModuleType
from uuid import uuid4

import aiomqtt as theirs
import pytest

from quantumqtt.compat import aiomqtt as ours
from quantumqtt.compat.paho import PacketTypes, Properties, SubscribeOptions
from quantumqtt.errors import QuantuMQTTError
from tests.client.conftest import Peer
from tests.harness.paho_sockets import close_paho_sockets
from tests.harness.ports import LOOPBACK, free_port
from tests.harness.scripted_server import CONNACK_3, ScriptedServer

DEADLINE_S = 20.0


@pytest.fixture(params=["ours", "theirs"])
def aiomqtt(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    yield ours if request.param == "ours" else theirs
    close_paho_sockets()


def name() -> str:
    return f"test/{uuid4().hex}"


async def test_the_first_program_of_its_manual(aiomqtt: ModuleType, our_port: int) -> None:
    topic, got = name(), []
    async with (
        asyncio.timeout(DEADLINE_S),
        aiomqtt.Client(LOOPBACK, our_port, identifier=uuid4().hex[:12]) as client,
    ):
        assert len(client.identifier) == 12
        await client.subscribe(f"{topic}/+/humidity", qos=1)
        await client.subscribe([(f"{topic}/one", 0), (f"{topic}/two", 2)])
        await client.publish(f"{topic}/inside/humidity", payload=0.38, qos=1)
        await client.publish(f"{topic}/two", payload=b"2", qos=2)
        async for message in client.messages:
            got.append((message.topic.value, message.payload))
            if message.topic.matches(f"{topic}/+/humidity"):
                assert message.payload == b"0.38"
            if len(got) == 2:
                break
        await client.unsubscribe([f"{topic}/one", f"{topic}/two"])
    assert got == [(f"{topic}/inside/humidity", b"0.38"), (f"{topic}/two", b"2")]


async def test_a_client_is_entered_again_and_not_twice_at_once(
    aiomqtt: ModuleType, our_port: int
) -> None:
    client = aiomqtt.Client(LOOPBACK, our_port)
    for _ in range(2):
        async with client:
            await client.publish(name(), "x", qos=1)
            with pytest.raises(aiomqtt.MqttReentrantError):
                await client.__aenter__()


async def test_a_lost_connection_raises_where_programs_wait_for_it() -> None:
    """Also when it was lost before anybody waited; aiomqtt 2.5 waits for ever then."""

    def leave(link: object) -> None:
        link.recv(1000)  # type: ignore[attr-defined]
        link.sendall(CONNACK_3)  # type: ignore[attr-defined]

    with ScriptedServer(leave) as server:
        async with asyncio.timeout(DEADLINE_S):
            async with ours.Client(LOOPBACK, server.port) as client:
                with pytest.raises(ours.MqttError, match="Disconnected during"):
                    await anext(aiter(client.messages))


async def test_errors_have_their_types(aiomqtt: ModuleType, our_port: int) -> None:
    with pytest.raises(aiomqtt.MqttError):
        async with aiomqtt.Client(LOOPBACK, free_port()):
            pass
    async with aiomqtt.Client(LOOPBACK, our_port) as client:
        with pytest.raises(ValueError):  # noqa: PT011 - each library has its own words
            await client.publish("a/#", b"x")
        with pytest.raises(ValueError):  # noqa: PT011 - as above
            await client.subscribe("a/#/b")
    with pytest.raises(aiomqtt.MqttError):
        await client.publish("a", b"x", timeout=0.1)


@pytest.mark.parametrize(
    ("wildcard", "expected"),
    [("a/b", True), ("a/+", True), ("#", True), ("$share/g/a/#", True), ("b/#", False)],
)
def test_topics_are_asked_about_filters(aiomqtt: ModuleType, wildcard: str, expected: bool) -> None:
    topic = aiomqtt.Topic("a/b")
    assert topic.matches(wildcard) is expected
    assert topic.matches(aiomqtt.Wildcard(wildcard)) is expected
    assert str(topic) == "a/b"
    with pytest.raises(ValueError):  # noqa: PT011 - each library has its own words
        aiomqtt.Topic("a/#")


async def test_properties_wills_and_options_of_mqtt_5(peer: Peer) -> None:
    if peer.version != "5":
        pytest.skip("properties are MQTT 5")
    topic, will = name(), Properties(PacketTypes.WILLMESSAGE)
    will.ContentType = "text/plain"
    session = Properties(PacketTypes.CONNECT)
    session.SessionExpiryInterval = 60
    async with asyncio.timeout(DEADLINE_S):
        async with ours.Client(
            LOOPBACK,
            peer.port,
            protocol=ours.ProtocolVersion.V5,
            will=ours.Will(f"{topic}/will", "gone", qos=1, properties=will),
            clean_start=False,
            properties=session,
            identifier=uuid4().hex[:20],
        ) as client:
            granted = await client.subscribe(topic, options=SubscribeOptions(qos=1))
            assert granted == (1,)
            await client.subscribe("#", qos=0)
            await client.unsubscribe("#")
            given = Properties(PacketTypes.PUBLISH)
            given.UserProperty = ("a", "1")
            await client.publish(topic, "x", qos=1, properties=given)
            message = await anext(client.messages)
            assert message.properties is not None
            assert message.properties.UserProperty == [("a", "1")]  # type: ignore[attr-defined]
            assert not message < message
            again = client
        # The session is resumed: what came meanwhile waits there.
        async with ours.Client(LOOPBACK, peer.port) as other:
            await other.publish(topic, "meanwhile", qos=1)
        async with again:
            assert (await anext(again.messages)).payload == b"meanwhile"
            assert len(again.messages) == 0


def test_wrong_arguments_fail_where_they_stand() -> None:
    with pytest.raises((ValueError, QuantuMQTTError)):
        ours.Client(LOOPBACK, keepalive=-1)
    with pytest.raises(FileNotFoundError):
        ours.Client(LOOPBACK, tls_params=ours.TLSParameters(ca_certs="/absent"))
