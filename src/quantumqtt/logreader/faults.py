"""What Flight says went wrong, in this package's words."""

import re
from typing import Final

import pyarrow as pa
from pyarrow import flight

from quantumqtt.errors import (
    ConnectFailed,
    ConnectionLost,
    NotAuthorized,
    OffsetExpired,
    QuantuMQTTError,
    ResponseTimeout,
    SourceError,
    TlsFailed,
)
from quantumqtt.logreader.place import LogPlace
from quantumqtt.logwire import read_refusal

_EXPIRED: Final = re.compile(r"offsets (\d+) to (\d+) have expired")

# What Flight and Arrow raise; an interrupted socket below a stream appears as OSError.
FAULTS = (pa.ArrowException, OSError)


def translate(fault: BaseException, place: LogPlace) -> QuantuMQTTError:
    """Find the typed error behind a fault of Flight."""
    words = str(fault)
    if (refusal := read_refusal(words)) is not None:
        return refusal
    if (expired := _EXPIRED.search(words)) is not None:
        # From the middle of a stream, where only words come through.
        start, earliest = int(expired.group(1)), int(expired.group(2))
        return OffsetExpired(
            f"offsets {start} to {earliest - 1} have expired while they were read",
            hint="longer retention keeps slow readers safe",
            start=start,
            earliest=earliest,
        )
    first = words.splitlines()[0][:300] if words else type(fault).__name__
    where = f"log service at {place.endpoint}"
    if isinstance(fault, flight.FlightUnauthenticatedError | flight.FlightUnauthorizedError):
        return NotAuthorized(f"{where} refused us: {first}", hint="pass a token it knows")
    if isinstance(fault, flight.FlightTimedOutError):
        return ResponseTimeout(f"{where} did not answer in time: {first}")
    lowered = words.lower()
    if any(word in lowered for word in ("certificate", "handshake", "ssl_", "tls")):
        return TlsFailed(
            f"{where}: {first}",
            hint="pass the certificate of the service's authority, and a name that it certifies",
        )
    if isinstance(fault, flight.FlightUnavailableError):
        return ConnectFailed(
            f"{where} cannot be reached: {first}",
            hint="see that the broker runs with --flight, and that the address is right",
        )
    if isinstance(fault, flight.FlightServerError) or not isinstance(
        fault, flight.FlightError | OSError
    ):
        return SourceError(f"{where}: {first}")
    return ConnectionLost(f"{where} ended the stream: {first}")
