"""The properties of MQTT 5 by name, and blocks of them ready to send."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, cast

from quantumqtt import _core
from quantumqtt.errors import LocalProtocolError

_NUMBER_MAX: Final = 0xFFFF_FFFF


class PropertyId(IntEnum):
    """Every property of `[MQTT5 2.2.2.2]`; the number is its identifier on the wire."""

    PAYLOAD_FORMAT_INDICATOR = 0x01
    MESSAGE_EXPIRY_INTERVAL = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_ID = 0x0B
    SESSION_EXPIRY_INTERVAL = 0x11
    ASSIGNED_CLIENT_ID = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTHENTICATION_METHOD = 0x15
    AUTHENTICATION_DATA = 0x16
    REQUEST_PROBLEM_INFORMATION = 0x17
    WILL_DELAY_INTERVAL = 0x18
    REQUEST_RESPONSE_INFORMATION = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_SUBSCRIPTION_AVAILABLE = 0x28
    SUBSCRIPTION_ID_AVAILABLE = 0x29
    SHARED_SUBSCRIPTION_AVAILABLE = 0x2A


PropertyValue = bool | int | str | bytes | tuple[str, str]
UserProperties = Mapping[str, str] | Iterable[tuple[str, str]]


def user_property_pairs(properties: UserProperties) -> list[tuple[int, PropertyValue]]:
    """List user properties; a mapping is the short form when no name repeats."""
    pairs: Iterable[tuple[str, str]] = (
        cast("Mapping[str, str]", properties).items()
        if isinstance(properties, Mapping)
        else properties
    )
    return [(PropertyId.USER_PROPERTY, (name, value)) for name, value in pairs]


def encode_properties(
    values: Iterable[tuple[PropertyId, PropertyValue | None]],
    user_properties: UserProperties = (),
) -> bytes:
    """Write a property block; values that are None are left out.

    Raises:
        LocalProtocolError: A value is out of its property's range.
        TypeError: A value has the wrong type.
    """
    listed: list[tuple[int, PropertyValue]] = [
        (int(number), value) for number, value in values if value is not None
    ]
    for number, value in listed:
        if isinstance(value, int) and not 0 <= value <= _NUMBER_MAX:
            raise LocalProtocolError(
                f"{PropertyId(number).name.lower()} is {value}",
                f"choose a number from 0 to {_NUMBER_MAX}",
            )
    listed += user_property_pairs(user_properties)
    return _core.encode_properties(listed) if listed else b""


def publish_properties(
    *,
    content_type: str | None = None,
    response_topic: str | None = None,
    correlation_data: bytes | None = None,
    message_expiry_s: int | None = None,
    payload_is_utf8: bool | None = None,
    user_properties: UserProperties = (),
) -> bytes:
    """Write the properties of a message.

    Raises:
        LocalProtocolError: A value is out of its property's range.
        TypeError: A value has the wrong type.
    """
    return encode_properties(
        (
            (PropertyId.PAYLOAD_FORMAT_INDICATOR, payload_is_utf8),
            (PropertyId.MESSAGE_EXPIRY_INTERVAL, message_expiry_s),
            (PropertyId.CONTENT_TYPE, content_type),
            (PropertyId.RESPONSE_TOPIC, response_topic),
            (PropertyId.CORRELATION_DATA, correlation_data),
        ),
        user_properties,
    )
