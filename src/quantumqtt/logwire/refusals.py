"""How a typed error crosses Flight and Spark: words for people, then its fields for programs.

    offsets 5 to 8 of default/0 have expired [quantumqtt {"earliest":9,"error":"OffsetExpired",…}]

gRPC has a handful of status codes and none that says which offset is left. The message text is the
one thing that every Flight implementation carries unharmed, also out of the middle of a stream, so
the fields ride at its end.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

from quantumqtt.errors import (
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    InternalError,
    LandingConflict,
    NotAuthorized,
    OffsetExpired,
    QuantuMQTTError,
    QuotaExceeded,
    ResponseTimeout,
    SinkError,
    SliceUnavailable,
    SourceError,
    StorageError,
    TableMismatch,
    TlsFailed,
    UnknownPartition,
    UnknownTenant,
)

# Each error that crosses, with the fields it carries. A log service answers with those of sources,
# storage and refusals; the rest is what a Spark worker may have to say.
REFUSALS: Final[Mapping[str, tuple[type[QuantuMQTTError], tuple[str, ...]]]] = {
    "ConfigError": (ConfigError, ()),
    "ConnectFailed": (ConnectFailed, ()),
    "ConnectionLost": (ConnectionLost, ()),
    "InternalError": (InternalError, ()),
    "LandingConflict": (LandingConflict, ()),
    "NotAuthorized": (NotAuthorized, ("reason_code",)),
    "OffsetExpired": (OffsetExpired, ("tenant", "partition", "start", "earliest", "end")),
    "QuotaExceeded": (QuotaExceeded, ("reason_code",)),
    "ResponseTimeout": (ResponseTimeout, ()),
    "SinkError": (SinkError, ()),
    "SliceUnavailable": (SliceUnavailable, ("tenant", "partition", "start", "earliest", "end")),
    "SourceError": (SourceError, ("tenant", "partition")),
    "StorageError": (StorageError, ()),
    "TableMismatch": (TableMismatch, ()),
    "TlsFailed": (TlsFailed, ()),
    "UnknownPartition": (UnknownPartition, ("tenant", "partition")),
    "UnknownTenant": (UnknownTenant, ("tenant",)),
}

# gRPC keeps a status message in a header of 8 KiB; the fields must not be what is cut off.
WORDS_MAX: Final = 1_000

_FIELDS = re.compile(r" \[quantumqtt (\{[^\n]*?\})\]")


def write_refusal(error: QuantuMQTTError) -> str:
    """Spell an error; one that has no place in the table travels as `InternalError`."""
    name = type(error).__name__
    _, carried = REFUSALS.get(name, (None, ()))
    fields: dict[str, object] = {key: getattr(error, key) for key in carried}
    fields["error"] = name if name in REFUSALS else "InternalError"
    fields["v"] = 1
    if error.hint:
        fields["hint"] = error.hint[:WORDS_MAX]
    # Flight wraps the message in words of its own; the fields say which were ours.
    fields["words"] = str(error)[:WORDS_MAX]
    # The pattern ends at the first "}]": neither bracket may stand inside.
    spelled = json.dumps(fields, sort_keys=True, separators=(",", ":")).replace("]", "\\u005d")
    return f"{str(error)[:WORDS_MAX]} [quantumqtt {spelled}]"


def read_refusal(message: str) -> QuantuMQTTError | None:
    """Find a spelled error in what Flight says went wrong; None when there is none."""
    found = _FIELDS.search(message)
    if found is None:
        return None
    try:
        fields = json.loads(found.group(1))
        kind, carried = REFUSALS[fields.pop("error")]
    except (ValueError, KeyError):
        return None
    hint = fields.get("hint")
    error = kind(str(fields.get("words", "")), hint if isinstance(hint, str) else None)
    for key in carried:
        setattr(error, key, fields.get(key))
    return error
