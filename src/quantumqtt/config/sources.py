"""Where settings come from: flags over environment over file over defaults.

Each source becomes a `Layer`: a nested table of raw values that also knows where each key was
written. Layers are merged key by key, the strongest last; then the models judge the result, and
every problem is traced back to the layer, and in a file to the line, that caused it.
"""

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from pydantic import BaseModel, ValidationError

from quantumqtt.config.keys import catalogue, key_facts
from quantumqtt.config.mosquitto import read_mosquitto_conf
from quantumqtt.config.problems import KeyPath, Problem, nearest, problems_of, to_error
from quantumqtt.config.settings import ENVIRONMENT_NESTING, ENVIRONMENT_PREFIX, Settings
from quantumqtt.errors import ConfigError

FILE_BYTES_MAX: Final = 1_048_576

Table = dict[str, object]


class Layer(Protocol):
    """A source of settings that remembers where each key was written."""

    @property
    def values(self) -> Table:
        """Raw values, nested like the models."""

    def origin_of(self, path: KeyPath) -> str:
        """Name the place a person has to edit to change this key."""


@dataclass(frozen=True, slots=True)
class FlagLayer:
    """What the command line, or the caller in Python, asked for."""

    values: Table
    spoken_by_caller: bool = False

    def origin_of(self, path: KeyPath) -> str:
        """Name the flag, or the argument."""
        key = catalogue().get(".".join(path))
        if self.spoken_by_caller or key is None or key.flag is None:
            return "argument"
        return key.flag


@dataclass(frozen=True, slots=True)
class EnvironmentLayer:
    """What `QUANTUMQTT_…` variables say."""

    values: Table

    def origin_of(self, path: KeyPath) -> str:
        """Name the variable."""
        return ENVIRONMENT_PREFIX + ENVIRONMENT_NESTING.join(path).upper()


@dataclass(frozen=True, slots=True)
class FileLayer:
    """What a TOML file says, with the line of each key."""

    file: Path
    values: Table
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def origin_of(self, path: KeyPath) -> str:
        """Name file and line; an inline table has the line of the table."""
        for length in range(len(path), 0, -1):
            if line := self.lines.get(path[:length]):
                return f"{self.file}:{line}"
        return str(self.file)


def load_settings(
    *,
    file: Path | None = None,
    mosquitto_conf: Path | None = None,
    flags: Mapping[str, object] | None = None,
    read_environment: bool = True,
    data_default: Path | None = None,
) -> Settings:
    """Gather settings from every source and judge them together.

    A `mosquitto.conf` is the weakest of them; `flags` is nested like the models and holds only
    what was really asked for. `data_default` is where a node keeps its log that was told neither
    a directory nor to live in memory.

    Raises:
        ConfigError: Something cannot be accepted; one line per problem, one remedy each.
    """
    layers: list[Layer] = []
    if mosquitto_conf is not None:
        layers.append(read_mosquitto_conf(mosquitto_conf))
    if file is not None:
        layers.append(read_file(file))
    if read_environment:
        layers.append(read_environment_layer())
    if flags:
        layers.append(FlagLayer(dict(flags)))
    if data_default is not None and _wants_a_log(layers):
        layers.insert(0, FlagLayer({"data": str(data_default)}))
    return settings_from(layers)


def _wants_a_log(layers: list[Layer]) -> bool:
    told = [layer.values["durability"] for layer in layers if "durability" in layer.values]
    return not told or str(told[-1]).lower() != "memory"


def settings_from(layers: list[Layer]) -> Settings:
    """Merge layers, weakest first, and validate the result.

    Raises:
        ConfigError: As `load_settings`.
    """
    merged: Table = {}
    for layer in layers:
        merged = _merge(merged, layer.values)

    def origin_of(path: KeyPath) -> str | None:
        strongest_first = reversed(layers)
        return next(
            (layer.origin_of(path) for layer in strongest_first if _holds(layer.values, path)), None
        )

    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        raise to_error(problems_of(error, keys=key_facts(), origin_of=origin_of)) from error


def read_file(file: Path) -> FileLayer:
    """Read a TOML file with the line of each key.

    Raises:
        ConfigError: The file cannot be read or is not TOML.
    """
    try:
        with file.open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"{file}: cannot be read ({reason})",
            hint="check the path and that this user may read it",
        ) from error
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(
            f"{file}: longer than {FILE_BYTES_MAX} bytes",
            hint="is this really the configuration file?",
        )
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}: not UTF-8", hint="save the file as UTF-8") from error
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(file, text, str(error)) from error
    except RecursionError as error:
        raise ConfigError(f"{file}: nested too deeply", hint="flatten the tables") from error
    return FileLayer(file, values, dict(_key_lines(text)))


def read_environment_layer() -> EnvironmentLayer:
    """Read the `QUANTUMQTT_…` variables, in upper or lower case; `__` stands for a dot.

    A variable that names a whole table holds it as a JSON object.

    Raises:
        ConfigError: A variable cannot be decoded at all.
    """
    values: Table = {}
    # In this order a table comes before its keys, which then win.
    for variable in sorted(os.environ):
        name = variable.upper().removeprefix(ENVIRONMENT_PREFIX)
        first, *inner = name.lower().split(ENVIRONMENT_NESTING)
        if name == variable.upper() or first not in Settings.model_fields:
            continue
        text = os.environ[variable]
        if _is_table(first):
            table = _nest(inner, text) if inner else _decode_table(first, text)
            values = _merge(values, {first: table})
        elif not inner:
            values[first] = text
    return EnvironmentLayer(values)


def _nest(path: list[str], text: str) -> Table:
    *outer, last = path
    table: Table = {last: text}
    for part in reversed(outer):
        table = {part: table}
    return table


def _is_table(name: str) -> bool:
    annotation = Settings.model_fields[name].annotation
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _decode_table(key: str, text: str) -> Table:
    try:
        table = json.loads(text)
    except ValueError:
        table = None
    if isinstance(table, dict):
        return table
    problem = Problem(
        key=key,
        message="cannot be decoded",
        remedy=f"{key} is a table: set its keys, as in"
        f" {ENVIRONMENT_PREFIX}{key.upper()}{ENVIRONMENT_NESTING}…",
        origin=f"{ENVIRONMENT_PREFIX}{key.upper()}",
    )
    raise to_error([problem])


def suspicious_variables() -> Iterator[tuple[str, str]]:
    """Find variables that look like misspelt settings, each with the one probably meant.

    Not an error: other tools may own variables with our prefix.
    """
    # Compared without the prefix, which would make any two names look alike.
    known = {key.environment.removeprefix(ENVIRONMENT_PREFIX) for key in catalogue().values()}
    tables = {name.upper() for name in Settings.model_fields}
    for variable in sorted(os.environ):
        name = variable.removeprefix(ENVIRONMENT_PREFIX)
        if name == variable or name in known | tables:
            continue
        if (guess := nearest(name, known)) is not None:
            yield variable, ENVIRONMENT_PREFIX + guess


def _merge(weaker: Table, stronger: Mapping[str, object]) -> Table:
    merged = dict(weaker)
    for name, value in stronger.items():
        below = merged.get(name)
        if isinstance(value, dict) and isinstance(below, dict):
            merged[name] = _merge(below, value)
        else:
            merged[name] = value
    return merged


def _holds(values: Mapping[str, object], path: KeyPath) -> bool:
    here: object = values
    for part in path:
        if isinstance(here, (list, tuple)) and part.isdigit() and int(part) < len(here):
            here = here[int(part)]
        elif isinstance(here, Mapping) and part in here:
            here = here[part]
        else:
            return False
    return True


def _syntax_error(file: Path, text: str, reason: str) -> ConfigError:
    # tomllib tells the place only inside its message: "… (at line 3, column 7)".
    place = re.search(r"\(at line (\d+), column \d+\)", reason)
    line = int(place.group(1)) if place else text.count("\n") + 1
    what = re.sub(r"\s*\(at [^)]*\)", "", reason)
    return ConfigError(
        f"{file}:{line}: not valid TOML: {what[:1].lower()}{what[1:]}",
        hint='write key = value, text in "quotes", tables as [name]',
    )


_HEADER = re.compile(r"\s*\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_ASSIGNMENT = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'|\s*\.\s*)+?)\s*=""")
_KEY_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


def _key_lines(text: str) -> Iterator[tuple[KeyPath, int]]:
    """Find the line of each key.

    A line-by-line reading is enough to point a person at the right place: the values come from
    the real parser, and a look-alike inside a multi-line string can only move the pointer.
    """
    table: KeyPath = ()
    rows: dict[KeyPath, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _key_parts(header.group(1))
            if line.lstrip().startswith("[["):
                rows[table] = rows.get(table, -1) + 1
                table = (*table, str(rows[table]))
            yield table, number
        elif assignment := _ASSIGNMENT.match(line):
            yield (*table, *_key_parts(assignment.group(1))), number


def _key_parts(dotted: str) -> KeyPath:
    return tuple(part.strip("\"'") for part in _KEY_PART.findall(dotted))
