"""The life of one node as explicit states.

    NEW ──► STARTING ──► READY ──► DRAINING ──► STOPPED
               │           │          │            ▲
               └───────────┴──────────┴── FAILED ──┘

Rules: a node lives once; every change goes through `Lifecycle.advance`, which knows the arrows
above and refuses any other; `stop` is allowed from everywhere, since cleaning up must never fail.
FAILED means that a shard thread died: the rest may still serve, but the broker can no longer keep
its promises and asks to be ended. Nothing here does I/O; the broker acts, this file remembers.
"""

import asyncio
from enum import StrEnum
from typing import Final

from quantumqtt.errors import InternalError


class NodeState(StrEnum):
    """Where in its life a node is."""

    NEW = "new"
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"
    STOPPED = "stopped"


_ARROWS: Final = {
    NodeState.NEW: {NodeState.STARTING, NodeState.STOPPED},
    NodeState.STARTING: {NodeState.READY, NodeState.FAILED, NodeState.STOPPED},
    NodeState.READY: {NodeState.DRAINING, NodeState.FAILED, NodeState.STOPPED},
    NodeState.DRAINING: {NodeState.FAILED, NodeState.STOPPED},
    NodeState.FAILED: {NodeState.STOPPED},
    NodeState.STOPPED: set[NodeState](),
}


class Lifecycle:
    """Remembers the state of one node, and why it failed if it did.

    The state is read by the admin thread too; it is one attribute, replaced whole.
    """

    def __init__(self) -> None:
        """Begin as NEW."""
        self._state = NodeState.NEW
        self._failure: str | None = None
        self._ended = asyncio.Event()

    @property
    def state(self) -> NodeState:
        """The present state."""
        return self._state

    @property
    def failure(self) -> str | None:
        """What went wrong, once FAILED was reached; kept after STOPPED."""
        return self._failure

    def advance(self, to: NodeState) -> None:
        """Follow one arrow.

        Raises:
            InternalError: There is no such arrow.
        """
        if to not in _ARROWS[self._state]:
            raise InternalError(f"a node cannot go from {self._state} to {to}")
        self._state = to
        if to in {NodeState.FAILED, NodeState.STOPPED}:
            self._ended.set()

    def fail(self, reason: str) -> None:
        """Record the first failure; later ones, and those of a stopped node, change nothing."""
        if NodeState.FAILED in _ARROWS[self._state]:
            self._failure = reason
            self.advance(NodeState.FAILED)

    async def wait_ended(self) -> None:
        """Wait until the node failed or stopped."""
        await self._ended.wait()
