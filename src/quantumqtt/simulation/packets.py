"""What a device says to a broker, as frozen values without bytes.

The simulator leaves the wire to the codec's own tests; what counts here is what is said, in which
order, and what of it is lost with a connection. A broker's side of the talk is the machine's
effects.
"""

from dataclasses import dataclass
from typing import TypeAlias

from quantumqtt.simulation.commands import AckKind, Will


@dataclass(frozen=True, slots=True)
class Message:
    """One thing a device publishes; the number names it for good, whatever becomes of it."""

    number: int
    device: str
    topic: str
    qos: int
    retain: bool = False
    is_empty: bool = False
    padding: int = 0

    @property
    def payload(self) -> bytes:
        """What travels; the number can be read from it wherever it turns up."""
        if self.is_empty:
            return b""
        return f"m{self.number} {self.device} {self.topic} {'.' * self.padding}".encode()


def number_of(payload: bytes) -> int | None:
    """Which message this is; None for an empty one and for a will."""
    return int(payload[1:].split(b" ", 1)[0]) if payload.startswith(b"m") else None


@dataclass(frozen=True, slots=True)
class Connect:
    """CONNECT."""

    clean_start: bool
    expiry_s: int
    receive_maximum: int
    will: Will | None


@dataclass(frozen=True, slots=True)
class Disconnect:
    """DISCONNECT: no will."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """SUBSCRIBE with one filter."""

    packet_id: int
    filter: str
    qos: int


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """UNSUBSCRIBE with one filter."""

    packet_id: int
    filter: str


@dataclass(frozen=True, slots=True)
class Publish:
    """PUBLISH."""

    message: Message
    packet_id: int
    dup: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """PUBREL."""

    packet_id: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """PUBACK, PUBREC or PUBCOMP of something that was delivered."""

    kind: AckKind
    packet_id: int


Packet: TypeAlias = Connect | Disconnect | Subscribe | Unsubscribe | Publish | Release | Acknowledge
