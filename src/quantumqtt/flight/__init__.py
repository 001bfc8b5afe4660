"""The log service: the committed message log over Arrow Flight.

Theory of operation. `LogService` knows Flight and nothing of how a log is stored; a `LogStore`
knows its log and nothing of Flight; a `Gate` knows who may read what. One request is one ticket of
`quantumqtt.logwire`. The service checks it against the gate and the store's ranges *before* the
first byte is sent, so that what can be refused is refused with a type; rows then flow from the
store's `RecordBatchReader` straight into gRPC, and no Python code runs per row or per batch.

Everything is bounded by `FlightLimits`: streams at a time, waits at a time, and the bytes all
streams together may hold, of which each is given its share when it is opened. A reader that is
slow is slowed by HTTP/2 flow control and holds its share and nothing else; nothing a reader does
holds the log.
"""

from quantumqtt.flight.broker_log import BrokerLog, NativeLog
from quantumqtt.flight.gate import Gate, LoopbackGate, Reader, TokenGate
from quantumqtt.flight.limits import FlightLimits
from quantumqtt.flight.readers import BrokerGate, load_readers, new_token, open_gate, token_line
from quantumqtt.flight.service import LogService, ServiceTls
from quantumqtt.flight.store import LogStore, ReadPlan

__all__ = [
    "BrokerGate",
    "BrokerLog",
    "FlightLimits",
    "Gate",
    "LogService",
    "LogStore",
    "LoopbackGate",
    "NativeLog",
    "ReadPlan",
    "Reader",
    "ServiceTls",
    "TokenGate",
    "load_readers",
    "new_token",
    "open_gate",
    "token_line",
]
