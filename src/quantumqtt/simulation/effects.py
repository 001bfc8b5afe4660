"""What applying an entry asks for, as frozen values.

The same words as in `crates/machine/src/effect.rs`. An effect that names an origin goes to that
connection if it is still there, and nowhere otherwise.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from quantumqtt.simulation.commands import AckKind, Origin

EndReason: TypeAlias = Literal["discarded", "closed", "expired", "overflowed"]


class Subscription(NamedTuple):
    """A subscription as it stands in a session."""

    filter: str
    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    subscription_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOpened:
    """Send CONNACK, and close `previous`, which was taken over."""

    origin: Origin
    client_id: str
    session_present: bool
    session_epoch: int
    incarnation: int
    subscriptions: tuple[Subscription, ...]
    previous: Origin | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRefused:
    """The client id belongs to someone else."""

    origin: Origin
    reason: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribed:
    """Send SUBACK."""

    origin: Origin
    client_id: str
    packet_id: int
    codes: tuple[int, ...]
    filters: tuple[Subscription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscribed:
    """Send UNSUBACK."""

    origin: Origin
    client_id: str
    packet_id: int
    codes: tuple[int, ...]
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledge:
    """Answer a publisher."""

    origin: Origin
    kind: AckKind
    packet_id: int
    reason: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver:
    """Send PUBLISH to a subscriber; `offset` names the message."""

    origin: Origin
    session_epoch: int
    packet_id: int | None
    qos: int
    retain: bool
    dup: bool
    expiry_s: int | None
    subscription_ids: tuple[int, ...]
    offset: int
    topic: str
    properties: bytes
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Send PUBREL to a subscriber."""

    origin: Origin
    packet_id: int
    reason: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Write a record to the message log."""

    offset: int
    ts_ms: int
    source: str
    client_id: str
    incarnation: int
    session_epoch: int
    publish_seq: int
    publisher: Origin | None
    retain: bool
    captured: bool
    qos: int
    expiry_s: int | None
    topic: str
    properties: bytes
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded:
    """A stored session is no more; close `origin` if it names a connection."""

    client_id: str
    session_epoch: int
    origin: Origin | None
    reason: EndReason


Effect: TypeAlias = (
    SessionOpened
    | OpenRefused
    | Subscribed
    | Unsubscribed
    | Acknowledge
    | Deliver
    | Release
    | Append
    | SessionEnded
)
