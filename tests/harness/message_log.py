"""The message log as tests read it, and what must be true of it after whatever happened."""

import asyncio
from collections import Counter
from pathlib import Path

import pyarrow as pa

from quantumqtt import Broker
from quantumqtt._core import MessageLog
from quantumqtt.cli.crash.ledger import read_payload
from quantumqtt.cli.crash.run import Outcome


def table_of(log: MessageLog, *columns: str, start: int | None = None) -> pa.Table:
    """Read everything from `start`, or the first offset there is."""
    earliest, _ = log.bounds()
    stream = log.read(earliest if start is None else start, columns=columns or None)
    return pa.RecordBatchReader.from_stream(stream).read_all()


def open_log(broker: Broker) -> MessageLog:
    """Take the log of a broker that has one."""
    log = broker.message_log()
    assert log is not None, "this broker keeps a message log"
    return log


async def _read(data: Path, columns: tuple[str, ...]) -> tuple[pa.Table, dict[str, int]]:
    async with Broker(listen=["tcp://127.0.0.1:0"], data=data) as broker:
        log = open_log(broker)
        return table_of(log, *columns), log.statistics()


def read_log(data: Path, *columns: str) -> tuple[pa.Table, dict[str, int]]:
    """Open a directory that nobody runs on, and read its log; with its figures."""
    table, figures = asyncio.run(_read(data, columns))
    offsets = table.column("offset").to_pylist()
    assert offsets == list(range(figures["earliest"], figures["end"])), "offsets are dense"
    return table, figures


def judge_log(data: Path, outcome: Outcome) -> None:
    """Every acknowledged publish is in the log: once, or as often as it was sent at QoS 1."""
    account = outcome.ledger.account
    assert account, "publishes were acknowledged"
    table, _ = read_log(data, "offset", "topic", "payload", "qos")
    found: Counter[tuple[str, int]] = Counter()
    for row in table.to_pylist():
        if (read := read_payload(row["payload"])) is not None:
            publisher, sequence, qos, topic = read
            assert (topic, qos) == (row["topic"], row["qos"])
            found[publisher, sequence] += 1
    for sent in account:
        most = 1 if sent.qos == 2 else sent.times_sent
        copies = found[sent.publisher, sent.sequence]
        assert 1 <= copies <= most, f"{sent} is {copies} times in the log"
