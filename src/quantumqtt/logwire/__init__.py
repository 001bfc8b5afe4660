"""What crosses between the log service and those who read it.

The server wing and the user wing must not import each other, and yet both must mean the same by a
ticket. So the words they share lie here, in the cellar: plain frozen types with their bytes, the
columns of a record, and the form in which a refusal travels. Nothing here opens a connection; the
module with the Arrow schema is imported by those who have Arrow.
"""

from quantumqtt.logwire.refusals import read_refusal, write_refusal
from quantumqtt.logwire.tickets import (
    WIRE_VERSION,
    Action,
    OffsetsAnswer,
    OffsetsQuestion,
    PartitionRange,
    ReadTicket,
    TimeAnswer,
    TimeQuestion,
    WaitQuestion,
)

__all__ = [
    "WIRE_VERSION",
    "Action",
    "OffsetsAnswer",
    "OffsetsQuestion",
    "PartitionRange",
    "ReadTicket",
    "TimeAnswer",
    "TimeQuestion",
    "WaitQuestion",
    "read_refusal",
    "write_refusal",
]
