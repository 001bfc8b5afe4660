"""The reader: asks the log service, checks what it sends, asks again where that is safe.

Asking again. A stream may break anywhere; rows are identified by their offsets, so reading goes on
after the last one that arrived, and whoever consumes the batches notices nothing. Without topic
filters offsets are dense, and that is checked as rows go by: a service that skips one is an error,
not a smaller answer.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Final, Self, TypeVar

import pyarrow as pa
from pyarrow import flight

from quantumqtt.errors import (
    NotAuthorized,
    QuantuMQTTError,
    QuotaExceeded,
    SliceUnavailable,
    TransportError,
)
from quantumqtt.logreader.connections import connect, forget
from quantumqtt.logreader.faults import FAULTS, translate
from quantumqtt.logreader.place import LogPlace
from quantumqtt.logreader.retries import Retries
from quantumqtt.logwire import (
    Action,
    OffsetsAnswer,
    OffsetsQuestion,
    PartitionRange,
    ReadTicket,
    TimeAnswer,
    TimeQuestion,
    WaitQuestion,
)
from quantumqtt.logwire.schema import schema_of

# One question, not counting a wait's own time.
ANSWER_S_MAX: Final = 20.0

_Answer = TypeVar("_Answer")


class LogReader:
    """Reads one tenant's log over Arrow Flight. May be shared between threads."""

    def __init__(
        self,
        endpoint: str | LogPlace,
        *,
        tenant: str = "default",
        token: str | None = None,
        tls_roots: bytes | None = None,
        retries: Retries | None = None,
    ) -> None:
        """Name the service; it is first reached when something is asked.

        Raises:
            ConfigError: The endpoint is no address.
        """
        self.place = (
            endpoint
            if isinstance(endpoint, LogPlace)
            else LogPlace(endpoint=endpoint, token=token, tls_roots=tls_roots)
        )
        self.tenant = tenant
        self._retries = retries or Retries()

    def __enter__(self) -> Self:
        """Nothing to open."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing to close: connections belong to the process, and streams to who reads them."""

    def offsets(self, tenant: str | None = None) -> OffsetsAnswer:
        """Ask what every partition holds, of one tenant or of all that one may read."""
        question = OffsetsQuestion(tenant).to_bytes()
        return OffsetsAnswer.from_bytes(self._ask(Action.OFFSETS, question, ANSWER_S_MAX))

    def partitions(self) -> Mapping[int, PartitionRange]:
        """Ask what each partition of this tenant holds.

        Raises:
            UnknownTenant: There is none of this name.
            NotAuthorized: It is not ours to read.
            TransportError: The service stayed away for as long as `retries` allow.
        """
        return self.offsets(self.tenant).tenants[self.tenant]

    def offset_for_time(self, partition: int, moment: datetime | int) -> int:
        """Ask for the first offset that is not older; an int counts microseconds since 1970."""
        ts_us = moment if isinstance(moment, int) else int(moment.timestamp() * 1_000_000)
        question = TimeQuestion(tenant=self.tenant, partition=partition, ts_us=ts_us).to_bytes()
        answer = self._ask(Action.OFFSET_FOR_TIME, question, ANSWER_S_MAX)
        return TimeAnswer.from_bytes(answer).offset

    def wait(
        self, positions: Mapping[int, int], *, timeout_s: float
    ) -> Mapping[int, PartitionRange]:
        """Wait until a partition ends past its position, or until the time is up."""
        question = WaitQuestion(
            tenant=self.tenant, positions=positions, timeout_ms=int(timeout_s * 1_000)
        )
        answer = self._ask(Action.WAIT, question.to_bytes(), ANSWER_S_MAX + timeout_s)
        return OffsetsAnswer.from_bytes(answer).tenants[self.tenant]

    def read(
        self,
        partition: int,
        start: int,
        end: int | None = None,
        *,
        topics: Sequence[str] = (),
        columns: Sequence[str] | None = None,
    ) -> pa.RecordBatchReader:
        """Read the rows `start` up to, not including, `end` (None: the end as it is now).

        The reader that comes back streams: it holds one batch at a time, and its errors are those
        named here. Leaving it early is fine.

        Raises:
            OffsetExpired: Retention has taken rows of the range.
            SliceUnavailable: The log does not reach that far.
            UnknownPartition: The tenant has none of this number.
            TransportError: The service stayed away for as long as `retries` allow.
        """
        ticket = ReadTicket(
            tenant=self.tenant,
            partition=partition,
            start=start,
            end=self._end_of(partition, start) if end is None else end,
            topics=tuple(topics),
            columns=None if columns is None else tuple(columns),
        )
        return pa.RecordBatchReader.from_batches(schema_of(ticket.columns), self.batches(ticket))

    def batches(self, ticket: ReadTicket) -> Iterator[pa.RecordBatch]:
        """Read a ticket with a settled end, as plain batches; see `read`."""
        assert ticket.end is not None, "only a settled end can be reached"
        progress = _Progress(ticket)
        persistence = _Persistence(self._retries)
        while not progress.done:
            try:
                for batch in self._stream(progress.rest()):
                    given = progress.take(batch)
                    persistence.refresh()
                    yield given
                progress.finish()
            except (TransportError, QuotaExceeded) as error:
                persistence.wait_or_raise(error)

    def tail(
        self,
        positions: Mapping[int, int] | None = None,
        *,
        topics: Sequence[str] = (),
        columns: Sequence[str] | None = None,
        idle_s: float | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read what is committed from `positions` on (None: from now on), as it is committed.

        Ends when nothing new came for `idle_s`; None goes on for ever. Partitions that are added
        on the way are read from their beginning.
        """
        if positions is None:
            positions = {number: held.end for number, held in self.partitions().items()}
        reached = dict(positions)
        wait_s = 10.0
        quiet_since = time.monotonic()
        while True:
            if idle_s is not None:
                wait_s = min(10.0, idle_s - (time.monotonic() - quiet_since))
                if wait_s < 0:
                    return
            for number, held in sorted(self.wait(reached, timeout_s=wait_s).items()):
                start = reached.get(number, held.earliest)
                if start < held.end:
                    reader = self.read(number, start, held.end, topics=topics, columns=columns)
                    yield from reader
                    reached[number] = held.end
                    quiet_since = time.monotonic()

    def _end_of(self, partition: int, start: int) -> int:
        ticket = ReadTicket(tenant=self.tenant, partition=partition, start=start)
        descriptor = flight.FlightDescriptor.for_command(ticket.to_bytes())

        def ask(client: flight.FlightClient, options: flight.FlightCallOptions) -> bytes:
            ticket: bytes = client.get_flight_info(descriptor, options).endpoints[0].ticket.ticket
            return ticket

        settled = ReadTicket.from_bytes(self._persist(ask, ANSWER_S_MAX)).end
        assert settled is not None, "the service settles the end"
        return settled

    def _ask(self, action: Action, question: bytes, timeout_s: float) -> bytes:
        def ask(client: flight.FlightClient, options: flight.FlightCallOptions) -> bytes:
            (answer,) = client.do_action((str(action), question), options)
            spelled: bytes = answer.body.to_pybytes()
            return spelled

        return self._persist(ask, timeout_s)

    def _persist(
        self,
        ask: Callable[[flight.FlightClient, flight.FlightCallOptions], _Answer],
        timeout_s: float,
    ) -> _Answer:
        persistence = _Persistence(self._retries)
        while True:
            try:
                with _Connection(self.place) as client:
                    return ask(client, self._options(timeout_s))
            except (TransportError, QuotaExceeded) as error:
                persistence.wait_or_raise(error)

    def _stream(self, ticket: ReadTicket) -> Iterator[pa.RecordBatch]:
        with _Connection(self.place) as client:
            stream = client.do_get(flight.Ticket(ticket.to_bytes()), self._options(None))
            finished = False
            try:
                while True:
                    try:
                        chunk = stream.read_chunk()
                    except StopIteration:
                        finished = True
                        return
                    yield chunk.data
            finally:
                # Whoever stops early must not leave the service sending into the void.
                if not finished:
                    stream.cancel()

    def _options(self, timeout_s: float | None) -> flight.FlightCallOptions:
        headers = []
        if self.place.token is not None:
            headers.append((b"authorization", b"Bearer " + self.place.token.encode()))
        return flight.FlightCallOptions(timeout=timeout_s, headers=headers)


class _Connection:
    """A connection for one call: faults leave it as our errors, and a broken one is not kept."""

    def __init__(self, place: LogPlace) -> None:
        self._place = place

    def __enter__(self) -> flight.FlightClient:
        self._client = connect(self._place)
        return self._client

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or not isinstance(error, FAULTS):
            return
        typed = translate(error, self._place)
        if isinstance(typed, TransportError):
            forget(self._place, self._client)
        raise typed from error


@dataclass(slots=True)
class _Persistence:
    """Counts failures in a row and the time they took."""

    retries: Retries
    attempts: int = 0
    since: float = 0.0

    def refresh(self) -> None:
        self.attempts = 0

    def wait_or_raise(self, error: QuantuMQTTError) -> None:
        now = time.monotonic()
        if self.attempts == 0:
            self.since = now
        self.attempts += 1
        pause_s = self.retries.pause_s(self.attempts, now - self.since, random.random())
        if pause_s is None or not error.retryable or isinstance(error, NotAuthorized):
            raise error
        time.sleep(pause_s)


class _Progress:
    """How far a ticket has been read, and whether what came is what was asked for."""

    def __init__(self, ticket: ReadTicket) -> None:
        assert ticket.end is not None, "only a settled end can be reached"
        self._ticket = ticket
        self._end = ticket.end
        self._next = ticket.start
        self._asked = False
        columns = ticket.columns
        # Offsets are needed to go on after a break, wanted or not.
        self._extra = columns is not None and "offset" not in columns
        self._columns = (*columns, "offset") if columns is not None and self._extra else columns

    @property
    def done(self) -> bool:
        # An empty range is asked for once: its place may have expired, and then that is the answer.
        return self._asked and self._next >= self._end

    def rest(self) -> ReadTicket:
        self._asked = True
        return ReadTicket(
            tenant=self._ticket.tenant,
            partition=self._ticket.partition,
            start=self._next,
            end=self._end,
            topics=self._ticket.topics,
            columns=self._columns,
        )

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        count = batch.num_rows
        if count:
            index = batch.schema.get_field_index("offset")
            offsets = batch.column(index)
            first, last = offsets[0].as_py(), offsets[count - 1].as_py()
            dense = first == self._next and last == first + count - 1
            if first < self._next or last >= self._end or not (dense or self._ticket.topics):
                raise self._gap(f"offsets {first} to {last} came where {self._next} was due")
            self._next = last + 1
        if self._extra:
            batch = batch.drop_columns(["offset"])
        return batch

    def finish(self) -> None:
        if self._next < self._end and not self._ticket.topics:
            raise self._gap(f"the stream ended at {self._next}")
        self._next = self._end

    def _gap(self, what: str) -> SliceUnavailable:
        return SliceUnavailable(
            f"{self._ticket.tenant}/{self._ticket.partition}: {what}, of {self._ticket.start} to"
            f" {self._end}",
            hint="this is a fault of the log service; please report it with its log",
            tenant=self._ticket.tenant,
            partition=self._ticket.partition,
            start=self._next,
            end=self._end,
        )
