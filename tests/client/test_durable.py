"""A client with a store on real brokers: processes that are killed, disks that fail."""

# Receipts can be awaited, and nobody has to.
# mypy: disable-error-code="unused-awaitable"

import asyncio
import os
import random
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self
from uuid import uuid4

import pytest

from quantumqtt.client import Backoff, Client, Connected, FileStore, Receipt, SyncClient
from quantumqtt.client.journal import Contents
from quantumqtt.errors import (
    ClientClosed,
    CorruptStore,
    QuantuMQTTError,
    StillStored,
    StorageError,
)
from tests.client.conftest import Peer
from tests.harness import storing_publisher
from tests.harness.node_process import Lines, clean_environment
from tests.harness.waiting import wait_until

DEADLINE_S = 30.0
QUICK = Backoff(first_s=0.01, most_s=0.05)
pytestmark = pytest.mark.requirement("CLI-25")


class Publisher:
    """The publishing process."""

    def __init__(self, peer: Peer, store: Path, topic: str, first: int, count: int) -> None:
        self._process = subprocess.Popen(
            [
                *(sys.executable, storing_publisher.__file__, peer.url, peer.version),
                *(str(store), topic, str(first), str(count)),
            ],
            env=clean_environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._lines = Lines(self._process.stdout)

    def wait_accepted(self, count: int) -> None:
        wait_until(lambda: len(self.accepted()) >= count, what="accepted", deadline_s=DEADLINE_S)

    def accepted(self) -> set[int]:
        """What the process said it had accepted."""
        lines = self._lines.all()
        return {int(line.split()[1]) for line in lines if line.startswith("accepted ")}

    def recovered(self) -> int:
        """How many publishes it found in its store."""
        return self._lines.all().count("recovered")

    def kill(self) -> None:
        """As a power cut would, and read what it had said."""
        self._process.kill()
        self._process.wait(DEADLINE_S)
        self._lines.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait_all_acknowledged(self) -> None:
        assert self._lines.wait_for("acknowledged".__eq__, deadline_s=60)
        assert self._process.wait(DEADLINE_S) == 0
        self._lines.join()


@pytest.mark.requirement("CLI-16")
@pytest.mark.parametrize(
    ("seed", "lives"),
    [(1, 4), (2, 4), pytest.param(3, 60, marks=(pytest.mark.night, pytest.mark.timeout(900)))],
)
def test_a_process_that_is_killed_loses_nothing_it_had_accepted(
    peer: Peer, tmp_path: Path, seed: int, lives: int
) -> None:
    """Whenever it is killed: while it publishes, commits, sends, or sends again what it found."""
    dice = random.Random(seed)
    topic, store = f"test/{uuid4().hex}", tmp_path / "store"
    got: Counter[int] = Counter()
    accepted: set[int] = set()
    with SyncClient(peer.url, version=peer.version) as receiver:  # type: ignore[arg-type]
        receiver.subscribe(topic, lambda m: got.update([int(m.payload)]), qos=2).ready.wait(
            DEADLINE_S
        )
        found = 0
        for life in range(lives):
            with Publisher(peer, store, topic, life * 100_000, 100_000) as publisher:
                publisher.wait_accepted(dice.choice((1, dice.randrange(50), dice.randrange(600))))
            accepted |= publisher.accepted()
            found += publisher.recovered()
        with Publisher(peer, store, topic, 0, 0) as last:
            last.wait_all_acknowledged()
        found += last.recovered()
        wait_until(lambda: accepted <= set(got), what="all accepted came", deadline_s=DEADLINE_S)
    assert found, "no life was ended with something under way"
    assert [number for number, times in got.items() if number % 2 and times > 1] == []


async def test_accepting_is_told_apart_from_acknowledging(peer: Peer, tmp_path: Path) -> None:
    client = Client(peer.url, version=peer.version, store=tmp_path / "s")  # type: ignore[arg-type]
    early = client.publish_nowait("early", b"x", qos=1)
    assert not early.accepted
    async with client, asyncio.timeout(DEADLINE_S):
        await early.acceptance
        await early
        once = client.publish_nowait("once", b"x")
        assert once.accepted
        receipts = [client.publish_nowait("a", b"x", qos=1 + i % 2) for i in range(100)]
        assert not receipts[-1].accepted
        await receipts[-1].acceptance
        assert all(receipt.accepted for receipt in receipts)
        for receipt in receipts:
            await receipt
    assert FileStore(tmp_path / "s").open("", is_fixed=False).publishes == {}


class Disk:
    """Notes how much of a file the kernel was told to bring to the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: dict[int, int] = {}
        self.count = 0
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(f"os.{name}", partial(self._sync, getattr(os, name)))

    def _sync(self, really: Callable[[int], None], file: int) -> None:
        really(file)
        self.synced[os.fstat(file).st_ino] = os.fstat(file).st_size
        self.count += 1


async def test_nothing_counts_as_accepted_before_the_disk_has_it(
    our_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a power cut would leave at that moment holds every publish that is told as accepted."""
    disk, path, checked = Disk(monkeypatch), tmp_path / "s", list[int]()

    def check(receipt: Receipt) -> None:
        kept = path.read_bytes()[: disk.synced[path.stat().st_ino]]
        copy = tmp_path / f"cut-{receipt.sequence}"
        copy.write_bytes(kept)
        store = FileStore(copy, sync=False)
        contents = store.open("", is_fixed=False)
        store.close()
        # It is there, or it was: acknowledged meanwhile, which also had to be stored first.
        assert contents.next_sequence > receipt.sequence
        checked.append(receipt.sequence)

    async with Client(f"mqtt://127.0.0.1:{our_port}", store=path) as client:
        receipts = []
        for number in range(40):
            receipt = client.publish_nowait("a", b"x" * number, qos=1 + number % 2)
            receipt.acceptance._add_waiter(partial(check, receipt))
            receipts.append(receipt)
            if number % 7 == 0:
                await receipt.acceptance
        async with asyncio.timeout(DEADLINE_S):
            for receipt in receipts:
                await receipt
    assert sorted(checked) == [receipt.sequence for receipt in receipts]
    # Group commit: far fewer syncs than publishes, and at least one for each wait.
    assert 6 <= disk.count < 3 * len(receipts)


@pytest.mark.night
@pytest.mark.needs_program("strace")
def test_the_kernel_sees_the_sync_before_the_word(our_port: int, tmp_path: Path) -> None:
    """The same from outside: `strace` sees write, sync, and only then `accepted`."""
    tracer = shutil.which("strace")
    assert tracer is not None
    trace = tmp_path / "trace"
    ran = subprocess.run(
        [
            *(tracer, "-f", "-o", str(trace), "-e", "trace=write,fdatasync", "-s", "16"),
            *(sys.executable, storing_publisher.__file__, f"mqtt://127.0.0.1:{our_port}"),
            *("5", str(tmp_path / "s"), "t", "0", "20"),
        ],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S * 2,
        check=False,
    )
    if "Operation not permitted" in ran.stderr:
        pytest.skip("this machine allows no tracing")
    assert ran.returncode == 0, ran.stderr
    lines = trace.read_text("utf-8", "replace").splitlines()
    first_word = next(at for at, line in enumerate(lines) if '"accepted ' in line)
    assert any("fdatasync(" in line for line in lines[:first_word])


class SlowStore:
    """A store in memory whose commits wait for the test, or fail."""

    def __init__(self, *, fails: bool = False) -> None:
        self.commits: list[int] = []
        self.may_commit = threading.Semaphore(0)
        self._fails = fails
        self.is_closed = False

    def open(self, client_id: str, *, is_fixed: bool) -> Contents:
        return Contents(client_id)

    def commit(self, records: Sequence[bytes]) -> None:
        assert self.may_commit.acquire(timeout=DEADLINE_S)
        self.commits.append(len(records))
        if self._fails and len(self.commits) > 1:
            raise OSError(28, "No space left on device")

    def wants_rewrite(self, live_bytes: int) -> bool:
        return False

    def rewrite(self, records: Sequence[bytes]) -> None:
        raise AssertionError("not asked for")

    def close(self) -> None:
        self.is_closed = True


async def test_what_comes_during_a_commit_makes_one_more(our_port: int) -> None:
    store = SlowStore()
    store.may_commit.release()
    async with Client(f"mqtt://127.0.0.1:{our_port}", store=store) as client:
        receipts = []
        for _ in range(50):
            receipts.append(client.publish_nowait("a", b"x", qos=1))
            await asyncio.sleep(0)
        assert not any(receipt.done() for receipt in receipts)
        for _ in range(10):
            store.may_commit.release()
        async with asyncio.timeout(DEADLINE_S):
            for receipt in receipts:
                await receipt
        store.may_commit.release()
    assert len(store.commits) <= 5
    assert store.is_closed


async def test_a_store_that_fails_ends_the_client_with_a_reason(our_port: int) -> None:
    store = SlowStore(fails=True)
    for _ in range(5):
        store.may_commit.release()
    lost = asyncio.Event()
    client = Client(
        f"mqtt://127.0.0.1:{our_port}", store=store, on_disconnected=lambda _: lost.set()
    )
    async with client, asyncio.timeout(DEADLINE_S):
        receipt = client.publish_nowait("a", b"x", qos=1)
        with pytest.raises(StorageError, match="No space left"):
            await receipt.acceptance
        with pytest.raises(StorageError):
            await receipt
        await lost.wait()
        assert isinstance(client.last_disconnect, StorageError)
        with pytest.raises(ClientClosed):
            client.publish_nowait("a", b"x")
    assert store.is_closed


async def test_closing_without_a_broker_leaves_the_rest_to_the_next_client(
    peer: Peer, tmp_path: Path
) -> None:
    topic = f"test/{uuid4().hex}"
    first = Client(
        peer.url,
        version=peer.version,  # type: ignore[arg-type]
        store=tmp_path / "s",
        reconnect=None,
    )
    await first.connect()
    client_id = first.client_id
    first._driver._transport.abort()  # type: ignore[union-attr]
    receipt = first.publish_nowait(topic, b"kept", qos=2)
    with pytest.raises(StillStored) as failed:
        await asyncio.wait_for(receipt, DEADLINE_S)
    assert failed.value.hint
    await first.close()
    second = Client(peer.url, version=peer.version, store=tmp_path / "s")  # type: ignore[arg-type]
    async with second, asyncio.timeout(DEADLINE_S):
        assert second.client_id == client_id
        (recovered,) = second.recovered
        await recovered


async def test_a_store_that_cannot_be_opened_is_told_at_connect(
    our_port: int, tmp_path: Path
) -> None:
    url = f"mqtt://127.0.0.1:{our_port}"
    (tmp_path / "damaged").write_bytes(b"nonsense")
    wrong: tuple[tuple[type[QuantuMQTTError], Client], ...] = (
        (CorruptStore, Client(url, store=tmp_path / "damaged")),
        (StorageError, Client(url, store=tmp_path / "absent" / "s")),
    )
    for kind, client in wrong:
        receipt = client.publish_nowait("a", b"x", qos=1)
        with pytest.raises(kind):
            await client.connect()
        with pytest.raises(kind):
            await receipt.acceptance
        with pytest.raises(kind):
            await receipt
    async with Client(url, client_id="one", store=tmp_path / "s"):
        with pytest.raises(StorageError, match="in use"):
            await Client(url, store=tmp_path / "s").connect()
    with pytest.raises(StorageError, match="of client 'one'"):
        await Client(url, client_id="two", store=tmp_path / "s").connect()


def test_a_session_the_server_threw_away_is_reported(
    peer: Peer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic, news = f"test/{uuid4().hex}", list[Connected]()
    with SyncClient(
        peer.url,
        version=peer.version,  # type: ignore[arg-type]
        store=tmp_path / "s",
    ) as client:
        client.subscribe(topic, qos=1).ready.wait(DEADLINE_S)
        client_id = client.client_id
    with SyncClient(peer.url, version=peer.version, client_id=client_id):  # type: ignore[arg-type]
        pass  # a clean start throws the session away
    again = SyncClient(
        peer.url,
        version=peer.version,  # type: ignore[arg-type]
        store=tmp_path / "s",
        on_connected=news.append,
    )
    listener = again.subscribe("unrelated")
    with again:
        listener.ready.wait(DEADLINE_S)
        wait_until(lambda: bool(news), what="the application was told")
        assert news[0].session_lost
        wait_until(lambda: topic in again._driver._session.subscriptions, what="subscribed again")
    assert any("lost the session" in record.message for record in caplog.records)
