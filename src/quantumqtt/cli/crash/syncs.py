r"""Did the disk say yes before the acknowledgement left? What strace saw of a serial run tells.

Theory of operation. One publish at a time, so that between the call that read PUBLISH *n* and the
call that wrote PUBACK *n* everything the broker does is for that publish. A call begins where
strace first prints it and ends where its result stands; other threads' lines may lie between. The
promise is kept when some sync began after that read had ended and succeeded before that write
began.

A sync is `fsync`, `fdatasync`, `sync`, `syncfs`, `msync` with `MS_SYNC`, `pwritev2` with
`RWF_DSYNC` or `RWF_SYNC`, or any write to a file opened with `O_DSYNC` or `O_SYNC`. What a broker
does through io_uring passes strace by; its reads and writes are then not found, which is said as
such and not judged.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from quantumqtt.cli.crash.ledger import Ledger
from quantumqtt.cli.crash.link import V311, Outgoing, Peer
from quantumqtt.cli.crash.victim import Victim
from quantumqtt.errors import ConnectionLost

PUBLISHES: Final = 50
_ANSWER_WITHIN_S: Final = 20.0
_READS: Final = ("read", "recvfrom", "recvmsg", "readv")
_WRITES: Final = ("write", "sendto", "sendmsg", "writev", "pwrite64", "pwritev", "pwritev2")
_SYNCS: Final = ("fsync", "fdatasync", "sync", "syncfs", "msync")
_OPENS: Final = ("open", "openat")
TRACED: Final = (*_READS, *_WRITES, *_SYNCS, *_OPENS, "close")

_LINE: Final = re.compile(r"^(?:(\d+)\s+)?(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)$")
_RESULT: Final = re.compile(r"= (-?\d+|\?)[^=]*$")
_STRING: Final = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_UNFINISHED: Final = "<unfinished ...>"
_INJECTED: Final = "(INJECTED)"


@dataclass(frozen=True, slots=True)
class Call:
    """One system call; `began` and `ended` are numbers of lines."""

    name: str
    arguments: str
    result: int
    began: int
    ended: int

    @property
    def data(self) -> bytes:
        """The bytes of its buffers."""
        return b"".join(bytes.fromhex(one.replace("\\x", "")) for one in self._strings())

    def _strings(self) -> list[str]:
        return _STRING.findall(self.arguments)


class Order(Enum):
    """How one acknowledgement stands to the disk."""

    SYNCED = "synced"
    NOT_SYNCED = "not synced"
    NOT_SEEN = "not seen"


@dataclass(frozen=True, slots=True)
class SyncVerdict:
    """What came of a serial run."""

    orders: tuple[Order, ...]
    syncs_total: int

    def count(self, order: Order) -> int:
        """How many acknowledgements stand so."""
        return sum(one is order for one in self.orders)

    @property
    def is_kept(self) -> bool:
        """Whether each acknowledgement was preceded by its own sync."""
        return bool(self.orders) and self.count(Order.SYNCED) == len(self.orders)

    def document(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "publishes": len(self.orders),
            "kept": self.is_kept,
            "syncs": self.syncs_total,
            **{one.name.lower(): self.count(one) for one in Order},
        }

    def text(self) -> str:
        """For people."""
        total = len(self.orders)
        synced = self.count(Order.SYNCED)
        lines = [f"{total} publishes at QoS 1, one at a time; {self.syncs_total} syncs in all"]
        if self.is_kept:
            lines.append("a sync lies between each PUBLISH and its PUBACK")
        elif not synced and not self.count(Order.NOT_SEEN):
            lines.append("no sync: every PUBACK left before any disk had said yes")
        else:
            lines += [f"{self.count(one)} {one.value}" for one in Order]
        if self.count(Order.NOT_SEEN):
            lines.append("what strace does not see, such as io_uring, cannot be judged")
        return "\n".join(lines)


def marker_of(number: int) -> bytes:
    """The payload of the n-th publish."""
    return b"sync-%06d" % number


def ack_of(number: int) -> bytes:
    """PUBACK of 3.1.1 for the n-th publish."""
    return b"\x40\x02" + number.to_bytes(2, "big")


def read_calls(lines: Iterable[str]) -> Iterator[Call]:
    """Read the output of `strace -f -xx`; calls come in the order in which they end."""
    open_calls: dict[tuple[str, str], tuple[str, int]] = {}
    for number, line in enumerate(lines):
        found = _LINE.match(line)
        if found is None:
            continue
        thread, resumed, name, rest = found.groups()
        thread = thread or ""
        began = number
        if resumed:
            name = resumed
            before, began = open_calls.pop((thread, name), ("", number))
            rest = before + rest
        if rest.rstrip().endswith(_UNFINISHED):
            open_calls[thread, name] = (rest.rstrip().removesuffix(_UNFINISHED), began)
            continue
        result = _RESULT.search(rest)
        if result is not None and result.group(1) != "?":
            # What strace was told to answer itself never reached the kernel, let alone a disk.
            value = -1 if _INJECTED in result.group(0) else int(result.group(1))
            yield Call(name, rest[: result.start()], value, began, number)


def judge(calls: Sequence[Call], publishes: int) -> SyncVerdict:
    """Compare reads, syncs and writes of a serial run."""
    syncs = [call for call in calls if call.name != "open" and _is_sync(call)]
    syncs += _synchronous_writes(calls)
    reads = [call for call in calls if call.name in _READS and call.result > 0]
    writes = [call for call in calls if call.name in _WRITES and call.result > 0]
    orders = []
    for number in range(1, publishes + 1):
        read = next((call for call in reads if marker_of(number) in call.data), None)
        ack = None
        if read is not None:
            wanted = ack_of(number)
            ack = next(
                (call for call in writes if call.ended > read.ended and wanted in call.data), None
            )
        if read is None or ack is None:
            orders.append(Order.NOT_SEEN)
        elif any(read.ended < sync.began and sync.ended < ack.began for sync in syncs):
            orders.append(Order.SYNCED)
        else:
            orders.append(Order.NOT_SYNCED)
    return SyncVerdict(tuple(orders), len(syncs))


def _is_sync(call: Call) -> bool:
    if call.result < 0:
        return False
    if call.name == "msync":
        return "MS_SYNC" in call.arguments
    if call.name == "pwritev2":
        return "RWF_DSYNC" in call.arguments or "RWF_SYNC" in call.arguments
    return call.name in _SYNCS


def _synchronous_writes(calls: Sequence[Call]) -> list[Call]:
    """Writes to files that were opened so that each write is a sync."""
    open_files: set[str] = set()
    found = []
    for call in calls:
        if call.name in _OPENS and call.result >= 0:
            is_synchronous = "O_DSYNC" in call.arguments or "O_SYNC" in call.arguments
            (open_files.add if is_synchronous else open_files.discard)(str(call.result))
            continue
        file = re.split(r"[,) ]", call.arguments, maxsplit=1)[0]
        if call.name == "close":
            open_files.discard(file)
        elif call.name in _WRITES and call.result >= 0 and file in open_files:
            found.append(call)
    return found


async def trace_serial_run(victim: Victim, strace: str) -> SyncVerdict:
    """Start the broker under strace, publish one after the other, and judge what it saw.

    The prefix of the victim, if any, is taken for more options of strace.

    Raises:
        BrokerAbsent: It did not start.
        TransportError: It did not answer.
    """
    output = victim.scratch / "strace.txt"
    known = ",".join(f"?{name}" for name in TRACED)
    victim.prefix = (
        *(strace, "-f", "-qq", "-xx", "-s", "512", "-e", f"trace={known}"),
        *("-e", "signal=none", *victim.prefix, "-o", str(output), "--"),
    )
    await victim.start()
    try:
        await _publish_serially(victim.port)
    finally:
        await victim.end(_ANSWER_WITHIN_S)
    lines = output.read_text("utf-8", "replace").splitlines()
    return judge(list(read_calls(lines)), PUBLISHES)


async def _publish_serially(port: int) -> None:
    """A stored session wants the messages, so that there is something to store."""
    ledger = Ledger()
    away = Peer(ledger, "away", version=V311)
    await away.connect(port)
    await away.subscribe("torture/sync", 1)
    await away.leave()
    publisher = Peer(ledger, "serial", version=V311)
    await publisher.connect(port)
    loop = asyncio.get_running_loop()
    for number in range(1, PUBLISHES + 1):
        done: asyncio.Future[bool] = loop.create_future()
        payload = marker_of(number)
        publisher.send(Outgoing("torture/sync", payload, 1, on_done=done.set_result))
        try:
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                await done
        except TimeoutError as error:
            raise ConnectionLost(
                f"publish {number} got no answer within {_ANSWER_WITHIN_S:g} s",
                "look at what the broker says with --keep",
            ) from error
    await publisher.leave()
