"""The numbers of paho's interface."""

from enum import IntEnum


class MQTTErrorCode(IntEnum):
    """What a call returns; paho tells most errors this way instead of raising."""

    MQTT_ERR_AGAIN = -1
    MQTT_ERR_SUCCESS = 0
    MQTT_ERR_NOMEM = 1
    MQTT_ERR_PROTOCOL = 2
    MQTT_ERR_INVAL = 3
    MQTT_ERR_NO_CONN = 4
    MQTT_ERR_CONN_REFUSED = 5
    MQTT_ERR_NOT_FOUND = 6
    MQTT_ERR_CONN_LOST = 7
    MQTT_ERR_TLS = 8
    MQTT_ERR_PAYLOAD_SIZE = 9
    MQTT_ERR_NOT_SUPPORTED = 10
    MQTT_ERR_AUTH = 11
    MQTT_ERR_ACL_DENIED = 12
    MQTT_ERR_UNKNOWN = 13
    MQTT_ERR_ERRNO = 14
    MQTT_ERR_QUEUE_SIZE = 15
    MQTT_ERR_KEEPALIVE = 16


class MQTTProtocolVersion(IntEnum):
    """Which MQTT is spoken."""

    MQTTv31 = 3
    MQTTv311 = 4
    MQTTv5 = 5


class CallbackAPIVersion(IntEnum):
    """Which arguments callbacks get; only VERSION2 works here."""

    VERSION1 = 1
    VERSION2 = 2


class LogLevel(IntEnum):
    """How urgent a line for `on_log` is."""

    MQTT_LOG_INFO = 0x01
    MQTT_LOG_NOTICE = 0x02
    MQTT_LOG_WARNING = 0x04
    MQTT_LOG_ERR = 0x08
    MQTT_LOG_DEBUG = 0x10


ERROR_WORDS = {
    MQTTErrorCode.MQTT_ERR_SUCCESS: "No error.",
    MQTTErrorCode.MQTT_ERR_NO_CONN: "The client is not currently connected.",
    MQTTErrorCode.MQTT_ERR_QUEUE_SIZE: "Message queue full.",
    MQTTErrorCode.MQTT_ERR_CONN_LOST: "The connection was lost.",
    MQTTErrorCode.MQTT_ERR_CONN_REFUSED: "The connection was refused.",
}


def error_string(code: int) -> str:
    """Say an error code in words."""
    try:
        known = MQTTErrorCode(code)
    except ValueError:
        return "Unknown error."
    return ERROR_WORDS.get(known, known.name.removeprefix("MQTT_ERR_").lower().replace("_", " "))
