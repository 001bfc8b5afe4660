"""One node's durable path on a disk that lies: proposals in, committed entries and effects out.

A `Life` is one run of the process between two deaths. It does nothing by itself: whoever turns it
says when time passes, when the log's writer writes and syncs, when a checkpoint moves on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from quantumqtt import _core
from quantumqtt.simulation.commands import Command, Limits
from quantumqtt.simulation.crank import SessionView, decode_entry, effect_of, view_of
from quantumqtt.simulation.effects import Effect

SEGMENT_BYTES = 64 << 10
"""The smallest segments there are, so that the log turns over within one seed."""
CHUNK_BYTES = 2_048
"""Small, so that a checkpoint takes many steps and the state changes between them."""


class Status(TypedDict):
    """What the log stands at: `restored` is the checkpoint this life began from, 0 without."""

    applied: int
    last: int
    compacted: int
    restored: int
    is_full: bool


@dataclass(frozen=True, slots=True)
class Applied:
    """One committed entry and what it came to."""

    index: int
    now_ms: int
    raw: bytes
    commands: tuple[Command, ...]
    effects: tuple[Effect, ...]


def _applied(record: tuple[int, bytes, Sequence[tuple[str, dict[str, object]]]]) -> Applied:
    index, raw, effects = record
    entry = decode_entry(raw)
    done = tuple(effect_of(name, fields) for name, fields in effects)
    return Applied(index, entry.now_ms, raw, entry.commands, done)


class Life:
    """One run of a node."""

    def __init__(
        self,
        disk: _core.SimulatedDisk,
        *,
        limits: Limits,
        now_ms: int,
        entropy_seed: int,
        acks_early: bool = False,
        bend: str | None = None,
    ) -> None:
        """Open what is on the disk; `found` is what its log held behind the checkpoint.

        Raises:
            CorruptLog: Something that was durable is damaged.
            StorageError: The disk failed or is full.
        """
        self._node, told = _core.open_simulated_node(
            disk,
            limits=limits,
            now_ms=now_ms,
            entropy_seed=entropy_seed,
            segment_bytes=SEGMENT_BYTES,
            acks_early=acks_early,
            bend=bend,
        )
        self.found = [_applied(record) for record in told]
        self.stopped: str | None = None

    def turn(
        self, entries: Sequence[Sequence[Command]], *, now_ms: int, sync: bool
    ) -> list[Applied]:
        """Propose entries, let the writer write if it may, and apply what has become durable.

        `stopped` tells whether the node stopped in this turn: what was applied before that counts.
        """
        told, self.stopped = self._node.turn(entries, now_ms=now_ms, sync=sync)
        return [_applied(record) for record in told]

    def apply_unlogged(self, batch: Sequence[Command], *, now_ms: int) -> None:
        """Change the state behind the log's back: only seeded bugs do that."""
        self._node.apply_unlogged(batch, now_ms)

    def begin_checkpoint_files(self) -> int:
        """Begin a checkpoint as of what is applied now; its index.

        Raises:
            CorruptLog: There is one of that index already.
            StorageError: The disk failed or is full.
        """
        return self._node.begin_checkpoint_files()

    def begin_checkpoint_state(self, index: int) -> None:
        """Say that the state as it is now is what that checkpoint will hold."""
        self._node.begin_checkpoint_state(index)

    def step_checkpoint(self, *, floor: int | None) -> int | None:
        """Write one chunk; after the last publish, and cut the log as far as `floor` allows.

        Returns:
            The checkpoint's index once all of it is done.

        Raises:
            StorageError: The disk failed or is full; the checkpoint is given up.
        """
        return self._node.step_checkpoint(bytes_max=CHUNK_BYTES, floor=floor)

    def status(self) -> Status:
        """Tell what the log stands at."""
        told = self._node.status()
        return Status(
            applied=told["applied"],
            last=told["last"],
            compacted=told["compacted"],
            restored=told["restored"],
            is_full=bool(told["is_full"]),
        )

    def digest(self) -> str:
        """Name the whole state."""
        return self._node.digest()

    def broken_invariant(self) -> str | None:
        """Walk the whole state; the first sentence that does not hold, or None."""
        return self._node.broken_invariant()

    def session(self, client_id: str) -> SessionView | None:
        """Look at one stored session."""
        return view_of(self._node.session(client_id))

    def client_ids(self) -> Sequence[str]:
        """All clients with a stored session, in order."""
        return self._node.client_ids()

    def retained_offsets(self, *, now_ms: int) -> Sequence[int]:
        """Offsets of all retained messages, in order of their topics."""
        return self._node.retained_offsets("#", now_ms)
