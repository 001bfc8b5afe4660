"""paho-mqtt's interface over our client: `import quantumqtt.compat.paho as mqtt`.

Programs written for paho-mqtt 2.x and its callbacks of VERSION2 run as they are; what is not there
raises `NotImplementedError` and names the way out. `quantumqtt.compat.paho.publish` and
`.subscribe` hold the helpers `single`, `multiple`, `simple` and `callback`.
"""

from quantumqtt.compat.paho.client import (
    MQTT_CLEAN_START_FIRST_ONLY,
    Client,
    ConnectFlags,
    DisconnectFlags,
    topic_matches_sub,
)
from quantumqtt.compat.paho.enums import (
    CallbackAPIVersion,
    LogLevel,
    MQTTErrorCode,
    MQTTProtocolVersion,
    error_string,
)
from quantumqtt.compat.paho.message import MQTTMessage, MQTTMessageInfo
from quantumqtt.compat.paho.packettypes import PacketTypes
from quantumqtt.compat.paho.properties import MQTTException, Properties
from quantumqtt.compat.paho.reasoncodes import ReasonCode
from quantumqtt.compat.paho.subscribeoptions import SubscribeOptions

MQTTv31 = MQTTProtocolVersion.MQTTv31
MQTTv311 = MQTTProtocolVersion.MQTTv311
MQTTv5 = MQTTProtocolVersion.MQTTv5
MQTT_ERR_SUCCESS = MQTTErrorCode.MQTT_ERR_SUCCESS
MQTT_ERR_INVAL = MQTTErrorCode.MQTT_ERR_INVAL
MQTT_ERR_NO_CONN = MQTTErrorCode.MQTT_ERR_NO_CONN
MQTT_ERR_CONN_LOST = MQTTErrorCode.MQTT_ERR_CONN_LOST
MQTT_ERR_CONN_REFUSED = MQTTErrorCode.MQTT_ERR_CONN_REFUSED
MQTT_ERR_QUEUE_SIZE = MQTTErrorCode.MQTT_ERR_QUEUE_SIZE
MQTT_LOG_DEBUG = LogLevel.MQTT_LOG_DEBUG
MQTT_LOG_INFO = LogLevel.MQTT_LOG_INFO
MQTT_LOG_NOTICE = LogLevel.MQTT_LOG_NOTICE
MQTT_LOG_WARNING = LogLevel.MQTT_LOG_WARNING
MQTT_LOG_ERR = LogLevel.MQTT_LOG_ERR

__all__ = [
    "MQTT_CLEAN_START_FIRST_ONLY",
    "MQTT_ERR_CONN_LOST",
    "MQTT_ERR_CONN_REFUSED",
    "MQTT_ERR_INVAL",
    "MQTT_ERR_NO_CONN",
    "MQTT_ERR_QUEUE_SIZE",
    "MQTT_ERR_SUCCESS",
    "MQTT_LOG_DEBUG",
    "MQTT_LOG_ERR",
    "MQTT_LOG_INFO",
    "MQTT_LOG_NOTICE",
    "MQTT_LOG_WARNING",
    "CallbackAPIVersion",
    "Client",
    "ConnectFlags",
    "DisconnectFlags",
    "LogLevel",
    "MQTTErrorCode",
    "MQTTException",
    "MQTTMessage",
    "MQTTMessageInfo",
    "MQTTProtocolVersion",
    "MQTTv5",
    "MQTTv31",
    "MQTTv311",
    "PacketTypes",
    "Properties",
    "ReasonCode",
    "SubscribeOptions",
    "error_string",
    "topic_matches_sub",
]
