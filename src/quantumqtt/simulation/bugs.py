"""Seeded bugs: mistakes of the kind that brokers have made, each switched on by its name.

None of them is compiled into a broker. They sit where the simulator stands in for something: in
its connections (`front.py`), in how it drives the crank (`world.py`), or between the journal and
the disk (`bend`). A test holds that each is noticed within a few seeds; a simulator that notices
none of them would prove nothing about what it lets pass.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """What is done wrong, and who is bound to notice."""

    name: str
    sentence: str
    noticed_by: tuple[str, ...]
    bend: str | None = None
    """The name of a mistake in the use of the disk, made natively."""
    is_shared: bool = False
    """Whether it stands for a bug of the machine, which every replica would have: comparing states
    would find the stand-in and not the bug, so it is left out."""


class Bug(Enum):
    """Everything that can be switched on."""

    ACK_BEFORE_SYNC = Mistake(
        name="ack-before-sync",
        sentence="entries count once they are written, and are synced some day",
        noticed_by=("acknowledged_is_durable", "same_state"),
    )
    SYNC_ERROR_IGNORED = Mistake(
        name="sync-error-ignored",
        sentence="a sync that failed is taken for one that worked",
        noticed_by=("acknowledged_is_durable", "recovers", "same_state"),
        bend="sync_error_ignored",
    )
    SHORT_WRITE_IGNORED = Mistake(
        name="short-write-ignored",
        sentence="a write that stopped half-way is taken for a whole one",
        noticed_by=("acknowledged_is_durable", "recovers"),
        bend="short_write_ignored",
    )
    NAMES_UNSYNCED = Mistake(
        name="names-unsynced",
        sentence="files are synced, the directory that names them is not",
        noticed_by=("acknowledged_is_durable", "recovers", "liveness"),
        bend="names_unsynced",
    )
    CHECKPOINT_UNSYNCED = Mistake(
        name="checkpoint-unsynced",
        sentence="a checkpoint is published, and the log cut behind it, before it is synced",
        noticed_by=("acknowledged_is_durable", "recovers"),
        bend="checkpoint_unsynced",
    )
    CURSOR_AHEAD = Mistake(
        name="cursor-ahead",
        sentence="a checkpoint says one entry more than its state holds, so one is never applied",
        noticed_by=("same_state", "recovers"),
    )
    CURSOR_BEHIND = Mistake(
        name="cursor-behind",
        sentence="a checkpoint says one entry less than its state holds, so one is applied twice",
        noticed_by=("same_state",),
    )
    CUT_BEFORE_PUBLISHED = Mistake(
        name="cut-before-published",
        sentence="the log is cut when a checkpoint begins, not when it is there",
        noticed_by=("acknowledged_is_durable", "recovers"),
    )
    FLOOR_IGNORED = Mistake(
        name="floor-ignored",
        sentence="the log is cut past what a reader still holds",
        noticed_by=("compaction",),
    )
    SALT_REUSED = Mistake(
        name="salt-reused",
        sentence="every start seeds its generator alike, so keys and nonces come again",
        noticed_by=("fresh_salts",),
    )
    CLOCK_IN_APPLY = Mistake(
        name="clock-in-apply",
        sentence="time passes in the state machine by the node's clock, not by the log",
        noticed_by=("same_state", "session_present"),
    )
    REPEATS_NOT_KNOWN = Mistake(
        name="repeats-not-known",
        sentence="a repeated QoS 2 publish is taken for a new one",
        noticed_by=("delivered_once",),
    )
    ID_APART_FROM_MESSAGE = Mistake(
        name="id-apart-from-message",
        sentence="the packet id of a QoS 2 publish and its message are two entries",
        noticed_by=("acknowledged_is_durable", "delivered_once"),
    )
    PACKET_IDS_FORGOTTEN = Mistake(
        name="packet-ids-forgotten",
        sentence="a restart forgets which QoS 2 packet ids were received",
        noticed_by=("delivered_once",),
        is_shared=True,
    )
    RETAINED_LOST = Mistake(
        name="retained-lost",
        sentence="a retained message does not survive a restart",
        noticed_by=("retained",),
        is_shared=True,
    )
    SESSION_PRESENT_GUESSED = Mistake(
        name="session-present-guessed",
        sentence="session present is said to every client that was here before",
        noticed_by=("session_present",),
    )
    FENCE_IGNORED = Mistake(
        name="fence-ignored",
        sentence="a connection that was taken over goes on under the new epoch",
        noticed_by=("fence",),
    )
    WILL_FORGOTTEN = Mistake(
        name="will-forgotten",
        sentence="a connection that broke is taken for one that said goodbye",
        noticed_by=("wills",),
    )
    BACKLOG_REVERSED = Mistake(
        name="backlog-reversed",
        sentence="what waits for a subscriber is sent newest first",
        noticed_by=("order",),
    )
    ACK_AFTER_FAILURE = Mistake(
        name="ack-after-failure",
        sentence="a node whose log has failed answers what still waited",
        noticed_by=("stops", "acknowledged_is_durable"),
    )
    DAMAGE_TAKEN_FOR_TAIL = Mistake(
        name="damage-taken-for-tail",
        sentence="damage below the watermark is cut away like a torn tail, and the rest served",
        noticed_by=("bit_rot",),
    )

    @classmethod
    def named(cls, name: str) -> "Bug":
        """Find a bug by the name people type.

        Raises:
            KeyError: There is none of that name.
        """
        return _BY_NAME[name]


_BY_NAME: Final = {bug.value.name: bug for bug in Bug}
