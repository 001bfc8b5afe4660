"""The real broker and the real job, killed in turn and together while messages come in.

At the end the table must hold exactly what was committed: as many rows as the log has offsets, each
once, and in them every message that was acknowledged. `just kills 2000000` chooses how many.
"""

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from quantumqtt.client import SyncClient
from quantumqtt.logreader import LogReader
from tests.harness.landing import Landing
from tests.harness.node_process import NodeProcess
from tests.harness.ports import free_port

MESSAGES = int(os.environ.get("KILL_MESSAGES", "2000000"))
ROUNDS = int(os.environ.get("KILL_ROUNDS", "5"))
ACKNOWLEDGED_S_MAX = 600.0


class RealLog:
    """A broker on ports of its own, which comes back on them after a kill."""

    def __init__(self, home: Path) -> None:
        self._data = home / "data"
        self.port, self._flight = free_port(), free_port()
        self.readers: list[Landing] = []
        self._node: NodeProcess | None = None

    @property
    def endpoint(self) -> str:
        return f"grpc://127.0.0.1:{self._flight}"

    def start(self) -> None:
        self._node = NodeProcess(
            *("--data", str(self._data), "--listen", f"tcp://127.0.0.1:{self.port}"),
            *("--flight", f"127.0.0.1:{self._flight}"),
        )
        self._node.__enter__()

    def kill(self) -> None:
        if self._node is not None:
            self._node.kill()
            self._node.__exit__(None, None, None)
            self._node = None


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RealLog]:
    made = RealLog(tmp_path)
    made.start()
    yield made
    for reader in made.readers:
        reader.end()
    made.kill()


class Press(threading.Thread):
    """Publishes numbers until all are acknowledged, over every death of the broker."""

    def __init__(self, port: int, first: int, count: int) -> None:
        super().__init__(daemon=True)
        self._port, self._numbers = port, range(first, first + count)
        self.acknowledged = 0

    def run(self) -> None:
        with SyncClient(f"mqtt://127.0.0.1:{self._port}", client_id="press") as client:
            tokens = [
                client.publish(f"press/{number % 10}", str(number), qos=1)
                for number in self._numbers
            ]
            for token in tokens:
                token.wait(ACKNOWLEDGED_S_MAX)
                self.acknowledged += 1


@pytest.mark.night
@pytest.mark.requirement("PIPE-13", "PIPE-18")
@pytest.mark.timeout(14_400)
def test_what_is_committed_has_landed_exactly_once(broker: RealLog, tmp_path: Path) -> None:
    dice = random.Random(7)
    victims = ["driver", "jvm", "workers", "broker", "all"] * ROUNDS
    dice.shuffle(victims)
    share = -(-MESSAGES // len(victims))
    words = ("--continuous", "--interval", "0.2", "--max-records", str(max(500, share // 5)))
    sent = 0
    for victim in victims:
        press = Press(broker.port, sent, share)
        press.start()
        run = Landing(broker, tmp_path, *words)
        for _ in range(dice.randint(1, 4)):
            if run.next_batch() is None:
                break
        if victim in ("broker", "all"):
            if victim == "all":
                run.kill_group()
            broker.kill()
            broker.start()
        else:
            run.kill(victim)
        press.join(ACKNOWLEDGED_S_MAX)
        assert press.acknowledged == share, f"not all were acknowledged after {victim}"
        sent += share
        run.end()
    last = Landing(broker, tmp_path, "--once")
    while last.next_batch() is not None:
        pass
    assert last.finish() == 0, last.errors.read_text()[-3_000:]
    end = LogReader(broker.endpoint).partitions()[0].end
    table = DeltaTable(tmp_path / "table").to_pyarrow_table(columns=["offset", "payload"])
    assert table.num_rows == end, "rows landed are not what was committed"
    assert sorted(table["offset"].to_pylist()) == list(range(end)), "lost or doubled"
    assert {int(one) for one in table["payload"].to_pylist()} == set(range(sent))
    assert sent >= MESSAGES
