"""Tickets, questions and answers of the log service, and the bytes they travel as.

Each is canonical JSON (sorted keys, no spaces, UTF-8) with its version under `v`: a person can read
a ticket in a trace and write one by hand, and one ticket has one spelling, so caches and tests may
compare bytes. An unknown version or an unknown key is refused and never ignored: a filter that an
old server does not know must not silently widen what is read. `docs/reference/flight.md` is the
contract in prose; `tests/golden/flight` holds the bytes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar

from quantumqtt.errors import SourceError
from quantumqtt.logwire.columns import COLUMNS

WIRE_VERSION: Final = 1

_Message = TypeVar("_Message")

# A ticket travels in one header-sized message; whoever needs more filters than this reads all.
TICKET_BYTES_MAX: Final = 64 * 1024
TOPICS_MAX: Final = 256
OFFSET_MAX: Final = 2**63 - 1
PARTITION_MAX: Final = 2**31 - 1


class Action(StrEnum):
    """What can be asked of the service beside reading rows."""

    OFFSETS = "offsets"
    OFFSET_FOR_TIME = "offset-for-time"
    WAIT = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRange:
    """The committed rows a partition holds: `earliest` up to, not including, `end`.

    `bytes` is what they take in the log, roughly: readers divide it by the count to guess how many
    rows fill a budget. 0 means that the service does not know.
    """

    earliest: int
    end: int
    bytes: int = 0

    @property
    def count(self) -> int:
        """Rows held; offsets are dense."""
        return self.end - self.earliest


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTicket:
    """Rows `start` up to, not including, `end` of one partition.

    `topics` are MQTT filters; a row matches when any of them does, and () means every row.
    `columns` come in the order given; None means all. `end` None means the committed end at the
    moment the ticket is taken.
    """

    tenant: str
    partition: int
    start: int
    end: int | None = None
    topics: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse what no log could answer."""
        _check_partition(self.partition)
        _check_offset("start", self.start)
        if self.end is not None:
            _check_offset("end", self.end)
            if self.end < self.start:
                raise SourceError(f"range ends at {self.end}, before its start {self.start}")
        if len(self.topics) > TOPICS_MAX:
            raise SourceError(
                f"{len(self.topics)} topic filters, {TOPICS_MAX} is the most",
                hint="use fewer, wider filters and sort rows out after reading",
            )
        if self.columns is not None:
            if unknown := [name for name in self.columns if name not in COLUMNS]:
                raise SourceError(
                    f"no column is called {', '.join(map(repr, unknown))}",
                    hint=f"the columns are {', '.join(COLUMNS)}",
                )
            if not self.columns or len(set(self.columns)) < len(self.columns):
                raise SourceError("columns are named once each, and at least one is")

    def to_bytes(self) -> bytes:
        """Spell the ticket."""
        return _encode(
            {
                "tenant": self.tenant,
                "partition": self.partition,
                "start": self.start,
                "end": self.end,
                "topics": list(self.topics),
                "columns": None if self.columns is None else list(self.columns),
            }
        )

    @classmethod
    def from_bytes(cls, spelled: bytes) -> "ReadTicket":
        """Read a ticket.

        Raises:
            SourceError: It is none, or of a version we do not know.
        """
        fields = _Fields(spelled)
        columns = fields.texts_or_none("columns")
        return fields.done(
            cls(
                tenant=fields.text("tenant"),
                partition=fields.number("partition"),
                start=fields.number("start"),
                end=fields.number_or_none("end"),
                topics=tuple(fields.texts_or_none("topics") or ()),
                columns=None if columns is None else tuple(columns),
            )
        )


@dataclass(frozen=True, slots=True)
class OffsetsQuestion:
    """Which partitions are there, and what do they hold? None asks for all one may read."""

    tenant: str | None = None

    def to_bytes(self) -> bytes:
        """Spell the question."""
        return _encode({"tenant": self.tenant})

    @classmethod
    def from_bytes(cls, spelled: bytes) -> "OffsetsQuestion":
        """Read a question; see `ReadTicket.from_bytes`."""
        fields = _Fields(spelled)
        return fields.done(cls(fields.text_or_none("tenant")))


@dataclass(frozen=True, slots=True)
class OffsetsAnswer:
    """What every partition of every tenant asked for holds."""

    tenants: Mapping[str, Mapping[int, PartitionRange]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Spell the answer; partitions are sorted as numbers."""
        return _encode({"tenants": self.as_json()})

    def as_json(self) -> dict[str, dict[str, dict[str, int]]]:
        """Spell the tenants alone, as `quantumqtt log offsets --json` prints them."""
        return {
            tenant: {
                str(number): {"earliest": held.earliest, "end": held.end, "bytes": held.bytes}
                for number, held in sorted(partitions.items())
            }
            for tenant, partitions in sorted(self.tenants.items())
        }

    @classmethod
    def from_bytes(cls, spelled: bytes) -> "OffsetsAnswer":
        """Read an answer; see `ReadTicket.from_bytes`."""
        fields = _Fields(spelled)
        answer: dict[str, dict[int, PartitionRange]] = {}
        try:
            for tenant, partitions in fields.mapping("tenants").items():
                assert isinstance(partitions, dict)
                answer[tenant] = {int(n): PartitionRange(**held) for n, held in partitions.items()}
        except (AssertionError, TypeError, ValueError) as error:
            raise SourceError(f"an answer that is none: {spelled[:200]!r}") from error
        return fields.done(cls(answer))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeQuestion:
    """Which is the first offset whose record is not older than this time?"""

    tenant: str
    partition: int
    ts_us: int

    def to_bytes(self) -> bytes:
        """Spell the question; microseconds since 1970, UTC."""
        return _encode({"tenant": self.tenant, "partition": self.partition, "ts_us": self.ts_us})

    @classmethod
    def from_bytes(cls, spelled: bytes) -> "TimeQuestion":
        """Read a question; see `ReadTicket.from_bytes`."""
        fields = _Fields(spelled)
        return fields.done(
            cls(
                tenant=fields.text("tenant"),
                partition=fields.number("partition"),
                ts_us=fields.number("ts_us"),
            )
        )


@dataclass(frozen=True, slots=True)
class TimeAnswer:
    """The offset asked for; the committed end when every record is older."""

    offset: int

    def to_bytes(self) -> bytes:
        """Spell the answer."""
        return _encode({"offset": self.offset})

    @classmethod
    def from_bytes(cls, spelled: bytes) -> "TimeAnswer":
        """Read an answer; see `ReadTicket.from_bytes`."""
        fields = _Fields(spelled)
        return fields.done(cls(fields.number("offset")))


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitQuestion:
    """Answer when any partition ends past its position here, or when the time is up.

    A partition that is not named counts as standing at 0, so a new one ends the wait as well. The
    answer is an `OffsetsAnswer` of the tenant.
    """

    tenant: str
    positions: Mapping[int, int]
    timeout_ms: int

    def to_bytes(self) -> bytes:
        """Spell the question."""
        positions = {str(number): offset for number, offset in sorted(self.positions.items())}
        return _encode(
            {"tenant": self.tenant, "positions": positions, "timeout_ms": self.timeout_ms}
        )

    @classmethod
    def from_bytes(cls, spelled: bytes) -> "WaitQuestion":
        """Read a question; see `ReadTicket.from_bytes`."""
        fields = _Fields(spelled)
        positions: dict[int, int] = {}
        for number, offset in fields.mapping("positions").items():
            if not number.isdecimal() or type(offset) is not int:
                raise SourceError(f"position {number!r}: {offset!r} is none")
            _check_partition(int(number))
            _check_offset("position", offset)
            positions[int(number)] = offset
        timeout_ms = fields.number("timeout_ms")
        if timeout_ms < 0:
            raise SourceError(f"timeout_ms is {timeout_ms}; 0 asks without waiting")
        return fields.done(
            cls(tenant=fields.text("tenant"), positions=positions, timeout_ms=timeout_ms)
        )


def _check_partition(number: int) -> None:
    if not 0 <= number <= PARTITION_MAX:
        raise SourceError(f"{number} is no partition number", partition=number)


def _check_offset(name: str, offset: int) -> None:
    if not 0 <= offset <= OFFSET_MAX:
        raise SourceError(f"{name} {offset} is no offset")


def _encode(fields: dict[str, object]) -> bytes:
    text = json.dumps(
        {"v": WIRE_VERSION, **fields}, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return text.encode()


class _Fields:
    """The fields of one message: each is taken once and checked; what is left over is refused."""

    def __init__(self, spelled: bytes) -> None:
        if len(spelled) > TICKET_BYTES_MAX:
            raise SourceError(f"{len(spelled)} bytes, {TICKET_BYTES_MAX} is the most")
        try:
            fields = json.loads(spelled)
        except (ValueError, RecursionError) as error:
            raise SourceError(f"not JSON: {spelled[:80]!r}") from error
        if not isinstance(fields, dict):
            raise SourceError(f"not a JSON object: {spelled[:80]!r}")
        version = fields.pop("v", None)
        if version != WIRE_VERSION or type(version) is not int:
            raise SourceError(
                f"version {version!r} of the log's wire format, {WIRE_VERSION} is the one known",
                hint="run the same release of QuantuMQTT on both sides",
            )
        self._fields: dict[str, object] = fields

    def text(self, name: str) -> str:
        value = self._fields.pop(name, None)
        if not isinstance(value, str):
            raise SourceError(f"{name} is {value!r}, not a text")
        return value

    def text_or_none(self, name: str) -> str | None:
        if self._fields.get(name) is None:
            self._fields.pop(name, None)
            return None
        return self.text(name)

    def number(self, name: str) -> int:
        value = self._fields.pop(name, None)
        if type(value) is not int:  # a truth value is an int to Python, and a slip here
            raise SourceError(f"{name} is {value!r}, not a whole number")
        return value

    def number_or_none(self, name: str) -> int | None:
        if self._fields.get(name) is None:
            self._fields.pop(name, None)
            return None
        return self.number(name)

    def texts_or_none(self, name: str) -> list[str] | None:
        value = self._fields.pop(name, None)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise SourceError(f"{name} is {value!r}, not a list of texts")
        return value

    def mapping(self, name: str) -> dict[str, object]:
        value = self._fields.pop(name, None)
        if not isinstance(value, dict):
            raise SourceError(f"{name} is {value!r}, not an object")
        return value

    def done(self, message: _Message) -> _Message:
        if self._fields:
            raise SourceError(
                f"unknown fields {', '.join(sorted(self._fields))}",
                hint="run the same release of QuantuMQTT on both sides",
            )
        return message
