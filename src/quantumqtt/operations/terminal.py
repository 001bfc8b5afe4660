"""Colours where a person looks, and none anywhere else."""

from collections.abc import Mapping
from dataclasses import dataclass
from os import environ
from typing import Final, Self, TextIO

_STYLES: Final[Mapping[str, str]] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "bold red": "1;31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}


@dataclass(frozen=True, slots=True)
class Painter:
    """Paints text for one stream; leaves it alone when that is no terminal."""

    coloured: bool

    @classmethod
    def for_stream(cls, stream: TextIO) -> Self:
        """Paint when the stream is a terminal and NO_COLOR is not set."""
        return cls(coloured=stream.isatty() and not environ.get("NO_COLOR"))

    def paint(self, style: str, text: str) -> str:
        """Give text a style."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.coloured else text
