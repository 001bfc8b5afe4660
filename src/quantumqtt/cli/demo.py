"""Simulated devices: something to look at before there are real ones.

Four kinds, on two sites, all below `demo/`. Each device has a retained `status` that a will takes
back when it vanishes, and publishes JSON with QoS 1 or 2; what it measures follows from its seed
and the clock. Now and then one falls off the network and comes back, so that wills are seen, too.
"""

import asyncio
import json
import logging
import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from quantumqtt.client import Client, Will
from quantumqtt.errors import QuantuMQTTError

_log = logging.getLogger(__name__)

SITES: Final = ("north", "south")
_DAY_S: Final = 300.0  # the sun of the demonstration rises every five minutes
_AWAY_S: Final = 3.0

Reading = Mapping[str, object]


@dataclass(slots=True)
class Device:
    """One device: what it measures, how often, and how surely it must arrive."""

    site: str
    kind: str
    number: int
    measure: Callable[["Device", float], Reading]
    period_s: float
    qos: int
    falls_off: float = 0.0
    dice: random.Random = field(default_factory=random.Random)
    total: float = 0.0

    @property
    def name(self) -> str:
        """Its client id."""
        return f"demo-{self.site}-{self.kind}-{self.number}"

    @property
    def topic(self) -> str:
        """What its topics begin with."""
        return f"demo/{self.site}/{self.kind}/{self.number}"

    def read(self, now_s: float) -> Reading:
        """Measure once."""
        return self.measure(self, now_s)


def climate(device: Device, now_s: float) -> Reading:
    """Temperature and humidity, warmer by day."""
    day = math.sin(now_s / _DAY_S * math.tau)
    return {
        "celsius": round(18 + device.number + 6 * day + device.dice.gauss(0, 0.2), 2),
        "humidity": round(55 - 15 * day + device.dice.gauss(0, 1), 1),
    }


def meter(device: Device, now_s: float) -> Reading:
    """Power now, and energy since the beginning."""
    watts = max(0.0, 900 + 600 * math.sin(now_s / 40 + device.number) + device.dice.gauss(0, 50))
    device.total += watts * device.period_s / 3_600_000
    return {"watts": round(watts), "kwh": round(device.total, 6)}


def door(device: Device, _now_s: float) -> Reading:
    """Who went through; an event more than a measurement, so it must arrive once."""
    device.total += 1
    return {"event": device.dice.choice(("opened", "closed")), "count": int(device.total)}


def pump(device: Device, now_s: float) -> Reading:
    """Speed and vibration; one of them is wearing out."""
    wear = (now_s % _DAY_S) / _DAY_S if device.number == 1 else 0.1
    return {
        "rpm": round(1_480 + device.dice.gauss(0, 4)),
        "vibration_mm_s": round(1.2 + 5 * wear + abs(device.dice.gauss(0, 0.3)), 2),
    }


def devices() -> list[Device]:
    """The fleet of the demonstration."""
    made: list[Device] = []
    for site in SITES:
        made += [Device(site, "climate", number, climate, 1.0, 1) for number in (1, 2, 3)]
        made += [Device(site, "meter", number, meter, 0.5, 1) for number in (1, 2)]
        made += [Device(site, "door", 1, door, 2.0, 2, falls_off=0.05)]
        made += [Device(site, "pump", number, pump, 0.5, 1) for number in (1, 2)]
    for seed, device in enumerate(made):
        device.dice.seed(seed)
    return made


class Fleet:
    """Runs the devices on the running loop, each with a client of its own."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("tcp://", "mqtt://", 1)
        self._devices = devices()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._devices)

    def start(self) -> None:
        """Begin to connect."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._live(device), name=device.name) for device in self._devices
        ]

    async def stop(self) -> None:
        """Have every device say goodbye."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _live(self, device: Device) -> None:
        while True:
            try:
                await self._be_online(device)
            except QuantuMQTTError as error:
                _log.warning("a device has failed", extra={"device": device.name, "why": error})
            await asyncio.sleep(_AWAY_S)

    async def _be_online(self, device: Device) -> None:
        """Measure until something breaks, or until it falls off the network by itself."""
        status = f"{device.topic}/status"
        will = Will(topic=status, payload=json.dumps({"online": False}), qos=1, retain=True)
        client = Client(self._url, client_id=device.name, will=will, keep_alive_s=20)
        vanishes = False
        try:
            await client.connect()
            await client.publish(status, json.dumps({"online": True}), qos=1, retain=True)
            while not vanishes:
                reading = {"at": round(time.time(), 3), **device.read(time.time())}
                await client.publish(
                    f"{device.topic}/telemetry",
                    json.dumps(reading),
                    qos=device.qos,
                    content_type="application/json",
                )
                await asyncio.sleep(device.period_s * device.dice.uniform(0.8, 1.2))
                vanishes = device.dice.random() < device.falls_off
        finally:
            # Also at the end of the demonstration: nothing is online any more.
            await client.close(with_will=True)
