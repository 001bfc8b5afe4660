"""Packet types under paho's names."""

from typing import Final


class PacketTypes:
    """What `Properties` and `ReasonCode` belong to."""

    CONNECT: Final = 1
    CONNACK: Final = 2
    PUBLISH: Final = 3
    PUBACK: Final = 4
    PUBREC: Final = 5
    PUBREL: Final = 6
    PUBCOMP: Final = 7
    SUBSCRIBE: Final = 8
    SUBACK: Final = 9
    UNSUBSCRIBE: Final = 10
    UNSUBACK: Final = 11
    PINGREQ: Final = 12
    PINGRESP: Final = 13
    DISCONNECT: Final = 14
    AUTH: Final = 15
    WILLMESSAGE: Final = 99
