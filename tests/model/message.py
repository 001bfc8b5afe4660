"""Messages: what a publisher said, and the copy that is on its way to one subscriber."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """One accepted publish; every subscriber's copy refers to it."""

    offset: int
    accepted_ms: int
    topic: str
    payload: bytes
    properties: bytes
    qos: int
    expiry_s: int | None

    @property
    def weight(self) -> int:
        """The bytes that count against queue limits."""
        return len(self.topic.encode()) + len(self.properties) + len(self.payload)

    @property
    def expires_at_ms(self) -> int | None:
        """When nobody wants it any more, if ever."""
        return None if self.expiry_s is None else self.accepted_ms + 1000 * self.expiry_s

    def is_expired(self, now_ms: int) -> bool:
        """Whether its time is over; in the instant it is accepted it never is."""
        at_ms = self.expires_at_ms
        return at_ms is not None and self.accepted_ms < now_ms and at_ms <= now_ms

    def remaining_s(self, now_ms: int) -> int | None:
        """The expiry to forward: what it was, less the time spent here [MQTT-3.3.2-6]."""
        if self.expiry_s is None:
            return None
        return max(0, self.expiry_s - (now_ms - self.accepted_ms) // 1000)


@dataclass(frozen=True, slots=True)
class Delivery:
    """The copy of a message that one subscriber is to receive."""

    message: Message
    qos: int
    retain: bool
    subscription_ids: tuple[int, ...]
    share: str | None = None
    """The filter of the share group it came by, if it did."""
    retain_published: bool = False
    """The retain flag as published, for the next member of that group."""
    declined: int = 0
    """So many members of that group may not read it."""

    def packet_bytes(self, level: int) -> int:
        """The size of its PUBLISH in protocol `level`, fixed header included."""
        message = self.message
        body = 2 + len(message.topic.encode()) + (2 if self.qos else 0) + len(message.payload)
        if level >= 5:
            properties = len(message.properties) + (0 if message.expiry_s is None else 5)
            properties += sum(1 + varint_bytes(number) for number in self.subscription_ids)
            body += varint_bytes(properties) + properties
        return 1 + varint_bytes(body) + body


def varint_bytes(number: int) -> int:
    """How many bytes MQTT spends on a number: seven bits in each."""
    return max(1, (number.bit_length() + 6) // 7)
