"""No two segments are written under one salt: a key and a nonce never come twice (LOG-18)."""

from collections.abc import Mapping
from typing import ClassVar, Final

from quantumqtt.simulation.invariants.invariant import Invariant
from quantumqtt.simulation.shadow import Shadow

SALT: Final = slice(32, 48)
"""Where a segment's header has it: docs/internals/wal-format.md."""
MAGIC: Final = b"QMQWAL\r\n"


class FreshSalts(Invariant):
    """See the head of this file."""

    name: ClassVar[str] = "fresh_salts"

    def __init__(self, shadow: Shadow) -> None:
        """Begin with the empty log."""
        super().__init__(shadow)
        self._path_of: dict[bytes, str] = {}

    def on_files(self, files: Mapping[str, bytes]) -> None:
        """Look at every segment there is."""
        for path, head in files.items():
            # A spare gets its header before its name; a crash in between leaves the header.
            if head[: len(MAGIC)] != MAGIC or not path.endswith(".seg"):
                continue
            before = self._path_of.setdefault(head[SALT], path)
            if before != path:
                self.broken(f"{path} has the salt of {before}")
