"""Everything that can be asked of the state machine, as frozen values.

The same words as in `crates/machine/src/command.rs`; times and ids mean the same there. A command
that comes from a connection carries the client id and the `session_epoch` it was opened with: the
epoch is the fence that keeps an older connection from changing anything.
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Origin: TypeAlias = tuple[int, int, int]
"""Where an answer goes: node, shard, connection. The state machine only compares it."""

AckKind: TypeAlias = Literal["puback", "pubrec", "pubcomp", "declined"]
OverflowPolicy: TypeAlias = Literal["expire_session", "drop_oldest", "drop_newest"]

EXPIRY_NEVER_S: Final = 0xFFFF_FFFF
"""Session expiry that never comes, as MQTT 5 spells it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of one partition; the defaults are those of the embedded profile."""

    window_max: int = 1024
    queue_count_max: int = 1_000_000
    queue_bytes_max: int = 1 << 30
    subscriptions_max: int = 1_000_000
    received_max: int = 4096
    retained_bytes_max: int = 64 << 30
    overflow: OverflowPolicy = "expire_session"


@dataclass(frozen=True, slots=True, kw_only=True)
class Will:
    """The message a client leaves behind."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    delay_s: int = 0
    expiry_s: int | None = None
    properties: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    """A connection asks for its stored session, or for one to be stored."""

    origin: Origin
    client_id: str
    identity: str = ""
    level: int = 5
    clean_start: bool = False
    expiry_s: int = EXPIRY_NEVER_S
    receive_maximum: int = 0xFFFF
    maximum_packet_bytes: int = 0xFFFF_FFFF
    will: Will | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLost:
    """The network connection of a session is gone; a normal DISCONNECT fires no will.

    With a grace it was the server that ended it, and the will waits so long at least.
    """

    client_id: str
    session_epoch: int
    fire_will: bool
    expiry_s: int | None = None
    will_grace_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveWill:
    """The server has ended the connection of a transient session that leaves a will."""

    client_id: str
    will: Will
    will_grace_s: int
    identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeFilter:
    """One filter of a SUBSCRIBE; `refused` is the verdict of access control."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    refused: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """A SUBSCRIBE of a stored session."""

    origin: Origin
    client_id: str
    session_epoch: int
    packet_id: int
    filters: tuple[SubscribeFilter, ...]
    subscription_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscribe:
    """An UNSUBSCRIBE of a stored session."""

    origin: Origin
    client_id: str
    session_epoch: int
    packet_id: int
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """A PUBLISH, of a stored session or of a transient one (`incarnation` 0)."""

    origin: Origin
    client_id: str
    topic: str
    payload: bytes
    qos: int = 0
    packet_id: int = 0
    session_epoch: int = 0
    incarnation: int = 0
    retain: bool = False
    dup: bool = False
    captured: bool = False
    dedupe: tuple[str, str] | None = None
    """Identity and key under which it counts once."""
    expiry_s: int | None = None
    properties: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class PubRel:
    """A PUBREL from a publisher."""

    origin: Origin
    client_id: str
    session_epoch: int
    packet_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAck:
    """A subscriber acknowledges something it was sent."""

    client_id: str
    session_epoch: int
    packet_id: int
    kind: AckKind
    reason: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Everything whose time has come, happens now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLimits:
    """The bounds from here on."""

    limits: Limits


Command: TypeAlias = (
    OpenSession
    | ConnectionLost
    | LeaveWill
    | Subscribe
    | Unsubscribe
    | Publish
    | PubRel
    | ClientAck
    | Tick
    | SetLimits
)
