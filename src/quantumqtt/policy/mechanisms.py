"""Enhanced authentication of MQTT 5: what a mechanism is, for the broker and for programs.

A *mechanism* stands behind the name that clients put into CONNECT as authentication method. For
each client that names it an *exchange* begins, which answers step by step: go on with this data, be
admitted as this user, or be refused. A client that authenticates once more begins a new one.

The broker has `SCRAM-SHA-256` for the users of its password file. A program adds its own by
`Hooks.mechanisms`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

from quantumqtt.mqtt import ReasonCode


@dataclass(frozen=True, slots=True)
class AuthRequest:
    """Who begins an exchange; `user_name` is what CONNECT says and proves nothing."""

    tenant: str
    client_id: str
    listener: str
    peer: str
    user_name: str | None


@dataclass(frozen=True, slots=True)
class AuthStep:
    """The answer to one step; the data is left out of `repr`."""

    code: int
    data: bytes | None = field(default=None, repr=False)
    user_name: str = ""

    @classmethod
    def go_on(cls, data: bytes) -> Self:
        """Ask the client to answer this."""
        return cls(int(ReasonCode.CONTINUE_AUTHENTICATION), data)

    @classmethod
    def admit(cls, user_name: str, data: bytes | None = None) -> Self:
        """Let the client in as this user; `data` is the last word."""
        return cls(int(ReasonCode.SUCCESS), data, user_name)

    @classmethod
    def refuse(cls, code: ReasonCode = ReasonCode.NOT_AUTHORIZED) -> Self:
        """End it."""
        return cls(int(code))


class Exchange(Protocol):
    """One client's authentication."""

    async def step(self, data: bytes | None) -> AuthStep:
        """Answer what the client sent; the first data comes with CONNECT or with AUTH 0x19.

        What it raises refuses the client and is logged.
        """


class Mechanism(Protocol):
    """A method of authentication."""

    @property
    def name(self) -> str:
        """The authentication method, as clients spell it."""

    def begin(self, request: AuthRequest) -> Exchange:
        """Begin with one client."""


def method_names(mechanisms: Sequence[Mechanism]) -> tuple[str, ...]:
    """List the methods, each once."""
    return tuple(dict.fromkeys(mechanism.name for mechanism in mechanisms))
