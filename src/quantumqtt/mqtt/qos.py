"""Quality of service, MQTT's own three levels."""

from enum import IntEnum


class QoS(IntEnum):
    """How often a message may arrive, `[MQTT-4.3]`."""

    AT_MOST_ONCE = 0
    AT_LEAST_ONCE = 1
    EXACTLY_ONCE = 2
