"""What is wrong with a configuration, said so that the reader can repair it.

Rules of this room:

- Every problem names where it was written (file and line, environment variable or flag), the key,
  the value as written, what is wrong, and what to do about it.
- Problems are collected, not raised one by one: a person repairs a file in one go.
- A `ConfigError` carries one line per problem in its message and one line per problem in its
  `hint`, in the same order; `split_error` puts the two together again for display.
"""

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from quantumqtt.errors import ConfigError

VALUE_CHARS_MAX: Final = 60

KeyPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing the operator has to repair."""

    key: str
    message: str
    remedy: str
    value: str | None = None
    origin: str | None = None

    def line(self) -> str:
        """Say it in one line: where, which key, what value, what is wrong."""
        where = f"{self.origin}: " if self.origin else ""
        value = f" = {self.value}" if self.value is not None else ""
        subject = f"{self.key}{value}: " if self.key else ""
        return f"{where}{subject}{self.message}"


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """What a problem report needs to know about a key: its bounds and its words."""

    minimum: int | None
    maximum: int | None
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """Two settings that contradict each other; `keys` starts with the one to change."""

    keys: tuple[str, ...]
    message: str
    remedy: str


def refuse(message: str, remedy: str) -> PydanticCustomError:
    """Make the error a validator raises, with its remedy beside it."""
    return PydanticCustomError("refused", "{message}", {"message": message, "remedy": remedy})


def refuse_relations(relations: Sequence[Relation]) -> PydanticCustomError:
    """Make one error of all broken relations: a model validator may raise only once."""
    summary = "; ".join(relation.message for relation in relations)
    return PydanticCustomError(
        "relations", "{summary}", {"summary": summary, "relations": list(relations)}
    )


def to_error(problems: Sequence[Problem]) -> ConfigError:
    """Join problems to the one exception that leaves this package."""
    lines = "\n".join(problem.line() for problem in problems)
    return ConfigError(lines, hint="\n".join(problem.remedy for problem in problems))


def split_error(error: ConfigError) -> Iterator[tuple[str, str | None]]:
    """Pair every line of a `ConfigError` with its remedy."""
    lines = str(error).splitlines()
    hints = (error.hint or "").splitlines()
    for index, line in enumerate(lines):
        yield line, hints[index] if index < len(hints) else None


def problems_of(
    error: ValidationError,
    *,
    keys: dict[str, KeyFacts],
    origin_of: Callable[[KeyPath], str | None],
) -> list[Problem]:
    """Translate what the validator found into problems a person can repair."""
    problems: list[Problem] = []
    for details in error.errors(include_url=False):
        path = _without_numbers(str(part) for part in details["loc"])
        context = details.get("ctx", {})
        if details["type"] == "default_factory_not_called":
            continue  # it depends on a key that is a problem itself
        if details["type"] == "relations":
            problems += _relation_problems(path, context.get("relations", ()), origin_of)
            continue
        message, remedy = _words(details, path, keys)
        problems.append(
            Problem(
                key=".".join(path),
                message=message,
                remedy=remedy,
                value=None if details["type"] == "extra_forbidden" else show(details["input"]),
                origin=_origin(details["loc"], origin_of),
            )
        )
    return problems


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Find the known word the writer most likely meant."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None


def show(value: object) -> str:
    """Write a value on one line, whatever bytes it holds, and not longer than a line bears."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        # Dates and the like: TOML has more types than JSON.
        text = json.dumps(str(value))
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[: VALUE_CHARS_MAX - 1]}…"


def _without_numbers(path: Iterable[str]) -> KeyPath:
    """Leave out which table of a row is meant: its line says that."""
    return tuple(part for part in path if not part.isdigit())


def _origin(path: Sequence[str | int], origin_of: Callable[[KeyPath], str | None]) -> str | None:
    """Find where a key was written: in its own table of a row, else under its name alone."""
    whole = tuple(str(part) for part in path)
    for length in range(len(whole), 0, -1):
        if found := origin_of(whole[:length]) or origin_of(_without_numbers(whole[:length])):
            return found
    return None


def _relation_problems(
    parent: KeyPath, relations: Iterable[Relation], origin_of: Callable[[KeyPath], str | None]
) -> Iterator[Problem]:
    for relation in relations:
        paths = [(*parent, *key.split(".")) for key in relation.keys]
        # The reader can only change what was written somewhere; a default has no line.
        origin = next((found for path in paths if (found := _origin(path, origin_of))), None)
        yield Problem(
            key=".".join(_without_numbers(paths[0])),
            message=relation.message,
            remedy=relation.remedy,
            origin=origin,
        )


def _words(details: ErrorDetails, path: KeyPath, keys: dict[str, KeyFacts]) -> tuple[str, str]:
    """Choose message and remedy for one error of the validator."""
    kind = details["type"]
    context = details.get("ctx", {})
    facts = keys.get(".".join(path))
    if kind == "refused":
        return str(context["message"]), str(context["remedy"])
    if kind == "extra_forbidden":
        return _unknown_key(path, keys)
    if kind == "missing":
        return "is required", "add the key"
    if kind == "too_long":
        return "has too many entries", f"keep at most {context['max_length']}"
    if facts and facts.choices:
        return _unknown_choice(details["input"], facts.choices)
    if facts and (facts.minimum is not None or facts.maximum is not None):
        return _out_of_bounds(kind, facts)
    expected = details["msg"][:1].lower() + details["msg"][1:]
    return expected, "write a value of that kind, or remove the key to use the default"


def _unknown_key(path: KeyPath, keys: dict[str, KeyFacts]) -> tuple[str, str]:
    dotted = ".".join(path)
    parent = dotted.rpartition(".")[0]
    siblings = [key for key in keys if key.rpartition(".")[0] == parent]
    tables = [] if parent else list({key.partition(".")[0] for key in keys if "." in key})
    guess = nearest(dotted, [*siblings, *tables])
    if guess is None:
        # A right word in the wrong table is the other common slip.
        guess = next((key for key in keys if key.rpartition(".")[2] == path[-1]), None)
    remedy = f"did you mean {guess}?" if guess else "remove it; see docs/reference/configuration.md"
    return "unknown key", remedy


def _unknown_choice(value: object, choices: tuple[str, ...]) -> tuple[str, str]:
    guess = nearest(str(value), choices)
    meant = f"did you mean {guess}? " if guess else ""
    return "is not one of the choices", f"{meant}choose {' or '.join(choices)}"


def _out_of_bounds(kind: str, facts: KeyFacts) -> tuple[str, str]:
    remedy = f"choose a whole number from {facts.minimum} to {facts.maximum}"
    if kind.startswith("greater_than"):
        return f"must be at least {facts.minimum}", remedy
    if kind.startswith("less_than"):
        return f"must be at most {facts.maximum}", remedy
    return "is not a whole number", remedy
