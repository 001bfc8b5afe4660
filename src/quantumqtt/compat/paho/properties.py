"""Properties of MQTT 5 as attributes with paho's names: `properties.MessageExpiryInterval = 5`."""

import json
from collections.abc import Iterable
from typing import Final

from quantumqtt.client import Message
from quantumqtt.compat.paho.packettypes import PacketTypes as Packets
from quantumqtt.mqtt import PropertyId
from quantumqtt.mqtt.properties import PropertyValue

_MESSAGE: Final = (Packets.PUBLISH, Packets.WILLMESSAGE)
_ACKS: Final = (
    Packets.CONNACK,
    Packets.PUBACK,
    Packets.PUBREC,
    Packets.PUBREL,
    Packets.PUBCOMP,
    Packets.SUBACK,
    Packets.UNSUBACK,
    Packets.DISCONNECT,
    Packets.AUTH,
)
# paho's name: the property, and the packets that carry it.
_ALLOWED: Final[dict[str, tuple[PropertyId, tuple[int, ...]]]] = {
    "PayloadFormatIndicator": (PropertyId.PAYLOAD_FORMAT_INDICATOR, _MESSAGE),
    "MessageExpiryInterval": (PropertyId.MESSAGE_EXPIRY_INTERVAL, _MESSAGE),
    "ContentType": (PropertyId.CONTENT_TYPE, _MESSAGE),
    "ResponseTopic": (PropertyId.RESPONSE_TOPIC, _MESSAGE),
    "CorrelationData": (PropertyId.CORRELATION_DATA, _MESSAGE),
    "SubscriptionIdentifier": (
        PropertyId.SUBSCRIPTION_ID,
        (Packets.PUBLISH, Packets.SUBSCRIBE),
    ),
    "SessionExpiryInterval": (
        PropertyId.SESSION_EXPIRY_INTERVAL,
        (Packets.CONNECT, Packets.CONNACK, Packets.DISCONNECT),
    ),
    "AssignedClientIdentifier": (PropertyId.ASSIGNED_CLIENT_ID, (Packets.CONNACK,)),
    "ServerKeepAlive": (PropertyId.SERVER_KEEP_ALIVE, (Packets.CONNACK,)),
    "AuthenticationMethod": (
        PropertyId.AUTHENTICATION_METHOD,
        (Packets.CONNECT, Packets.CONNACK, Packets.AUTH),
    ),
    "AuthenticationData": (
        PropertyId.AUTHENTICATION_DATA,
        (Packets.CONNECT, Packets.CONNACK, Packets.AUTH),
    ),
    "RequestProblemInformation": (
        PropertyId.REQUEST_PROBLEM_INFORMATION,
        (Packets.CONNECT,),
    ),
    "WillDelayInterval": (PropertyId.WILL_DELAY_INTERVAL, (Packets.WILLMESSAGE,)),
    "RequestResponseInformation": (
        PropertyId.REQUEST_RESPONSE_INFORMATION,
        (Packets.CONNECT,),
    ),
    "ResponseInformation": (PropertyId.RESPONSE_INFORMATION, (Packets.CONNACK,)),
    "ServerReference": (PropertyId.SERVER_REFERENCE, (Packets.CONNACK, Packets.DISCONNECT)),
    "ReasonString": (PropertyId.REASON_STRING, _ACKS),
    "ReceiveMaximum": (PropertyId.RECEIVE_MAXIMUM, (Packets.CONNECT, Packets.CONNACK)),
    "TopicAliasMaximum": (PropertyId.TOPIC_ALIAS_MAXIMUM, (Packets.CONNECT, Packets.CONNACK)),
    "TopicAlias": (PropertyId.TOPIC_ALIAS, (Packets.PUBLISH,)),
    "MaximumQoS": (PropertyId.MAXIMUM_QOS, (Packets.CONNACK,)),
    "RetainAvailable": (PropertyId.RETAIN_AVAILABLE, (Packets.CONNACK,)),
    "UserProperty": (
        PropertyId.USER_PROPERTY,
        (
            *_ACKS,
            *_MESSAGE,
            Packets.CONNECT,
            Packets.SUBSCRIBE,
            Packets.UNSUBSCRIBE,
        ),
    ),
    "MaximumPacketSize": (PropertyId.MAXIMUM_PACKET_SIZE, (Packets.CONNECT, Packets.CONNACK)),
    "WildcardSubscriptionAvailable": (
        PropertyId.WILDCARD_SUBSCRIPTION_AVAILABLE,
        (Packets.CONNACK,),
    ),
    "SubscriptionIdentifierAvailable": (
        PropertyId.SUBSCRIPTION_ID_AVAILABLE,
        (Packets.CONNACK,),
    ),
    "SharedSubscriptionAvailable": (
        PropertyId.SHARED_SUBSCRIPTION_AVAILABLE,
        (Packets.CONNACK,),
    ),
}
_NAME_OF: Final = {number: name for name, (number, _) in _ALLOWED.items()}
_REPEATED: Final = ("UserProperty", "SubscriptionIdentifier")


class MQTTException(Exception):
    """paho's own exception, for what it raises this way."""


class Properties:
    """The properties of one packet; only those it may carry can be set."""

    packetType: int  # noqa: N815 - paho's name

    def __init__(self, packetType: int) -> None:  # noqa: N803 - paho's name
        """Start empty, for a packet type."""
        object.__setattr__(self, "packetType", packetType)

    def __setattr__(self, name: str, value: object) -> None:
        """Set a property.

        Raises:
            MQTTException: The packet does not carry it, or there is no such property.
        """
        number_and_packets = _ALLOWED.get(name)
        if number_and_packets is None:
            raise MQTTException(f"there is no property {name!r} of MQTT 5")
        if self.packetType not in number_and_packets[1]:
            raise MQTTException(f"packet type {self.packetType} does not carry {name}")
        if name in _REPEATED:
            many = value if isinstance(value, list) else [value]
            value = [*getattr(self, name, []), *many]
        object.__setattr__(self, name, value)

    def isEmpty(self) -> bool:  # noqa: N802 - paho's name
        """Whether nothing is set."""
        return not self.names()

    def names(self) -> list[str]:
        """What is set."""
        return [name for name in _ALLOWED if name in vars(self)]

    def clear(self) -> None:
        """Unset everything."""
        for name in self.names():
            object.__delattr__(self, name)

    def value(self, name: str) -> object:
        """A property, or None."""
        return vars(self).get(name)

    def number(self, name: str) -> int | None:
        """A numeric property, or None."""
        value = self.value(name)
        return value if isinstance(value, int) else None

    def text(self, name: str) -> str | None:
        """A textual property, or None."""
        value = self.value(name)
        return value if isinstance(value, str) else None

    def bytes(self, name: str) -> "bytes | None":
        """A binary property, or None."""
        value = self.value(name)
        return value.encode() if isinstance(value, str) else _bytes_or_none(value)

    def pairs(self) -> list[tuple[str, str]]:
        """The user properties."""
        value = self.value("UserProperty")
        return [(str(key), str(text)) for key, text in value] if isinstance(value, list) else []

    def json(self) -> dict[str, object]:
        """Everything that is set; binary values as hexadecimal."""
        shown = {name: self.value(name) for name in self.names()}
        return {
            name: value.hex() if isinstance(value, bytes) else value
            for name, value in shown.items()
        }

    def __str__(self) -> str:
        """Everything that is set, as paho shows it."""
        return "[" + ", ".join(f"{name} : {self.value(name)}" for name in self.names()) + "]"

    def __repr__(self) -> str:
        """As JSON, for logs."""
        return f"Properties({json.dumps(self.json())})"


def _bytes_or_none(value: object) -> bytes | None:
    return bytes(value) if isinstance(value, bytes | bytearray) else None


def properties_of(packet_type: int, pairs: Iterable[tuple[int, PropertyValue]]) -> Properties:
    """Properties as they came from the broker."""
    properties = Properties(packet_type)
    for number, value in pairs:
        shown = int(value) if isinstance(value, bool) else value
        setattr(properties, _NAME_OF[PropertyId(number)], shown)
    return properties


def message_properties(message: Message) -> Properties:
    """The properties of a received message."""
    pairs: list[tuple[int, PropertyValue | None]] = [
        (PropertyId.PAYLOAD_FORMAT_INDICATOR, message.payload_is_utf8 or None),
        (PropertyId.MESSAGE_EXPIRY_INTERVAL, message.message_expiry_s),
        (PropertyId.CONTENT_TYPE, message.content_type),
        (PropertyId.RESPONSE_TOPIC, message.response_topic),
        (PropertyId.CORRELATION_DATA, message.correlation_data),
        *((PropertyId.SUBSCRIPTION_ID, one) for one in message.subscription_ids),
        *((PropertyId.USER_PROPERTY, one) for one in message.user_properties),
    ]
    present = [(number, value) for number, value in pairs if value is not None]
    return properties_of(Packets.PUBLISH, present)
