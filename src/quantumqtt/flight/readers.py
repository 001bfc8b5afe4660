"""Who may read the broker's log, by the same users and rules as MQTT.

A reader shows a token; a file names the user behind it by the token's SHA-256, which says nothing
about a token of 256 random bits. What the user may read is what the rules of `acl_file` let it
subscribe to and receive. Without such a file, readers on this machine are what anonymous clients on
this machine are: welcome or not, under the same rules.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quantumqtt.config import Address, Settings
from quantumqtt.errors import ConfigError, NotAuthorized
from quantumqtt.flight.gate import Reader, is_loopback
from quantumqtt.policy import Access
from quantumqtt.policy.decide import decide
from quantumqtt.policy.password_file import check_user_name
from quantumqtt.policy.rule_file import read_text
from quantumqtt.policy.rules import ANONYMOUS, Rule, RuleSet, Template, Who, Wildcard

READERS_FILE_BYTES_MAX: Final = 16 * 1024 * 1024
_HASH: Final = "$sha256$"
_TENANT: Final = "default"
# MQTT 5: 0x86 bad user name or password, 0x87 not authorized.
_BAD_TOKEN: Final = 0x86
_NOT_YOURS: Final = 0x87


@dataclass(frozen=True, slots=True)
class KnownToken:
    """A line of the file: a user, and the digest of a token that is theirs."""

    user: str
    digest: str


def new_token() -> str:
    """Make a token nobody can guess."""
    return secrets.token_urlsafe(32)


def token_line(user: str, token: str) -> str:
    """Write the line of the file that makes a token known.

    Raises:
        ConfigError: The name cannot stand in the file.
    """
    check_user_name(user)
    return f"{user}:{_HASH}{_digest(token)}"


def load_readers(file: Path) -> tuple[KnownToken, ...]:
    """Read the tokens of a file; a user may have several, so that they can be changed in turn.

    Raises:
        ConfigError: It cannot be read, or a line of it cannot.
    """
    found: list[KnownToken] = []
    text = read_text(file, bytes_max=READERS_FILE_BYTES_MAX)
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        user, _, hashed = line.strip().partition(":")
        digest = hashed.removeprefix(_HASH)
        if not user or digest == hashed or len(digest) != 64 or not _is_hex(digest):
            # What stands there may be a token: it is not repeated.
            raise ConfigError(
                f"{file}:{number}: no user:{_HASH}…",
                hint="write it with: quantumqtt log token USER",
            )
        found.append(KnownToken(user, digest))
    return tuple(found)


class BrokerGate:
    """Admits readers by the broker's own users and rules. Safe from any thread."""

    def __init__(
        self,
        access: Callable[[], Access],
        *,
        anonymous: bool,
        readers: Sequence[KnownToken] = (),
        own_token: str | None = None,
    ) -> None:
        """Remember where rules are; `own_token` is our own pipeline's, which reads everything."""
        self._access = access
        self._anonymous = anonymous
        self._readers = tuple(readers)
        self._own = None if own_token is None else _digest(own_token)

    def replace(self, readers: Sequence[KnownToken]) -> None:
        """Know these tokens from now on, and no others."""
        self._readers = tuple(readers)

    def admit(self, token: str | None) -> Reader:
        """Name the reader behind a token, and what the rules in force let it read."""
        if token is None:
            if not self._anonymous:
                raise NotAuthorized(
                    "log service: a token is needed",
                    hint="pass the reader's token (option `token`, or QUANTUMQTT_LOG_TOKEN)",
                    reason_code=_NOT_YOURS,
                )
            return self._reader("anonymous", ANONYMOUS)
        shown = _digest(token)
        found = [one.user for one in self._readers if hmac.compare_digest(one.digest, shown)]
        if self._own is not None and hmac.compare_digest(self._own, shown):
            return Reader(name="our own pipeline")
        if not found:
            raise NotAuthorized(
                "log service: no such token",
                hint="`quantumqtt log token USER` makes one",
                reason_code=_BAD_TOKEN,
            )
        return self._reader(found[0], found[0])

    def check_listener(self, host: str, *, encrypted: bool) -> None:
        """Accept loopback, and anything encrypted that asks for tokens."""
        if is_loopback(host):
            return
        if not encrypted:
            raise ConfigError(
                f"log service on {host} would send tokens and rows in the clear",
                hint="write grpc+tls://, or listen on 127.0.0.1",
            )
        if self._anonymous:
            raise ConfigError(
                f"log service on {host} would let everybody read",
                hint="name who may: --flight-readers FILE",
            )

    def _reader(self, name: str, user: str) -> Reader:
        rules = self._access().rules
        tenants = frozenset({_TENANT})
        if rules is None:
            return Reader(name=name, tenants=tenants)
        who = Who(user, "")
        reading = [rule for tier in rules.tiers(who) for rule in tier if rule.concerns("read")]
        filters = {spelled for rule in reading if (spelled := _allowed(rule, who)) is not None}
        return Reader(
            name=name,
            tenants=tenants,
            topics=tuple(sorted(filters)),
            judge=_judge(rules, who) if any(rule.verb == "deny" for rule in reading) else None,
        )


def open_gate(
    settings: Settings, address: Address, access: Callable[[], Access], own_token: str | None
) -> BrokerGate:
    """Make the gate that the settings ask for.

    Raises:
        ConfigError: The file of readers is broken, or nobody could ever read.
    """
    readers = () if settings.flight_readers is None else load_readers(settings.flight_readers)
    anonymous = (
        settings.flight_readers is None
        and address.is_loopback
        and settings.anonymous_allowed(Address("tcp", address.host, address.port))
    )
    if not anonymous and not readers and own_token is None:
        raise ConfigError(
            "nobody could read the log: anonymous clients are not allowed and there are no tokens",
            hint="`quantumqtt log token USER >> FILE` and --flight-readers FILE, or --flight off",
        )
    return BrokerGate(access, anonymous=anonymous, readers=readers, own_token=own_token)


def _judge(rules: RuleSet, who: Who) -> Callable[[str], bool]:
    return lambda topic: decide(rules, who, "read", topic).allowed


def _allowed(rule: Rule, who: Who) -> str | None:
    """Spell the filter that a rule opens; None when it opens nothing to this reader."""
    if rule.verb != "allow":
        return None
    levels: list[str] = []
    for level in rule.levels:
        text = level.text_for(who) if isinstance(level, Template) else level
        if text is None:
            return None
        levels.append(text.value if isinstance(text, Wildcard) else text)
    return "/".join(levels)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _is_hex(text: str) -> bool:
    return all(character in "0123456789abcdef" for character in text)
