"""Clients nobody here wrote, and our own, through every kind of listener."""

import json
import queue
import subprocess
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from quantumqtt.client import SyncClient
from tests.harness.certificates import Authority, Credentials
from tests.harness.live_broker import LiveBroker
from tests.harness.ports import LOOPBACK
from tests.transports.conftest import StartBroker

DEADLINE_S = 30.0


@pytest.fixture
def broker(start: StartBroker, authority: Authority, tmp_path: Path) -> LiveBroker:
    """One of each: tls with client certificates, wss, ws, unix."""
    server = authority.server()
    return start(
        tls={"certificate": server.certificate, "key": server.key},
        listener=[
            {
                "url": f"tls://{LOOPBACK}:0",
                "certificate": server.certificate,
                "key": server.key,
                "client_ca": authority.file,
                "require_client_certificate": True,
            },
            {"url": f"wss://{LOOPBACK}:0/mqtt"},
            {"url": f"ws://{LOOPBACK}:0/mqtt"},
            {"url": f"unix://{tmp_path / 'mqtt.sock'}"},
        ],
    )


@pytest.mark.requirement("NET-13")
@pytest.mark.parametrize("number", range(4), ids=["tls", "wss", "ws", "unix"])
def test_our_own_client(broker: LiveBroker, authority: Authority, number: int) -> None:
    listener = broker.listeners[number]
    scheme = {"tls": "mqtts", "unix": "unix"}.get(listener.scheme, listener.scheme)
    url = f"{scheme}://localhost:{listener.port}/mqtt"
    if scheme == "unix":
        url = f"unix://{listener.host}"
    elif scheme == "mqtts":
        url = url.removesuffix("/mqtt")
    client = authority.client("own-client") if listener.scheme == "tls" else None
    tls = authority.context(client) if listener.scheme in {"tls", "wss"} else None
    with SyncClient(url, tls=tls) as connected:
        subscription = connected.subscribe("t", qos=1)
        subscription.ready.wait(DEADLINE_S)
        connected.publish("t", bytes(200_000), qos=2).wait(DEADLINE_S)
        assert len(subscription.get(DEADLINE_S).payload) == 200_000
    opened = broker.wait_event("session_opened", listener=listener.name)
    assert opened.user_name == ("own-client" if client else None)


@pytest.mark.requirement("NET-13")
@pytest.mark.parametrize("number", range(4), ids=["tls", "wss", "ws", "unix"])
def test_paho(broker: LiveBroker, authority: Authority, number: int) -> None:
    listener = broker.listeners[number]
    transport = {"ws": "websockets", "wss": "websockets", "unix": "unix"}.get(
        listener.scheme, "tcp"
    )
    client = paho.Client(CallbackAPIVersion.VERSION2, transport=transport)  # type: ignore[arg-type]
    if listener.scheme in {"tls", "wss"}:
        client.tls_set_context(authority.context(authority.client("paho")))
    if transport == "websockets":
        client.ws_set_options(path="/mqtt")
    heard: queue.Queue[bytes] = queue.Queue()

    def subscribe(*_: object) -> None:
        client.subscribe("t", qos=1)

    def publish(*_: object) -> None:
        client.publish("t", bytes(100_000), qos=1)

    client.on_connect = subscribe
    client.on_subscribe = publish
    client.on_message = lambda _client, _data, message: heard.put(bytes(message.payload))
    host = listener.host if transport == "unix" else "localhost"
    client.connect(host, listener.port or 1883)
    client.loop_start()
    try:
        assert heard.get(timeout=DEADLINE_S) == bytes(100_000)
    finally:
        client.disconnect()
        client.loop_stop()


def mosquitto(
    program: str, broker: LiveBroker, authority: Authority, shown: Credentials
) -> list[str]:
    files = ("--cafile", authority.file, "--cert", shown.certificate, "--key", shown.key)
    return [program, "-h", "localhost", "-p", str(broker.listeners[0].port), *map(str, files)]


@pytest.mark.requirement("NET-01")
@pytest.mark.needs_program("mosquitto_sub")
def test_mosquitto_tools_with_client_certificates(broker: LiveBroker, authority: Authority) -> None:
    shown = authority.client("tools")
    said = (*mosquitto("mosquitto_pub", broker, authority, shown), "-t", "t", "-q", "1")
    subprocess.run([*said, "-r", "-m", "hello"], check=True, timeout=DEADLINE_S)
    asked = (*mosquitto("mosquitto_sub", broker, authority, shown), "-t", "t", "-C", "1")
    got = subprocess.run(
        [*asked, "-F", "%j"], check=True, timeout=DEADLINE_S, capture_output=True, text=True
    )
    assert json.loads(got.stdout)["payload"] == "hello"
    assert broker.wait_event("session_opened", user_name="tools").listener == "tls-1"
    without = subprocess.run(
        [*said[:7], "-t", "t", "-m", "x"], check=False, timeout=DEADLINE_S, capture_output=True
    )
    assert without.returncode != 0
    broker.wait_event("connection_refused", reason="certificate_missing")


@pytest.mark.needs_program("mosquitto_sub")
def test_mosquitto_tools_over_a_unix_socket(broker: LiveBroker) -> None:
    path = broker.listeners[3].host
    said = ["mosquitto_pub", "--unix", path, "-t", "t", "-r", "-m", "local"]
    subprocess.run(said, check=True, timeout=DEADLINE_S)
    got = subprocess.run(
        ["mosquitto_sub", "--unix", path, "-t", "t", "-C", "1"],
        check=True,
        timeout=DEADLINE_S,
        capture_output=True,
    )
    assert got.stdout == b"local\n"
