"""What stands in a key's annotation beside its type."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Flag:
    """The command-line flag that sets a key; stands in the field's annotation."""

    name: str


@dataclass(frozen=True, slots=True)
class DefaultText:
    """How the reference shows a default that is worked out when the node starts."""

    text: str
