"""Reason codes as paho's callbacks get them: a number, a name, and which packet it came with."""

from functools import total_ordering

from quantumqtt.compat.paho.packettypes import PacketTypes
from quantumqtt.mqtt import ReasonCode as OurReasonCode

_ZERO = {PacketTypes.DISCONNECT: "Normal disconnection", PacketTypes.SUBACK: "Granted QoS 0"}
_NAMES = {int(code): code.label[:1].upper() + code.label[1:] for code in OurReasonCode} | {
    0: "Success",
    4: "Disconnect with will message",
}
_NUMBERS = {name.lower(): number for number, name in _NAMES.items()} | {
    name.lower(): 0 for name in _ZERO.values()
}
_FIRST_ERROR = 0x80


@total_ordering
class ReasonCode:
    """A reason code; compares with numbers and names.

    Raises:
        KeyError: No reason code has this name or number.
    """

    def __init__(
        self,
        packetType: int,  # noqa: N803 - paho's names
        aName: str = "Success",  # noqa: N803
        identifier: int = -1,
    ) -> None:
        """Take a name, or a number as `identifier`."""
        self.packetType = packetType
        self.value = identifier if identifier != -1 else _NUMBERS[aName.lower()]
        self.getName()

    def getName(self) -> str:  # noqa: N802 - paho's name
        """The name that goes with the packet."""
        if self.value == 0 and self.packetType in _ZERO:
            return _ZERO[self.packetType]
        return _NAMES[self.value]

    def pack(self) -> bytearray:
        """The code as a byte."""
        return bytearray([self.value])

    @property
    def is_failure(self) -> bool:
        """Whether the code says no."""
        return self.value >= _FIRST_ERROR

    def __str__(self) -> str:
        """The name."""
        return self.getName()

    def __repr__(self) -> str:
        """What it is, for logs."""
        return f"ReasonCode({self.packetType}, {self.getName()!r})"

    def json(self) -> str:
        """The name."""
        return self.getName()

    def __eq__(self, other: object) -> bool:
        """Compare with a number, a name or another code."""
        if isinstance(other, int):
            return self.value == other
        if isinstance(other, str):
            return other == self.getName()
        if isinstance(other, ReasonCode):
            return self.value == other.value
        return NotImplemented

    def __lt__(self, other: object) -> bool:
        """Compare with a number or another code."""
        if isinstance(other, int):
            return self.value < other
        if isinstance(other, ReasonCode):
            return self.value < other.value
        return NotImplemented

    def __hash__(self) -> int:
        """Equal codes are one key."""
        return hash(self.value)
