"""QuantuMQTT: MQTT broker, durable sessions, client, work queues and a Spark pipeline.

The names below are loaded when they are first used: a client program never pays for the server's
settings, and importing the package works with every optional dependency absent.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quantumqtt.config import Limits, Settings, load_settings
    from quantumqtt.errors import (
        ConfigError,
        InternalError,
        LocalProtocolError,
        ProtocolError,
        QuantuMQTTError,
        Refused,
        RemoteProtocolError,
        TransportError,
    )
    from quantumqtt.mqtt import QoS, ReasonCode, TopicFilter, TopicName
    from quantumqtt.node import Broker, BrokerEvent, EventStream, Listener, NodeState, Statistics
    from quantumqtt.policy import AdmissionRequest

__all__ = [
    "AdmissionRequest",
    "Broker",
    "BrokerEvent",
    "ConfigError",
    "EventStream",
    "InternalError",
    "Limits",
    "Listener",
    "LocalProtocolError",
    "NodeState",
    "ProtocolError",
    "QoS",
    "QuantuMQTTError",
    "ReasonCode",
    "Refused",
    "RemoteProtocolError",
    "Settings",
    "Statistics",
    "TopicFilter",
    "TopicName",
    "TransportError",
    "__version__",
    "load_settings",
]

__version__: Final = "0.1.0"

_ROOMS: Final = {
    "quantumqtt.config": ("Limits", "Settings", "load_settings"),
    "quantumqtt.errors": (
        "ConfigError",
        "InternalError",
        "LocalProtocolError",
        "ProtocolError",
        "QuantuMQTTError",
        "Refused",
        "RemoteProtocolError",
        "TransportError",
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
    "quantumqtt.policy": ("AdmissionRequest",),
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
