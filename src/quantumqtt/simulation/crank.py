"""The hand crank: one native state machine, turned entry by entry.

Nothing here knows the time or rolls dice. Whoever turns the crank says what time it is, and two
cranks that were turned alike have the same digest: that is the promise of `crates/machine`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from quantumqtt import _core
from quantumqtt.simulation import commands, effects
from quantumqtt.simulation.commands import Command, Limits, Origin
from quantumqtt.simulation.effects import Effect, Subscription

ExchangeStage: TypeAlias = Literal["unsent", "sent", "released"]

_EFFECTS: Final[Mapping[str, Callable[..., Effect]]] = {
    kind.__name__: kind
    for kind in (
        effects.SessionOpened,
        effects.OpenRefused,
        effects.Subscribed,
        effects.Unsubscribed,
        effects.Acknowledge,
        effects.Deliver,
        effects.Release,
        effects.Append,
        effects.SessionEnded,
    )
}
_COMMANDS: Final[Mapping[str, Callable[..., Command]]] = {
    kind.__name__: kind
    for kind in (
        commands.OpenSession,
        commands.ConnectionLost,
        commands.LeaveWill,
        commands.Subscribe,
        commands.Unsubscribe,
        commands.Publish,
        commands.PubRel,
        commands.ClientAck,
        commands.Tick,
        commands.SetLimits,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of the log, read back."""

    partition: int
    now_ms: int
    leader: int
    batch_seq: int
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """One stored session at the moment it was looked at.

    `in_flight` holds packet ids in the order in which they would be repeated, `waiting` the offsets
    of messages behind the window, `replays` the filters whose retained messages have not all been
    sent, `received` the packet ids of the client's own QoS 2 publishes.
    """

    client_id: str
    identity: str
    incarnation: int
    session_epoch: int
    origin: Origin | None
    expiry_s: int
    expires_at_ms: int | None
    will_due_ms: int | None
    has_will: bool
    subscriptions: tuple[Subscription, ...]
    in_flight: tuple[tuple[int, ExchangeStage], ...]
    waiting: tuple[int, ...]
    replays: tuple[str, ...]
    received: tuple[int, ...]


_VIEW: Final[Callable[..., SessionView]] = SessionView


def encode_entry(
    batch: Sequence[Command],
    *,
    now_ms: int,
    partition: int = 0,
    leader: int = 1,
    batch_seq: int = 0,
) -> bytes:
    """Write an entry as the log holds it.

    Raises:
        ValueError: A command names something that does not exist, or there are too many.
    """
    return _core.encode_entry(
        batch, partition=partition, now_ms=now_ms, leader=leader, batch_seq=batch_seq
    )


def decode_entry(entry: bytes) -> Entry:
    """Read an entry.

    Raises:
        ValueError: The bytes are no entry this build can read.
    """
    header, records = _core.decode_entry(entry)
    return Entry(**header, commands=tuple(_command(name, fields) for name, fields in records))


def _command(name: str, fields: Mapping[str, object]) -> Command:
    return _COMMANDS[name](**{key: _nested(name, key, value) for key, value in fields.items()})


def _nested(name: str, key: str, value: object) -> object:
    """Fields that are values of their own, or rows of them."""
    match key, value:
        case "will", dict():
            return commands.Will(**value)
        case "limits", dict():
            return Limits(**value)
        case "filters", list() if name == "Subscribe":
            return tuple(commands.SubscribeFilter(**asked) for asked in value)
        case "filters", list():
            return tuple(value)
        case _:
            return value


def effect_of(name: str, fields: dict[str, object]) -> Effect:
    """Make a frozen value of an effect as it crosses the bridge."""
    if name in ("SessionOpened", "Subscribed"):
        fields = _with_subscriptions(fields)
    return _EFFECTS[name](**fields)


def _with_subscriptions(fields: dict[str, object]) -> dict[str, object]:
    """Rows of subscriptions cross the bridge as plain tuples."""
    for key in ("subscriptions", "filters"):
        rows = fields.get(key)
        if isinstance(rows, tuple):
            fields[key] = tuple(Subscription(*row) for row in rows)
    return fields


def view_of(fields: dict[str, object] | None) -> SessionView | None:
    """Make a frozen value of a session as it crosses the bridge."""
    return None if fields is None else _VIEW(**_with_subscriptions(fields))


class Crank:
    """One partition's state machine, applied by hand."""

    def __init__(self, limits: Limits, *, partition: int = 0) -> None:
        """Start from an empty log."""
        self._partition = partition
        self._machine = _core.Machine(partition=partition, limits=limits)

    def turn(self, *batch: Command, now_ms: int) -> list[Effect]:
        """Apply one entry of these commands and return what is to be done."""
        return self.apply(encode_entry(batch, now_ms=now_ms, partition=self._partition))

    def apply(self, entry: bytes) -> list[Effect]:
        """Apply an entry.

        Raises:
            ValueError: The bytes are no entry; nothing was changed.
            InternalError: A command cannot be applied; this machine must not be used any more.
        """
        return [effect_of(name, fields) for name, fields in self._machine.apply(entry)]

    def digest(self) -> str:
        """Name the whole state: equal in two machines exactly when their states are."""
        return self._machine.digest()

    def broken_invariant(self) -> str | None:
        """Walk the whole state; the first sentence that does not hold, or None."""
        return self._machine.broken_invariant()

    def next_deadline_ms(self) -> int | None:
        """When a tick is next worth applying."""
        return self._machine.next_deadline_ms()

    def statistics(self) -> Mapping[str, int]:
        """Sizes of the state."""
        return self._machine.statistics()

    def begin_checkpoint(self, index: int) -> None:
        """Begin handing out the state as it is now; one that was being handed out is given up."""
        self._machine.begin_checkpoint(index)

    def next_chunk(self, bytes_max: int) -> bytes | None:
        """Take the next chunk of at most that many bytes; None after the last."""
        return self._machine.next_chunk(bytes_max)

    @classmethod
    def restore(cls, chunks: Sequence[bytes]) -> "Crank":
        """Make a machine that goes on where the checkpoint was begun.

        Raises:
            ValueError: The chunks are damaged, incomplete or of another release; names the place.
        """
        machine = _core.restore_machine(chunks)
        crank = cls.__new__(cls)
        crank._partition = machine.partition()
        crank._machine = machine
        return crank

    def client_ids(self) -> Sequence[str]:
        """All clients with a stored session, in order."""
        return self._machine.client_ids()

    def session(self, client_id: str) -> SessionView | None:
        """Look at one stored session."""
        return view_of(self._machine.session(client_id))

    def retained_offsets(self, filter_text: str, *, now_ms: int) -> Sequence[int]:
        """Offsets of the retained messages a new subscription would receive, in order."""
        return self._machine.retained_offsets(filter_text, now_ms)
