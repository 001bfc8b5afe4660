"""QuantuMQTT: MQTT broker, durable sessions, client, work queues and a Spark pipeline.

The names below are loaded when they are first used: a client program never pays for the server's
settings, and importing the package works with every optional dependency absent.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quantumqtt.client import Backoff, Client, Message, SyncClient, Will
    from quantumqtt.config import Limits, Settings, load_settings
    from quantumqtt.errors import (
        ClientClosed,
        ConfigError,
        ConnectFailed,
        ConnectionLost,
        CorruptStore,
        InternalError,
        LandingConflict,
        LocalProtocolError,
        NotAuthorized,
        OffsetExpired,
        PacketTooLarge,
        ProtocolError,
        PublishQueueFull,
        QuantuMQTTError,
        QuotaExceeded,
        RangeError,
        Refused,
        RemoteProtocolError,
        ResponseTimeout,
        ServerRedirect,
        SessionLost,
        SinkError,
        SliceUnavailable,
        SourceError,
        StillStored,
        StorageError,
        TableMismatch,
        TlsFailed,
        TransportError,
        UnknownPartition,
        UnknownTenant,
    )
    from quantumqtt.mqtt import QoS, ReasonCode, TopicFilter, TopicName
    from quantumqtt.node import Broker, BrokerEvent, EventStream, Listener, NodeState, Statistics
    from quantumqtt.policy import AdmissionRequest, ClientNews, Hooks

__all__ = [
    "AdmissionRequest",
    "Backoff",
    "Broker",
    "BrokerEvent",
    "Client",
    "ClientClosed",
    "ClientNews",
    "ConfigError",
    "ConnectFailed",
    "ConnectionLost",
    "CorruptStore",
    "EventStream",
    "Hooks",
    "InternalError",
    "LandingConflict",
    "Limits",
    "Listener",
    "LocalProtocolError",
    "Message",
    "NodeState",
    "NotAuthorized",
    "OffsetExpired",
    "PacketTooLarge",
    "ProtocolError",
    "PublishQueueFull",
    "QoS",
    "QuantuMQTTError",
    "QuotaExceeded",
    "RangeError",
    "ReasonCode",
    "Refused",
    "RemoteProtocolError",
    "ResponseTimeout",
    "ServerRedirect",
    "SessionLost",
    "Settings",
    "SinkError",
    "SliceUnavailable",
    "SourceError",
    "Statistics",
    "StillStored",
    "StorageError",
    "SyncClient",
    "TableMismatch",
    "TlsFailed",
    "TopicFilter",
    "TopicName",
    "TransportError",
    "UnknownPartition",
    "UnknownTenant",
    "Will",
    "__version__",
    "load_settings",
]

__version__: Final = "0.1.0"

_ROOMS: Final = {
    "quantumqtt.config": ("Limits", "Settings", "load_settings"),
    "quantumqtt.client": ("Backoff", "Client", "Message", "SyncClient", "Will"),
    "quantumqtt.errors": (
        "ClientClosed",
        "ConfigError",
        "ConnectFailed",
        "ConnectionLost",
        "CorruptStore",
        "InternalError",
        "LandingConflict",
        "LocalProtocolError",
        "NotAuthorized",
        "OffsetExpired",
        "PacketTooLarge",
        "ProtocolError",
        "PublishQueueFull",
        "QuantuMQTTError",
        "QuotaExceeded",
        "RangeError",
        "Refused",
        "RemoteProtocolError",
        "ResponseTimeout",
        "ServerRedirect",
        "SessionLost",
        "SinkError",
        "SliceUnavailable",
        "SourceError",
        "StillStored",
        "StorageError",
        "TableMismatch",
        "TlsFailed",
        "TransportError",
        "UnknownPartition",
        "UnknownTenant",
    ),
    "quantumqtt.mqtt": ("QoS", "ReasonCode", "TopicFilter", "TopicName"),
    "quantumqtt.node": (
        "Broker",
        "BrokerEvent",
        "EventStream",
        "Listener",
        "NodeState",
        "Statistics",
    ),
    "quantumqtt.policy": ("AdmissionRequest", "ClientNews", "Hooks"),
}
_ROOM_OF: Final = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a public name from its room on first use."""
    room = _ROOM_OF.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(room), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
