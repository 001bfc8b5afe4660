"""The message log as tests read it, and what must be true of it after whatever happened."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa

from quantumqtt import Broker
from quantumqtt._core import MessageLog
from quantumqtt.cli.crash.ledger import read_payload
from quantumqtt.cli.crash.run import Outcome
from quantumqtt.config import load_settings
from tests.harness.waiting import wait_until

# Keys of `[storage]`.
Storage = Mapping[str, int]
# Files of the log that are made quickly, and packets that fit into them.
SMALL: Final[Storage] = {"segment_bytes": 4 * 1024 * 1024}
PACKET_BYTES_MAX: Final = 256 * 1024


def table_of(log: MessageLog, *columns: str, start: int | None = None) -> pa.Table:
    """Read everything from `start`, or the first offset there is."""
    earliest, _ = log.bounds()
    stream = log.read(earliest if start is None else start, columns=columns or None)
    return pa.RecordBatchReader.from_stream(stream).read_all()


def table_of_what_stays(log: MessageLog) -> pa.Table:
    """Read everything while retention is at work, as often as it was quicker."""
    tables: list[pa.Table] = []

    def is_read() -> bool:
        with suppress(pa.ArrowInvalid):
            tables.append(table_of(log))
        return bool(tables)

    wait_until(is_read, what="retention is done")
    return tables[0]


def open_log(broker: Broker) -> MessageLog:
    """Take the log of a broker that has one."""
    log = broker.message_log()
    assert log is not None, "this broker keeps a message log"
    return log


def broker_on(data: Path, storage: Storage | None = None) -> Broker:
    """Plan a broker in this process, on a directory that nobody else runs on."""
    flags = {
        "listen": ("tcp://127.0.0.1:0",),
        "data": str(data),
        "storage": {**SMALL, **(storage or {})},
        "limits": {"packet_bytes_max": PACKET_BYTES_MAX},
    }
    return Broker(load_settings(flags=flags, read_environment=False))


def environment_of(storage: Storage) -> dict[str, str]:
    """Say the same to a process."""
    named = {f"QUANTUMQTT_STORAGE__{key.upper()}": str(value) for key, value in storage.items()}
    return {**named, "QUANTUMQTT_LIMITS__PACKET_BYTES_MAX": str(PACKET_BYTES_MAX)}


async def _read(data: Path, storage: Storage | None) -> pa.Table:
    async with broker_on(data, storage) as broker:
        return table_of(open_log(broker))


def read_log(data: Path, storage: Storage | None = None) -> pa.Table:
    """Open a directory that nobody runs on, and read all of its log."""
    table = asyncio.run(_read(data, storage))
    offsets = table.column("offset").to_pylist()
    first = offsets[0] if offsets else 0
    assert offsets == list(range(first, first + len(offsets))), "offsets are dense"
    return table.combine_chunks()


def judge_log(data: Path, outcome: Outcome) -> None:
    """Every acknowledged publish is in the log: once, or as often as it was sent at QoS 1."""
    account = outcome.ledger.account
    assert account, "publishes were acknowledged"
    found: Counter[tuple[str, int]] = Counter()
    for row in read_log(data).select(["topic", "payload", "qos"]).to_pylist():
        if (read := read_payload(row["payload"])) is not None:
            publisher, sequence, qos, topic = read
            assert (topic, qos) == (row["topic"], row["qos"])
            found[publisher, sequence] += 1
    for sent in account:
        most = 1 if sent.qos == 2 else sent.times_sent
        copies = found[sent.publisher, sent.sequence]
        assert 1 <= copies <= most, f"{sent} is {copies} times in the log"
