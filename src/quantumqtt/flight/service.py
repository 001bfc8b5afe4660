"""Arrow Flight over a `LogStore`: requests in, record batches out, errors with their types.

Permits. A stream's permit is taken when the ticket is and given back when gRPC has finished the
call, however it finished; only a server middleware is told of that moment. So the middleware of a
call owns what the call holds, and `Turnstile` counts.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import pyarrow as pa
from pyarrow import flight

from quantumqtt.errors import (
    InternalError,
    NotAuthorized,
    OffsetExpired,
    QuantuMQTTError,
    QuotaExceeded,
    SliceUnavailable,
    SourceError,
    TransportError,
    UnknownPartition,
    UnknownTenant,
)
from quantumqtt.flight.gate import Gate, Reader
from quantumqtt.flight.limits import FlightLimits
from quantumqtt.flight.store import LogStore, ReadPlan
from quantumqtt.logwire import (
    Action,
    OffsetsAnswer,
    OffsetsQuestion,
    PartitionRange,
    ReadTicket,
    TimeAnswer,
    TimeQuestion,
    WaitQuestion,
    write_refusal,
)
from quantumqtt.logwire.schema import schema_of

_CALL: Final = "quantumqtt-call"
_BEARER: Final = "bearer "
# MQTT 5: quota exceeded.
_QUOTA: Final = 0x97
# MQTT 5: not authorized.
_NOT_YOURS: Final = 0x87

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTls:
    """The certificate chain and key of the service, PEM; `clients` makes clients show one, too."""

    chain: bytes
    key: bytes
    clients: bytes | None = None


class Turnstile:
    """Lets so many through at a time; the next one is refused, not queued."""

    def __init__(self, name: str, count_max: int) -> None:
        self._name = name
        self._count_max = count_max
        self._count = 0
        # Taken alone, held for two instructions; see docs/internals/locks.md.
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """How many are inside."""
        return self._count

    def enter(self) -> None:
        """Take a place.

        Raises:
            QuotaExceeded: All are taken.
        """
        with self._lock:
            if self._count >= self._count_max:
                raise QuotaExceeded(
                    f"log service: {self._count_max} {self._name} are under way",
                    hint="try again; if this lasts, run fewer readers or raise the limit",
                    reason_code=_QUOTA,
                )
            self._count += 1

    def leave(self) -> None:
        """Give the place back."""
        with self._lock:
            self._count -= 1


class _Call(flight.ServerMiddleware):
    """One call under way: its reader, and the place it gives back when it ends."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._turnstile: Turnstile | None = None

    def hold(self, turnstile: Turnstile) -> None:
        turnstile.enter()
        self._turnstile = turnstile

    def call_completed(self, exception: Exception | None) -> None:
        del exception
        held, self._turnstile = self._turnstile, None
        if held is not None:
            held.leave()


class _CallFactory(flight.ServerMiddlewareFactory):
    """Asks the gate about every call before anything else happens."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def start_call(self, info: object, headers: Mapping[str, list[str | bytes]]) -> _Call:
        del info
        token = None
        for name, values in headers.items():
            if name.lower() == "authorization" and values:
                value = values[0]
                if isinstance(value, bytes):
                    value = value.decode(errors="replace")
                if value.lower().startswith(_BEARER):
                    token = value[len(_BEARER) :].strip()
        try:
            return _Call(self._gate.admit(token))
        except NotAuthorized as error:
            raise flight.FlightUnauthenticatedError(write_refusal(error)) from error


class LogService(flight.FlightServerBase):
    """Serves a log at an address; `port` is the one the system gave when 0 was asked for.

    It serves as soon as it is made, on gRPC's threads. `shutdown` ends it.
    """

    def __init__(
        self,
        store: LogStore,
        *,
        gate: Gate,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: FlightLimits | None = None,
        tls: ServiceTls | None = None,
    ) -> None:
        """Bind and serve.

        Raises:
            ConfigError: The gate cannot guard this place.
            TransportError: The address cannot be listened on.
        """
        gate.check_listener(host, encrypted=tls is not None)
        self._store = store
        self._limits = limits or FlightLimits()
        self.streams = Turnstile("reads", self._limits.streams_max)
        self.waits = Turnstile("waits", self._limits.waits_max)
        location = f"grpc{'+tls' if tls else ''}://{host}:{port}"
        try:
            super().__init__(
                location,
                middleware={_CALL: _CallFactory(gate)},
                tls_certificates=[(tls.chain, tls.key)] if tls else None,
                verify_client=bool(tls and tls.clients),
                root_certificates=tls.clients if tls else None,
            )
        except (OSError, pa.ArrowException) as error:
            raise TransportError(
                f"log service cannot listen on {location}: {str(error).splitlines()[0][:300]}",
                hint="choose another address with --flight, or end what holds this one",
            ) from error

    def list_flights(self, context: flight.ServerCallContext, criteria: bytes) -> Iterator[object]:
        """List every partition one may read as a flight whose ticket reads all of it."""
        call = _call_of(context)
        flights = _typed(lambda: list(self._flights(call.reader, criteria)))
        return iter(flights)

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        """Check a ticket given as command, and hand it back as a flight with its end settled."""
        call = _call_of(context)
        return _typed(lambda: self._flight(*self._checked(call.reader, descriptor.command)))

    def get_schema(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.SchemaResult:
        """Tell the columns a ticket will give."""
        del context
        ticket = _typed(lambda: ReadTicket.from_bytes(descriptor.command))
        return flight.SchemaResult(schema_of(ticket.columns))

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.FlightDataStream:
        """Stream the rows of a ticket from the store, in batches as large as its share allows."""
        call = _call_of(context)

        def open_stream() -> flight.FlightDataStream:
            read, _ = self._checked(call.reader, ticket.ticket)
            assert read.end is not None, "a checked ticket has an end"
            call.hold(self.streams)
            plan = ReadPlan(
                tenant=read.tenant,
                partition=read.partition,
                start=read.start,
                end=read.end,
                topics=read.topics,
                allowed=call.reader.topics,
                judge=call.reader.judge,
                columns=read.columns,
                bytes_max=self._limits.stream_bytes,
            )
            return flight.RecordBatchStream(self._store.read(plan))

        return _typed(open_stream)

    def list_actions(self, context: flight.ServerCallContext) -> list[tuple[str, str]]:
        """Tell which questions are understood."""
        del context
        return [
            (Action.OFFSETS, "what the partitions hold: OffsetsQuestion, OffsetsAnswer"),
            (Action.OFFSET_FOR_TIME, "first offset not older: TimeQuestion, TimeAnswer"),
            (Action.WAIT, "until there are rows past a position: WaitQuestion, OffsetsAnswer"),
        ]

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        """Answer one question."""
        call = _call_of(context)
        return _typed(lambda: [self._answer(call, action.type, action.body.to_pybytes())])

    def _answer(self, call: _Call, kind: str, body: bytes) -> bytes:
        if kind == Action.OFFSETS:
            return self._offsets(call.reader, OffsetsQuestion.from_bytes(body).tenant).to_bytes()
        if kind == Action.OFFSET_FOR_TIME:
            asked = TimeQuestion.from_bytes(body)
            self._range(call.reader, asked.tenant, asked.partition)
            offset = self._store.offset_for_time(asked.tenant, asked.partition, asked.ts_us)
            return TimeAnswer(offset).to_bytes()
        if kind == Action.WAIT:
            wait = WaitQuestion.from_bytes(body)
            self._partitions(call.reader, wait.tenant)
            call.hold(self.waits)
            timeout_ms = min(wait.timeout_ms, self._limits.wait_ms_max)
            self._store.wait(wait.tenant, wait.positions, timeout_ms / 1_000)
            return self._offsets(call.reader, wait.tenant).to_bytes()
        raise SourceError(
            f"no action is called {kind!r}", hint=f"there are {', '.join(map(str, Action))}"
        )

    def _offsets(self, reader: Reader, tenant: str | None) -> OffsetsAnswer:
        if tenant is not None:
            return OffsetsAnswer({tenant: self._partitions(reader, tenant)})
        names = [name for name in self._store.tenants() if reader.may_read(name)]
        return OffsetsAnswer({name: self._store.partitions(name) for name in names})

    def _partitions(self, reader: Reader, tenant: str) -> Mapping[int, PartitionRange]:
        reader.check(tenant)
        if tenant not in self._store.tenants():
            raise UnknownTenant(
                f"there is no tenant {tenant}",
                hint="`quantumqtt log offsets` lists the tenants there are",
                tenant=tenant,
            )
        return self._store.partitions(tenant)

    def _range(self, reader: Reader, tenant: str, partition: int) -> PartitionRange:
        partitions = self._partitions(reader, tenant)
        if partition not in partitions:
            raise UnknownPartition(
                f"tenant {tenant} has no partition {partition}",
                hint=f"it has {', '.join(map(str, sorted(partitions))) or 'none yet'}",
                tenant=tenant,
                partition=partition,
            )
        return partitions[partition]

    def _checked(self, reader: Reader, spelled: bytes) -> tuple[ReadTicket, PartitionRange]:
        """Read a ticket, settle its end, and see that the whole range is there."""
        ticket = ReadTicket.from_bytes(spelled)
        held = self._range(reader, ticket.tenant, ticket.partition)
        if reader.topics is not None and not ticket.topics:
            # Whoever asks for every row counts on dense offsets; a gap would look like a loss.
            raise NotAuthorized(
                f"{reader.name} may not read every topic of {ticket.tenant}",
                hint="ask for topics: -t '#' gives those that are open to you (Spark: topicFilter)",
                reason_code=_NOT_YOURS,
            )
        end = held.end if ticket.end is None else ticket.end
        check_range(ticket, held, end)
        settled = ReadTicket(
            tenant=ticket.tenant,
            partition=ticket.partition,
            start=ticket.start,
            end=max(end, ticket.start),
            topics=ticket.topics,
            columns=ticket.columns,
        )
        return settled, held

    def _flights(self, reader: Reader, criteria: bytes) -> Iterator[flight.FlightInfo]:
        tenant = OffsetsQuestion.from_bytes(criteria).tenant if criteria else None
        for name, partitions in self._offsets(reader, tenant).tenants.items():
            for number, held in sorted(partitions.items()):
                ticket = ReadTicket(
                    tenant=name,
                    partition=number,
                    start=held.earliest,
                    end=held.end,
                    topics=() if reader.topics is None else ("#",),
                )
                yield self._flight(ticket, held)

    def _flight(self, ticket: ReadTicket, held: PartitionRange) -> flight.FlightInfo:
        assert ticket.end is not None, "a checked ticket has an end"
        spelled = ticket.to_bytes()
        # The rows are counted before filters, and their bytes are unknown: -1 is Flight's word.
        count = ticket.end - ticket.start if not ticket.topics else -1
        whole = (ticket.start, ticket.end) == (held.earliest, held.end)
        return flight.FlightInfo(
            schema_of(ticket.columns),
            flight.FlightDescriptor.for_command(spelled),
            # No location: the rows are to be had where this was asked.
            [flight.FlightEndpoint(spelled, [])],
            count,
            held.bytes if whole and held.bytes else -1,
        )


def check_range(ticket: ReadTicket, held: PartitionRange, end: int) -> None:
    """Refuse a range of which the log does not hold every row.

    Raises:
        OffsetExpired: It starts before the earliest row; an empty range expires as well, since its
            reader stands where a gap has opened.
        SliceUnavailable: It reaches past the committed end.
    """
    place = f"{ticket.tenant}/{ticket.partition}"
    if ticket.start < held.earliest:
        raise OffsetExpired(
            f"{place}: offsets {ticket.start} to {held.earliest - 1} have expired",
            hint=f"start at {held.earliest} or later; longer retention keeps slow readers safe",
            tenant=ticket.tenant,
            partition=ticket.partition,
            start=ticket.start,
            earliest=held.earliest,
            end=held.end,
        )
    if max(end, ticket.start) > held.end:
        raise SliceUnavailable(
            f"{place}: offsets {ticket.start} to {end} were asked for, the log ends at {held.end}",
            hint="if the log was replaced or restored, readers must start over",
            tenant=ticket.tenant,
            partition=ticket.partition,
            start=ticket.start,
            earliest=held.earliest,
            end=held.end,
        )


def _call_of(context: flight.ServerCallContext) -> _Call:
    call = context.get_middleware(_CALL)
    assert isinstance(call, _Call), "the factory has made one for every call"
    return call


def _typed(answer: Callable[[], _Answer]) -> _Answer:
    """Answer, or fail with a Flight status that carries our error's type and fields.

    The status is the nearest that gRPC has: it is what foreign clients decide by.
    """
    try:
        return answer()
    except NotAuthorized as error:
        raise flight.FlightUnauthorizedError(write_refusal(error)) from error
    except QuantuMQTTError as error:
        kind = flight.FlightUnavailableError if error.retryable else flight.FlightServerError
        raise kind(write_refusal(error)) from error
    except (pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError) as error:
        # A request ends here and the service goes on; the words name what broke.
        broken = InternalError(f"log service: {type(error).__name__}: {error}")
        raise flight.FlightServerError(write_refusal(broken)) from error
