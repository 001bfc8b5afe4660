"""What a payload that cannot be read is answered with, and the reader all decoders share."""

from typing import Final

# Nesting beyond this is an attack or a mistake; Python's own stack ends at about a thousand.
DEPTH_MAX: Final = 64


class BadPayload(ValueError):
    """The bytes are not of the format; says where."""


class Bytes:
    """A payload being read from its start; whoever asks for more than there is, is refused."""

    __slots__ = ("_data", "at")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    @property
    def left(self) -> int:
        """Bytes not yet taken."""
        return len(self._data) - self.at

    def take(self, count: int) -> bytes:
        """Take so many bytes."""
        if count < 0 or count > self.left:
            raise BadPayload(f"{count} bytes announced at {self.at}, {self.left} are left")
        self.at += count
        return self._data[self.at - count : self.at]

    def byte(self) -> int:
        """Take one byte as a number."""
        return self.take(1)[0]

    def peek(self) -> int:
        """Look at the next byte."""
        if not self.left:
            raise BadPayload(f"ends at {self.at}, where more was due")
        return self._data[self.at]

    def text(self, count: int) -> str:
        """Take UTF-8."""
        raw = self.take(count)
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise BadPayload(f"no UTF-8 before {self.at}") from error

    def varint(self) -> int:
        """Take an unsigned number of seven bits a byte, as Protobuf and Avro write them."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF
        raise BadPayload(f"a number of more than ten bytes before {self.at}")


def zigzag(value: int) -> int:
    """Fold an unsigned number back into a signed one."""
    return (value >> 1) ^ -(value & 1)


def signed(value: int, bits: int) -> int:
    """Read the lowest bits as two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value
