"""The life of one broker process: start, ready, drain, stop."""

from quantumqtt.node.broker import Broker, Listener
from quantumqtt.node.certificates import load_contexts
from quantumqtt.node.events import BrokerEvent, EventStream
from quantumqtt.node.lifecycle import NodeState
from quantumqtt.node.native import LogStatistics, Statistics, build_facts

__all__ = [
    "Broker",
    "BrokerEvent",
    "EventStream",
    "Listener",
    "LogStatistics",
    "NodeState",
    "Statistics",
    "build_facts",
    "load_contexts",
]
