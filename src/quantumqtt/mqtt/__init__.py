"""MQTT's words as small frozen types."""

from quantumqtt.mqtt.properties import PropertyId, encode_properties, publish_properties
from quantumqtt.mqtt.qos import QoS
from quantumqtt.mqtt.reason_code import CONNACK_REASON_CODES, ReasonCode
from quantumqtt.mqtt.saslprep import saslprep
from quantumqtt.mqtt.topics import TopicFilter, TopicName

__all__ = [
    "CONNACK_REASON_CODES",
    "PropertyId",
    "QoS",
    "ReasonCode",
    "TopicFilter",
    "TopicName",
    "encode_properties",
    "publish_properties",
    "saslprep",
]
