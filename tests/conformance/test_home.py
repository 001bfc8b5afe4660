"""A smart home, as its programs speak: a Tasmota plug, Zigbee2MQTT, and Home Assistant on 5."""

import json

import pytest

from tests.conformance.conftest import Broker
from tests.harness import packets
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.packets import Key, Publish, SubAck, Version, Will

pytestmark = pytest.mark.requirement("WIRE-22")


def tasmota(broker: Broker, *, clean: bool = True) -> MqttPeer:
    """Come up as its firmware does: will, birth, commands, discovery, telemetry, all at once."""
    will = Will("tele/plug/LWT", b"Offline", qos=1, retain=True)
    plug = broker.client(Version.V311, "DVES_1A2B3C", clean=clean, keep_alive_s=30, will=will)
    plug.send(
        packets.publish("tele/plug/LWT", b"Online", version=Version.V311, retain=True),
        packets.publish("cmnd/plug/POWER", b"", version=Version.V311),
        *(
            packets.subscribe(number, (name, 0), version=Version.V311)
            for number, name in enumerate(
                ("cmnd/plug/#", "cmnd/tasmotas/#", "cmnd/DVES_1A2B3C_fb/#"), start=1
            )
        ),
        packets.publish(
            "tasmota/discovery/1A2B3C/config",
            json.dumps({"dn": "plug", "t": "plug"}).encode(),
            version=Version.V311,
            retain=True,
        ),
    )
    acks = 0
    while acks < 3:
        acks += isinstance(plug.receive(), SubAck)
    return plug


def retained_of(reader: MqttPeer, *filters: str) -> dict[str, bytes]:
    """Subscribe as Home Assistant does, and collect what is there."""
    reader.send(packets.subscribe(9, *((name, 1) for name in filters), version=reader.version))
    found: dict[str, bytes] = {}
    wanted = 5
    while len(found) < wanted:
        message = reader.receive()
        if isinstance(message, Publish):
            reader.acknowledge(message)
            found[message.topic] = message.payload
    return found


def test_a_home_comes_up_is_switched_and_loses_power(broker: Broker) -> None:
    plug = tasmota(broker)
    bridge_will = Will("zigbee2mqtt/bridge/state", b'{"state":"offline"}', qos=1, retain=True)
    bridge = broker.client(Version.V311, "mqttjs_8f2e", will=bridge_will)
    for topic, payload in (
        ("zigbee2mqtt/bridge/state", b'{"state":"online"}'),
        ("homeassistant/light/0x01/light/config", b'{"command_topic":"zigbee2mqtt/lamp/set"}'),
        ("zigbee2mqtt/lamp", b'{"state":"OFF"}'),
    ):
        bridge.publish(topic, payload, qos=1, retain=True)
    assert bridge.subscribe("zigbee2mqtt/+/set", "homeassistant/status") == (0, 0)

    hub_will = Will("homeassistant/status", b"offline", retain=True)
    hub = broker.client(Version.V5, "homeassistant", will=hub_will)
    found = retained_of(
        hub, "homeassistant/+/+/+/config", "tasmota/discovery/#", "zigbee2mqtt/#", "tele/+/LWT"
    )
    assert found["tele/plug/LWT"] == b"Online"
    assert found["zigbee2mqtt/bridge/state"] == b'{"state":"online"}'
    assert json.loads(found["tasmota/discovery/1A2B3C/config"])["t"] == "plug"
    command = json.loads(found["homeassistant/light/0x01/light/config"])["command_topic"]

    hub.publish("homeassistant/status", b"online")
    assert bridge.receive_a(Publish).payload == b"online"
    hub.publish(command, b'{"state":"ON"}')
    assert bridge.receive_a(Publish).topic == "zigbee2mqtt/lamp/set"
    bridge.publish("zigbee2mqtt/lamp", b'{"state":"ON"}', retain=True)
    # Its own command comes back to it on `zigbee2mqtt/#`, before the new state.
    echoes = [hub.take() for _ in range(2)]
    assert [echo.payload for echo in echoes] == [b'{"state":"ON"}'] * 2
    hub.subscribe("stat/plug/#", packet_id=11)
    hub.publish("cmnd/plug/POWER", b"TOGGLE")
    assert plug.receive_a(Publish).payload == b"TOGGLE"
    plug.publish("stat/plug/RESULT", b'{"POWER":"ON"}')
    plug.publish("stat/plug/POWER", b"ON")
    assert [hub.take().payload for _ in range(2)] == [b'{"POWER":"ON"}', b"ON"]

    plug.close()
    gone = hub.take()
    assert (gone.topic, gone.payload) == ("tele/plug/LWT", b"Offline")
    again = tasmota(broker)
    assert hub.take().payload == b"Online"
    again.ping()


def test_a_sensor_of_2010_reports_to_a_newer_hub(broker: Broker) -> None:
    hub = broker.client(Version.V5, "hub", properties=((Key.RECEIVE_MAXIMUM, 20),))
    hub.subscribe("sensors/+/temperature", options=2)
    sensor = broker.client(Version.V31, "sensor-1", keep_alive_s=10)
    for qos, reading in enumerate((b"20.5", b"20.6", b"20.7")):
        sensor.publish("sensors/1/temperature", reading, qos=qos)
    assert [hub.take().payload for _ in range(3)] == [b"20.5", b"20.6", b"20.7"]
    sensor.leave()


def test_a_home_without_its_bridge_and_after_a_restart_of_its_hub(broker: Broker) -> None:
    """What the retained messages tell those who come later: offline, and a device that is gone."""
    bridge_will = Will("zigbee2mqtt/bridge/state", b'{"state":"offline"}', qos=1, retain=True)
    bridge = broker.client(Version.V311, "mqttjs_8f2e", will=bridge_will)
    for topic, payload in (
        ("zigbee2mqtt/bridge/state", b'{"state":"online"}'),
        ("zigbee2mqtt/bridge/info", b'{"version":"2.1.0"}'),
        ("homeassistant/light/0x01/light/config", b'{"command_topic":"zigbee2mqtt/lamp/set"}'),
        ("homeassistant/light/0x02/light/config", b'{"command_topic":"zigbee2mqtt/tree/set"}'),
        ("zigbee2mqtt/lamp", b'{"state":"ON"}'),
    ):
        bridge.publish(topic, payload, qos=1, retain=True)
    bridge.subscribe("homeassistant/status", "zigbee2mqtt/bridge/request/#")
    watcher = broker.client(Version.V5, "watcher")
    watcher.subscribe("homeassistant/#")
    assert {watcher.receive_a(Publish).topic for _ in range(2)} == {
        "homeassistant/light/0x01/light/config",
        "homeassistant/light/0x02/light/config",
    }

    hub_will = Will("homeassistant/status", b"offline", retain=True)
    hub = broker.client(Version.V5, "homeassistant", will=hub_will)
    hub.publish("homeassistant/status", b"online", retain=True)
    assert [one.receive_a(Publish).payload for one in (bridge, watcher)] == [b"online"] * 2
    # A user removes a device: the bridge is asked, and takes the announcement back.
    hub.publish("zigbee2mqtt/bridge/request/device/remove", b'{"id":"tree"}')
    assert bridge.receive_a(Publish).topic == "zigbee2mqtt/bridge/request/device/remove"
    bridge.publish("homeassistant/light/0x02/light/config", b"", qos=1, retain=True)
    assert watcher.receive_a(Publish).payload == b""

    hub.close()
    assert [one.receive_a(Publish).payload for one in (bridge, watcher)] == [b"offline"] * 2
    state = broker.client(Version.V5, "state")
    state.subscribe("zigbee2mqtt/bridge/state")
    assert state.receive_a(Publish).payload == b'{"state":"online"}'
    bridge.close()
    assert state.receive_a(Publish).payload == b'{"state":"offline"}'

    again = broker.client(Version.V5, "homeassistant", will=hub_will)
    found = retained_of(
        again,
        *("homeassistant/+/+/+/config", "homeassistant/status", "zigbee2mqtt/#"),
    )
    assert found == {
        "homeassistant/status": b"offline",
        "homeassistant/light/0x01/light/config": b'{"command_topic":"zigbee2mqtt/lamp/set"}',
        "zigbee2mqtt/bridge/state": b'{"state":"offline"}',
        "zigbee2mqtt/bridge/info": b'{"version":"2.1.0"}',
        "zigbee2mqtt/lamp": b'{"state":"ON"}',
    }
    again.publish("homeassistant/status", b"online", retain=True)
    assert watcher.receive_a(Publish).payload == b"online"
