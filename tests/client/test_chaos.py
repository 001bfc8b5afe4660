"""Chaos between client and broker: nothing accepted is lost, nothing at QoS 2 comes twice.

The gate runs some seconds of it. The hour is `just soak-client`, or `just night`; `CHAOS_SECONDS`
says how long it is in all, over two brokers and two versions of MQTT.
"""

# Receipts can be awaited, and nobody has to.
# mypy: disable-error-code="unused-awaitable"

import asyncio
import contextlib
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path
from uuid import uuid4

import pytest

from quantumqtt.client import Backoff, Client, Message, Receipt
from quantumqtt.errors import QuantuMQTTError, SessionLost
from quantumqtt.testing import BrokerProcess
from tests.client.conftest import Peer
from tests.harness.cutting_proxy import LOSSLESS, CuttingProxy, Fault
from tests.harness.mosquitto_broker import MosquittoBroker
from tests.harness.process_facts import ProcessFacts

QUICK = Backoff(first_s=0.01, most_s=0.1)
PATIENCE_S = 60.0
NIGHT_S = float(os.environ.get("CHAOS_SECONDS", "3600"))


class Ledger:
    """What was accepted, and what came."""

    def __init__(self) -> None:
        self.sent: dict[int, Receipt] = {}
        self.got: Counter[int] = Counter()
        self.total = 0
        self._arrival = asyncio.Event()

    def on_message(self, message: Message) -> None:
        self.got[int(message.payload)] += 1
        self._arrival.set()

    async def settle(self) -> None:
        """Wait until the broker has everything; forget what is proved."""
        async with asyncio.timeout(PATIENCE_S):
            for receipt in self.sent.values():
                await receipt

    async def arrive(self) -> None:
        """Wait until everything came, and nothing twice that must not."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.sent.keys() <= self.got.keys():
                self._arrival.clear()
                await self._arrival.wait()
        twice = [number for number in self.sent if number % 2 and self.got[number] > 1]
        assert twice == []
        self.total += len(self.sent)


def client_through(proxy: CuttingProxy, peer: Peer, **options: object) -> Client:
    return Client(
        f"mqtt://127.0.0.1:{proxy.port}",
        version=peer.version,  # type: ignore[arg-type]
        client_id=uuid4().hex[:20],
        clean_start=False,
        session_expiry_s=600,
        keep_alive_s=5,
        reconnect=QUICK,
        **options,  # type: ignore[arg-type]
    )


async def run_chaos(peer: Peer, seed: int, ledger: Ledger, seconds: float, store: Path) -> int:
    """Both ends behind proxies that hurt them; returns how often they did."""
    topic, ends_at, number = f"test/{uuid4().hex}", time.monotonic() + seconds, 0
    dice = random.Random(seed)
    async with (
        CuttingProxy(peer.port, seed=seed, bytes_min=80, bytes_max=6000, faults=LOSSLESS) as up,
        CuttingProxy(
            peer.port, seed=seed + 1, bytes_min=80, bytes_max=6000, faults=LOSSLESS
        ) as down,
        client_through(down, peer) as receiver,
        client_through(up, peer, store=store) as sender,
    ):
        await receiver.handle(topic, ledger.on_message, qos=2).ready
        while time.monotonic() < ends_at:
            up.cuts_left = down.cuts_left = 4
            up.cut_all()
            down.cut_all()
            for _ in range(dice.randrange(50, 200)):
                ledger.sent[number] = sender.publish_nowait(topic, str(number), qos=1 + number % 2)
                number += 1
                if dice.random() < 0.2:
                    await asyncio.sleep(0)
            await ledger.settle()
            await ledger.arrive()
            ledger.sent.clear()
            ledger.got.clear()
        up.cuts_left = down.cuts_left = 0
    return up.cuts_total + down.cuts_total


@pytest.mark.requirement("CLI-16", "CLI-19")
@pytest.mark.parametrize("seed", [11, 12])
async def test_some_seconds_of_chaos(peer: Peer, seed: int, tmp_path: Path) -> None:
    assert await run_chaos(peer, seed, Ledger(), 1.5, tmp_path / "store") >= 3


@pytest.mark.night
@pytest.mark.timeout(0)
async def test_an_hour_of_chaos_leaves_nothing_behind(
    peer: Peer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, rounds, hurts, process = Ledger(), 0, 0, os.getpid()
    await run_chaos(peer, 0, ledger, 5, tmp_path / "warm")
    before, ends_at = ProcessFacts.of(process), time.monotonic() + NIGHT_S / 4
    while time.monotonic() < ends_at:
        rounds += 1
        hurts += await run_chaos(peer, rounds, ledger, 20, tmp_path / str(rounds))
    after = ProcessFacts.of(process)
    with capsys.disabled():
        told = f"{ledger.total} publishes, {hurts} connections hurt, none lost; {after}"
        sys.stdout.write(f"\n{peer}: {told}\n")
    assert after.descriptors <= before.descriptors
    assert after.threads <= before.threads + 1
    assert after.memory_kib < before.memory_kib + 16_384


@pytest.mark.needs_program("mosquitto")
@pytest.mark.requirement("CLI-19")
@pytest.mark.parametrize("version", ["3.1.1", "5"])
async def test_a_broker_that_is_restarted_loses_nothing_of_ours(
    version: str, tmp_path: Path
) -> None:
    """Stopped in order, and started again with what it had written."""
    topic, ledger = f"test/{uuid4().hex}", Ledger()
    broker = MosquittoBroker(tmp_path, persistent=True)
    broker.start()
    options = {
        "version": version,
        "clean_start": False,
        "session_expiry_s": 600,
        "reconnect": QUICK,
    }
    url = f"mqtt://127.0.0.1:{broker.port}"
    try:
        async with (
            Client(url, client_id="receiver", **options) as receiver,  # type: ignore[arg-type]
            Client(
                url,
                client_id="sender",
                store=tmp_path / "s",
                **options,  # type: ignore[arg-type]
            ) as sender,
        ):
            await receiver.handle(topic, ledger.on_message, qos=2).ready
            for number in range(600):
                ledger.sent[number] = sender.publish_nowait(topic, str(number), qos=1 + number % 2)
                if number in (200, 400):
                    await ledger.sent[number - 150]
                    await asyncio.to_thread(broker.stop)
                    await asyncio.to_thread(broker.start)
            await ledger.settle()
            await ledger.arrive()
    finally:
        broker.kill()


@pytest.mark.parametrize("version", ["3.1.1", "5"])
async def test_our_broker_killed_again_and_again_loses_nothing(
    version: str, tmp_path: Path
) -> None:
    """Killed as by a power cut, while both sides are at it: what `strict` durability is for."""
    broker, topic, ledger = BrokerProcess(tmp_path, "--durability", "strict"), "t", Ledger()

    def client(name: str, store: Path | None = None) -> Client:
        return Client(
            broker.url,
            client_id=name,
            store=store,
            version=version,  # type: ignore[arg-type]
            clean_start=False,
            session_expiry_s=600,
            reconnect=QUICK,
        )

    with broker:
        async with client("receiver") as receiver, client("sender", tmp_path / "s") as sender:
            await receiver.handle(topic, ledger.on_message, qos=2).ready
            for number in range(900):
                ledger.sent[number] = sender.publish_nowait(topic, str(number), qos=1 + number % 2)
                if number in (200, 450, 700):
                    await ledger.sent[number - 150]
                    await asyncio.to_thread(broker.kill_and_restart)
            await ledger.settle()
            await ledger.arrive()


@pytest.mark.needs_program("mosquitto")
async def test_a_broker_that_forgets_everything_is_reported(tmp_path: Path) -> None:
    """Killed, with nothing on disk: QoS 1 arrives, QoS 2 arrives or fails with its reason."""
    topic, ledger = f"test/{uuid4().hex}", Ledger()
    broker = MosquittoBroker(tmp_path)
    broker.start()
    url = f"mqtt://127.0.0.1:{broker.port}"
    try:
        async with (
            Client(url, version="5", reconnect=QUICK) as receiver,
            Client(url, version="5", reconnect=QUICK) as sender,
        ):
            await receiver.handle(topic, ledger.on_message, qos=2).ready
            for number in range(400):
                ledger.sent[number] = sender.publish_nowait(topic, str(number), qos=1 + number % 2)
                if number == 200:
                    await ledger.sent[100]
                    await asyncio.to_thread(broker.kill)
                    await asyncio.to_thread(broker.start)
            outcomes: Counter[type[BaseException]] = Counter()
            async with asyncio.timeout(PATIENCE_S):
                for receipt in ledger.sent.values():
                    try:
                        await receipt
                    except SessionLost as lost:
                        outcomes[type(lost)] += 1
                        assert receipt.qos == 2
            assert sender.connected
    finally:
        broker.kill()


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_garbage_on_the_wire_is_an_error_and_not_the_end(peer: Peer, direction: str) -> None:
    """Bits turn; every promise is kept or fails with a type, and the client lives on."""
    faults: tuple[Fault, ...] = ("corrupt",)
    topic = f"test/{uuid4().hex}"
    async with (
        CuttingProxy(peer.port, seed=5, bytes_min=60, bytes_max=2000, faults=faults) as proxy,
        # The first connection is whole: what comes after is the question.
        client_through(proxy, peer) as sender,
    ):
        proxy.cuts_left = 6
        proxy.cut_all()
        if direction == "down":
            _ = sender.subscribe(topic, qos=1)
        receipts = [sender.publish_nowait(topic, b"x" * 40, qos=1) for _ in range(200)]
        done, _ = await asyncio.wait(
            [asyncio.ensure_future(_outcome(receipt)) for receipt in receipts],
            timeout=PATIENCE_S,
        )
        assert len(done) == len(receipts)
        for one in done:
            one.result()


async def _outcome(receipt: Receipt) -> None:
    """An acknowledgement or an error of ours; any other exception fails the test."""
    with contextlib.suppress(QuantuMQTTError):
        await receipt
