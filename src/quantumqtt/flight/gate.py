"""Who may read which tenant's log, and which topics of it.

The service asks once per request. A tenant that a reader may not see is refused in the same words
whether it exists or not; topics that it may not see are left out by the store, see `ReadPlan`.
"""

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from quantumqtt.errors import ConfigError, NotAuthorized

# MQTT 5: 0x86 bad user name or password, 0x87 not authorized.
_BAD_TOKEN = 0x86
_NOT_YOURS = 0x87

# Short tokens can be guessed, and nobody types these.
TOKEN_LENGTH_MIN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Who reads, and what.

    Attributes:
        tenants: None means every one.
        topics: Filters of what may be seen; None means everything.
        judge: Has the last word about a topic, where filters alone cannot say it.
    """

    name: str
    tenants: frozenset[str] | None = None
    topics: tuple[str, ...] | None = None
    judge: Callable[[str], bool] | None = None

    def may_read(self, tenant: str) -> bool:
        """Tell whether a tenant's log is open to this reader at all."""
        return self.tenants is None or tenant in self.tenants

    def check(self, tenant: str) -> None:
        """Refuse a tenant that is not open to this reader.

        Raises:
            NotAuthorized: It is another's, or there is none.
        """
        if not self.may_read(tenant):
            raise NotAuthorized(
                f"{self.name} may not read the log of tenant {tenant}",
                hint="use a token of that tenant, or have the tenant added to this one",
                reason_code=_NOT_YOURS,
            )


class Gate(Protocol):
    """Turns the token of a request into a reader. Called from any thread."""

    def admit(self, token: str | None) -> Reader:
        """Name the reader behind a token; None when the request carried none.

        Raises:
            NotAuthorized: There is none.
        """

    def check_listener(self, host: str, *, encrypted: bool) -> None:
        """Refuse a place to listen at that this gate cannot guard.

        Raises:
            ConfigError: It cannot.
        """


class LoopbackGate:
    """Lets everybody on this machine read everything; refuses to stand anywhere else."""

    def admit(self, token: str | None) -> Reader:
        """Admit whoever reached us."""
        del token
        return Reader(name="loopback")

    def check_listener(self, host: str, *, encrypted: bool) -> None:
        """Accept loopback only."""
        del encrypted
        if not is_loopback(host):
            raise ConfigError(
                f"log service on {host} would let everybody read everything",
                hint="listen on 127.0.0.1, or give readers tokens",
            )


class TokenGate:
    """Knows its readers by bearer tokens; away from loopback only under TLS."""

    def __init__(self, readers: Mapping[str, Reader]) -> None:
        for token, reader in readers.items():
            if len(token) < TOKEN_LENGTH_MIN or not token.isascii() or not token.isprintable():
                raise ConfigError(
                    f"token of {reader.name} is too short or not printable ASCII",
                    hint=f"use at least {TOKEN_LENGTH_MIN} random letters",
                )
        self._readers = tuple((token.encode(), reader) for token, reader in readers.items())

    def admit(self, token: str | None) -> Reader:
        """Name the reader of a token, comparing all of them in constant time."""
        found: Reader | None = None
        for known, reader in self._readers:
            if token is not None and hmac.compare_digest(known, token.encode()):
                found = reader
        if found is None:
            raise NotAuthorized(
                "log service: no such token" if token else "log service: a token is needed",
                hint="pass the reader's token (option `token`, or QUANTUMQTT_LOG_TOKEN)",
                reason_code=_BAD_TOKEN,
            )
        return found

    def check_listener(self, host: str, *, encrypted: bool) -> None:
        """Accept loopback, and anything encrypted."""
        if not encrypted and not is_loopback(host):
            raise ConfigError(
                f"log service on {host} would send tokens and rows in the clear",
                hint="give it a certificate, or listen on 127.0.0.1",
            )


def is_loopback(host: str) -> bool:
    """Tell an address that only this machine reaches."""
    return host in ("localhost", "::1", "[::1]") or host.startswith("127.")
