"""Access rules as values: what they say, before anybody asks.

A rule allows or denies reading or writing of the topics that a filter matches, to one user, to
anonymous clients, or to everybody. Levels of a filter are read once: a literal text, a wildcard, or
a template that holds `%c` (client id) or `%u` (user name).

The order of authority, the same everywhere: rules for the user speak first; only when they are
silent, the rules for everybody; in each of them a deny beats every allow; silence is no. That is
Mosquitto's order, so a file that worked there means the same here.
"""

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from quantumqtt import _core
from quantumqtt.errors import ConfigError, LocalProtocolError

RULES_MAX: Final = 1_000_000
RULE_FILE_BYTES_MAX: Final = 128 * 1024 * 1024
ANONYMOUS: Final = ""

Action = Literal["read", "write"]
Access = Literal["read", "write", "readwrite"]
Verb = Literal["allow", "deny"]


class Wildcard(enum.Enum):
    """A level that matches more than one text."""

    ONE = "+"
    REST = "#"


class Placeholder(enum.Enum):
    """What a template level takes from the client."""

    CLIENT_ID = "%c"
    USER = "%u"


@dataclass(frozen=True, slots=True)
class Template:
    """A level with placeholders, such as `%c` or `dev-%u`."""

    pieces: tuple[str | Placeholder, ...]

    def text_for(self, who: "Who") -> str | None:
        """Spell the level for a client; None when an id of it may not stand in a rule."""
        texts: list[str] = []
        for piece in self.pieces:
            if isinstance(piece, str):
                texts.append(piece)
                continue
            value = who.client_id if piece is Placeholder.CLIENT_ID else who.user
            if not is_safe(value):
                return None
            texts.append(value)
        return "".join(texts)


Level = str | Wildcard | Template


@dataclass(frozen=True, slots=True)
class Who:
    """Who asks; an empty user is anonymous."""

    user: str
    client_id: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rule was written."""

    file: Path
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; `user` None speaks of everybody, `ANONYMOUS` of clients without a user."""

    user: str | None
    verb: Verb
    access: Access
    levels: tuple[Level, ...]
    place: Place
    words: str

    def concerns(self, action: Action) -> bool:
        """Tell whether the rule says anything about an action."""
        return self.access in (action, "readwrite")


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All rules of a file, in its order."""

    rules: tuple[Rule, ...]

    def of(self, user: str) -> Iterator[Rule]:
        """List the rules written for one user."""
        return (rule for rule in self.rules if rule.user == user)

    def common(self) -> Iterator[Rule]:
        """List the rules for everybody."""
        return (rule for rule in self.rules if rule.user is None)

    def tiers(self, who: Who) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
        """List what speaks first and what speaks when that is silent."""
        return tuple(self.of(who.user)), tuple(self.common())


def is_safe(text: str) -> bool:
    """Tell whether an id may stand for a level: one that is empty or holds wildcards may not."""
    return bool(text) and not any(character in "+#/$\0" for character in text)


def levels_of(text: str, *, templated: bool) -> tuple[Level, ...]:
    """Read the filter of a rule.

    Raises:
        ConfigError: It is no filter, or one that no topic is ever compared with.
    """
    for prefix in ("$share/", "$queue/"):
        if text.startswith(prefix):
            raise ConfigError(
                f"{prefix}… is taken off before rules are asked",
                hint="write the topic that stands behind the prefix",
            )
    try:
        _core.validate_filter(text)
    except LocalProtocolError as error:
        raise ConfigError(
            str(error), hint="write a topic filter such as sensors/+/state"
        ) from error
    return tuple(_level(level, templated=templated) for level in text.split("/"))


def _level(text: str, *, templated: bool) -> Level:
    if text in {"+", "#"}:
        return Wildcard(text)
    if not templated or ("%c" not in text and "%u" not in text):
        return text
    pieces: list[str | Placeholder] = []
    rest = text
    while rest:
        cut = min((at for mark in Placeholder if (at := rest.find(mark.value)) >= 0), default=None)
        if cut is None:
            pieces.append(rest)
            break
        if cut:
            pieces.append(rest[:cut])
        pieces.append(Placeholder(rest[cut : cut + 2]))
        rest = rest[cut + 2 :]
    return Template(tuple(pieces))


def check_count(rules: Iterable[Rule], file: Path) -> RuleSet:
    """Make a set of rules, bounded.

    Raises:
        ConfigError: There are too many.
    """
    found = tuple(rules)
    if len(found) > RULES_MAX:
        raise ConfigError(
            f"{file}: {len(found)} rules, but at most {RULES_MAX}",
            hint="use patterns with %c or %u instead of one rule per client",
        )
    return RuleSet(found)
