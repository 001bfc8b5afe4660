"""The catalogue of configuration keys, read off the models so that it cannot disagree with them."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from quantumqtt.config.listen import Address
from quantumqtt.config.marks import DefaultText, Flag
from quantumqtt.config.problems import KeyFacts
from quantumqtt.config.settings import ENVIRONMENT_NESTING, ENVIRONMENT_PREFIX, Settings


@dataclass(frozen=True, slots=True)
class Key:
    """One configuration key and everything a reader may ask about it."""

    name: str
    kind: str
    default: str
    flag: str | None
    meaning: str
    facts: KeyFacts
    is_in_row: bool = False

    @property
    def environment(self) -> str:
        """The environment variable that sets this key; tables in a row share one."""
        if self.is_in_row:
            return ENVIRONMENT_PREFIX + self.name.partition(".")[0].upper()
        return ENVIRONMENT_PREFIX + self.name.replace(".", ENVIRONMENT_NESTING).upper()


@functools.cache
def catalogue() -> dict[str, Key]:
    """List every key by its dotted name, in the order of the models."""
    return {key.name: key for key in _keys(Settings, prefix="")}


def key_facts() -> dict[str, KeyFacts]:
    """List what problem reports need to know, by dotted name."""
    return {name: key.facts for name, key in catalogue().items()}


def _keys(model: type[BaseModel], *, prefix: str) -> Iterator[Key]:
    for name, field in model.model_fields.items():
        annotation = field.annotation
        row = _row_model(annotation)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _keys(annotation, prefix=f"{prefix}{name}.")
        elif row is not None:
            yield _key(f"{prefix}{name}", field)
            for key in _keys(row, prefix=f"{prefix}{name}."):
                yield replace(key, is_in_row=True)
        else:
            yield _key(f"{prefix}{name}", field)


def _row_model(annotation: object) -> type[BaseModel] | None:
    """The model of each table, where a key is a row of tables."""
    if get_origin(annotation) is not tuple:
        return None
    first = get_args(annotation)[0]
    return first if isinstance(first, type) and issubclass(first, BaseModel) else None


def _key(name: str, field: FieldInfo) -> Key:
    flags = [entry.name for entry in field.metadata if isinstance(entry, Flag)]
    facts = KeyFacts(
        minimum=_bound(field, annotated_types.Ge),
        maximum=_bound(field, annotated_types.Le),
        choices=_choices(field.annotation),
    )
    return Key(
        name=name,
        kind=_kind(field, facts),
        default=_default(field, facts),
        flag=flags[0] if flags else None,
        meaning=field.description or "",
        facts=facts,
    )


def _bound(field: FieldInfo, kind: type[annotated_types.Ge | annotated_types.Le]) -> int | None:
    for entry in field.metadata:
        if isinstance(entry, kind):
            value = entry.ge if isinstance(entry, annotated_types.Ge) else entry.le
            return value if isinstance(value, int) else None
    return None


def _members(annotation: object) -> set[object]:
    """Flatten unions and `Annotated` down to the types inside."""
    arguments = get_args(annotation)
    if not arguments or get_origin(annotation) in {Literal, tuple}:
        return {annotation}
    return set().union(*(_members(argument) for argument in arguments))


def _choices(annotation: object) -> tuple[str, ...]:
    if get_origin(annotation) is Literal:
        return tuple(str(choice) for choice in get_args(annotation))
    return ("true", "false") if bool in _members(annotation) else ()


def _kind(field: FieldInfo, facts: KeyFacts) -> str:
    if facts.choices:
        return " \\| ".join(facts.choices)
    if facts.minimum is not None:
        return f"{facts.minimum} … {facts.maximum}"
    if _row_model(field.annotation) is not None:
        return "tables"
    if get_origin(field.annotation) is tuple:
        return "list of URLs" if Address in _item_types(field) else "list of names"
    members = _members(field.annotation)
    if Address in members:
        return "HOST:PORT \\| off" if type(None) in members else "URL"
    return "file mode" if int in members else "path"


def _item_types(field: FieldInfo) -> set[object]:
    return _members(get_args(field.annotation)[0])


def _default(field: FieldInfo, facts: KeyFacts) -> str:
    for entry in field.metadata:
        if isinstance(entry, DefaultText):
            return entry.text
    if field.is_required():
        return "required"
    value: object = field.default
    match value:
        case None:
            return "unset"
        case Address():
            bare = value.url.removeprefix("http://").removeprefix("grpc://")
            return f"`{bare}`"
        case tuple():
            urls = [entry.url for entry in value if isinstance(entry, Address)]
            return f"`{urls[0]}`" if urls else "empty"
        case int() if _kind(field, facts) == "file mode":
            return f"`{value:04o}`"
        case _:
            return f"`{value}`"
