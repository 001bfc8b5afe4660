"""Payload formats, decoded without Spark: bytes in, plain Python values out.

Payloads are what strangers send. Each decoder bounds its depth, announces no memory it has not
seen bytes for, and raises `BadPayload` for whatever it cannot read; nothing else leaves it.
"""

from quantumqtt.spark.payloads.avro import AvroDecoder
from quantumqtt.spark.payloads.bad import BadPayload
from quantumqtt.spark.payloads.cbor import decode_cbor
from quantumqtt.spark.payloads.protobuf import ProtobufDecoder, read_descriptors
from quantumqtt.spark.payloads.sparkplug import decode_sparkplug

__all__ = [
    "AvroDecoder",
    "BadPayload",
    "ProtobufDecoder",
    "decode_cbor",
    "decode_sparkplug",
    "read_descriptors",
]
