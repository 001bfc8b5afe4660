"""What an embedding program may decide and hear, in Python, beside the packets' way.

Every hook gets a batch and has a time-out. Clients that wait for a verdict wait alone: no shard
does, and no other client. A hook that is late, raises or answers nonsense refuses its batch.
News (`connected`, `disconnected`) waits in a bounded row; when a hook does not keep up, the oldest
is dropped and counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quantumqtt.policy.admission import AdmissionRequest
from quantumqtt.policy.mechanisms import Mechanism


@dataclass(frozen=True, slots=True)
class ClientNews:
    """A client that came or went; `reason` says why it went."""

    tenant: str
    client_id: str
    user_name: str | None
    peer: str
    listener: str
    protocol: str
    at_ms: int
    reason: str | None


class Hooks:
    """Override what you need; what is not overridden is never called.

    Methods are called in the event loop of the broker, one batch at a time each.
    """

    async def authenticate(self, requests: Sequence[AdmissionRequest]) -> Sequence[int]:
        """Answer each CONNECT that the broker cannot judge, in order, with a CONNACK reason code.

        Users of the password file are not asked about here.
        """
        raise NotImplementedError

    def mechanisms(self) -> Sequence[Mechanism]:
        """Name further methods of enhanced authentication, beside the broker's own; asked once.

        A client that names one of them in CONNECT is admitted or refused by it alone: neither
        `authenticate` nor the password file is asked. See `quantumqtt.policy.mechanisms`.
        """
        return ()

    async def connected(self, clients: Sequence[ClientNews]) -> None:
        """Hear of clients that came in."""
        raise NotImplementedError

    async def disconnected(self, clients: Sequence[ClientNews]) -> None:
        """Hear of clients that left, whatever the reason."""
        raise NotImplementedError


def overrides(hooks: Hooks, method: str) -> bool:
    """Tell whether a program wrote this hook itself."""
    return getattr(type(hooks), method) is not getattr(Hooks, method)
