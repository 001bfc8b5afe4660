"""Rule files: Mosquitto's lines, or TOML.

Mosquitto's form, unchanged, so that a file that is there already works::

    topic read $SYS/#                 # clients without a user
    user ada
    topic readwrite sensors/#         # ada
    topic deny sensors/secret/#
    pattern read devices/%c/#         # everybody; %c is the client id, %u the user name

The TOML form says the same in words, can deny reading and writing apart, and may use `%c` and `%u`
in every rule::

    [[rule]]
    users = ["ada"]  # absent: everybody; anonymous = true: clients without a user
    allow = "readwrite"  # or deny = "read" | "write" | "readwrite"
    topics = ["sensors/#"]

A file with one bad line is refused as a whole: with half its rules it would say something that
nobody wrote. Every problem names file, line and remedy.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from quantumqtt.errors import ConfigError
from quantumqtt.policy.rules import (
    ANONYMOUS,
    RULE_FILE_BYTES_MAX,
    Access,
    Place,
    Rule,
    RuleSet,
    Verb,
    check_count,
    levels_of,
)

PROBLEMS_SHOWN_MAX: Final = 50

_ACCESS: Final[Mapping[str, tuple[Verb, Access]]] = {
    "read": ("allow", "read"),
    "write": ("allow", "write"),
    "readwrite": ("allow", "readwrite"),
    "deny": ("deny", "readwrite"),
}
_ACCESS_TOML: Final[Mapping[str, Access]] = {
    "read": "read",
    "write": "write",
    "readwrite": "readwrite",
}
_KEYS_TOML: Final = {"users", "anonymous", "allow", "deny", "topics"}
_HEADER: Final = re.compile(r"^\s*\[\[\s*rule\s*\]\]")


def load_rules(file: Path) -> RuleSet:
    """Read a rule file; one that ends in `.toml` is in TOML form.

    Raises:
        ConfigError: The file cannot be read, or a line of it cannot.
    """
    text = read_text(file, bytes_max=RULE_FILE_BYTES_MAX)
    parse = parse_toml if file.suffix.lower() == ".toml" else parse_mosquitto
    return parse(text, file)


def read_text(file: Path, *, bytes_max: int) -> str:
    """Read a whole file as UTF-8, bounded.

    Raises:
        ConfigError: It cannot be read, is too long, or is not UTF-8.
    """
    try:
        with file.open("rb") as opened:
            raw = opened.read(bytes_max + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"{file}: cannot be read: {reason}", hint="check the path and who may read it"
        ) from error
    if len(raw) > bytes_max:
        raise ConfigError(
            f"{file}: longer than {bytes_max} bytes", hint="is this really the file that was meant?"
        )
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}: not UTF-8", hint="save the file as UTF-8") from error


class _Problems:
    """Gathers what is wrong, so that a file is repaired in one go."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lines: list[str] = []
        self._hints: list[str] = []

    def add(self, line: int, error: ConfigError) -> None:
        if len(self._lines) < PROBLEMS_SHOWN_MAX:
            self._lines.append(f"{self._file}:{line}: {error}")
            self._hints.append(error.hint or "repair the line, or remove it")

    def raise_if_any(self) -> None:
        if self._lines:
            raise ConfigError("\n".join(self._lines), hint="\n".join(self._hints))


def parse_mosquitto(text: str, file: Path) -> RuleSet:
    """Read rules in Mosquitto's form.

    Raises:
        ConfigError: A line is none of theirs.
    """
    problems = _Problems(file)
    rules: list[Rule] = []
    user = ANONYMOUS
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        try:
            word, rest = _first_word(line)
            if word == "user":
                user = _user_name(rest)
            elif word == "topic":
                rules.append(
                    _mosquitto_rule(user, rest, line, Place(file, number), templated=False)
                )
            elif word == "pattern":
                rules.append(_mosquitto_rule(None, rest, line, Place(file, number), templated=True))
            else:
                raise ConfigError(
                    f"{word[:40]!r} is no keyword", hint="begin with user, topic, pattern or #"
                )
        except ConfigError as error:
            problems.add(number, error)
    problems.raise_if_any()
    return check_count(rules, file)


def _first_word(line: str) -> tuple[str, str]:
    parts = line.split(None, 1)
    return parts[0], parts[1].strip() if len(parts) > 1 else ""


def _user_name(text: str) -> str:
    if not text:
        raise ConfigError("a user name is missing", hint="write user NAME")
    if "\0" in text:
        raise ConfigError("a user name holds no null character", hint="write user NAME")
    return text


def _mosquitto_rule(
    user: str | None, rest: str, words: str, place: Place, *, templated: bool
) -> Rule:
    if not rest:
        raise ConfigError("a topic is missing", hint="write topic read sensors/#")
    first, topic = _first_word(rest)
    if not topic:
        first, topic = "readwrite", first
    if first not in _ACCESS:
        raise ConfigError(
            f"{first[:40]!r} is no kind of access", hint="write read, write, readwrite or deny"
        )
    verb, access = _ACCESS[first]
    return Rule(user, verb, access, levels_of(topic, templated=templated), place, words)


def parse_toml(text: str, file: Path) -> RuleSet:
    """Read rules in TOML form.

    Raises:
        ConfigError: It is not TOML, or a rule of it is incomplete.
    """
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = re.search(r"at line (\d+)", str(error))
        line = int(found.group(1)) if found else text.count("\n") + 1
        raise ConfigError(f"{file}:{line}: {error}", hint="repair the TOML syntax") from error
    problems = _Problems(file)
    for key in document.keys() - {"rule"}:
        problems.add(1, ConfigError(f"{key[:40]!r} is unknown", hint="write [[rule]] tables"))
    tables = document.get("rule", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        problems.add(1, ConfigError("rule is not a list of tables", hint="write [[rule]]"))
        tables = []
    headers = [number for number, line in enumerate(text.split("\n"), 1) if _HEADER.match(line)]
    rules: list[Rule] = []
    for index, table in enumerate(tables):
        line = headers[index] if len(headers) == len(tables) else 1
        try:
            rules += _toml_rules(table, Place(file, line))
        except ConfigError as error:
            problems.add(line, error)
    problems.raise_if_any()
    return check_count(rules, file)


def _toml_rules(table: Mapping[str, object], place: Place) -> Iterator[Rule]:
    if unknown := sorted(table.keys() - _KEYS_TOML):
        raise ConfigError(
            f"{unknown[0][:40]!r} is unknown", hint=f"the keys are {', '.join(sorted(_KEYS_TOML))}"
        )
    verbs: list[Verb] = [verb for verb in ("allow", "deny") if verb in table]
    if len(verbs) != 1:
        raise ConfigError("a rule either allows or denies", hint='write allow = "read", or deny')
    verb = verbs[0]
    access = _ACCESS_TOML.get(str(table[verb]))
    if access is None:
        raise ConfigError(
            f"{str(table[verb])[:40]!r} is no kind of access",
            hint="write read, write or readwrite",
        )
    topics = _texts(table, "topics")
    if not topics:
        raise ConfigError("topics are missing", hint='write topics = ["sensors/#"]')
    for user in _users(table):
        for topic in topics:
            whose = "everybody" if user is None else user or "anonymous"
            words = f"{verb} {access} {topic} to {whose}"
            yield Rule(user, verb, access, levels_of(topic, templated=True), place, words)


def _users(table: Mapping[str, object]) -> list[str | None]:
    anonymous = table.get("anonymous", False)
    if not isinstance(anonymous, bool):
        raise ConfigError("anonymous is true or false", hint="write anonymous = true")
    if "users" not in table:
        return [ANONYMOUS if anonymous else None]
    named = [_user_name(name) for name in _texts(table, "users")]
    if not named and not anonymous:
        raise ConfigError("users is empty", hint="name some, or remove users to mean everybody")
    return [*named, *([ANONYMOUS] if anonymous else [])]


def _texts(table: Mapping[str, object], key: str) -> list[str]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ConfigError(f"{key} is not a list of texts", hint=f'write {key} = ["…"]')
    return [str(entry) for entry in value]
