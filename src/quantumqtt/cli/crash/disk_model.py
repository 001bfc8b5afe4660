"""A disk that keeps only what was synced, as a model without I/O.

Theory of operation. Every file has two contents: what processes see, and what would be there
after a power cut. Writes and truncations change the first and wait in a row; `sync_file` applies
the row to the second. Directories work in the same way, one row for all of them: creating, renaming
and removing names waits until the directory is synced. This is POSIX at its word, which some file
systems better and none has to: syncing a file does not sync its name.

`cut` loses the power. What waited is lost, torn or reordered:

- *drop*: nothing of it survives;
- *tear*: a first part survives, the write at the cut up to some sector of 512 bytes;
- *reorder*: each sector survives or not, whatever its neighbours do.

Names survive as a first part of their row, since file systems keep them in a journal of their own;
so a name may survive whose content does not, and the other way round.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

PAGE_BYTES: Final = 4096
SECTOR_BYTES: Final = 512
ROOT: Final = 1
_ZERO_PAGE: Final = bytes(PAGE_BYTES)


class Loss(Enum):
    """What a power cut does to writes that waited."""

    DROP = "drop"
    TEAR = "tear"
    REORDER = "reorder"


class Content:
    """The bytes of a file; holes and pages of zeros cost nothing."""

    __slots__ = ("_pages", "size")

    def __init__(self) -> None:
        self.size = 0
        self._pages: dict[int, bytes] = {}

    def copy(self) -> "Content":
        """The same bytes, to be changed apart."""
        other = Content()
        other.size = self.size
        other._pages = dict(self._pages)
        return other

    def read(self, offset: int, count: int) -> bytes:
        """Read what is there, at most `count` bytes."""
        end = min(offset + count, self.size)
        if end <= offset:
            return b""
        first, last = offset // PAGE_BYTES, (end - 1) // PAGE_BYTES
        pages = self._pages
        joined = b"".join(pages.get(page, _ZERO_PAGE) for page in range(first, last + 1))
        start = offset - first * PAGE_BYTES
        return joined[start : start + end - offset]

    def write(self, offset: int, data: bytes) -> None:
        """Write, growing the file where needed."""
        end = offset + len(data)
        at = 0
        while at < len(data):
            page, within = divmod(offset + at, PAGE_BYTES)
            count = min(PAGE_BYTES - within, len(data) - at)
            piece = data[at : at + count]
            if count < PAGE_BYTES:
                old = self._pages.get(page, _ZERO_PAGE)
                piece = old[:within] + piece + old[within + count :]
            if piece == _ZERO_PAGE:
                self._pages.pop(page, None)
            else:
                self._pages[page] = piece
            at += count
        if data:
            self.size = max(self.size, end)

    def truncate(self, size: int) -> None:
        """Cut or grow; what is cut off does not come back."""
        if size < self.size:
            page, within = divmod(size, PAGE_BYTES)
            for number in [
                one for one in self._pages if one > page or (one == page and not within)
            ]:
                del self._pages[number]
            if within and page in self._pages:
                self._pages[page] = self._pages[page][:within] + bytes(PAGE_BYTES - within)
        self.size = size

    @property
    def stored_bytes(self) -> int:
        """What it really takes."""
        return len(self._pages) * PAGE_BYTES


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes that wait for a sync."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """A size that waits for a sync."""

    size: int


@dataclass(slots=True)
class File:
    """One file: what is seen, what is safe, what waits."""

    mode: int
    seen: Content = field(default_factory=Content)
    safe: Content = field(default_factory=Content)
    waiting: list[Write | Truncate] = field(default_factory=list)
    owner: tuple[int, int] = (0, 0)
    changed_ns: int = 0


@dataclass(slots=True)
class Directory:
    """One directory: the names that are seen, and those that are safe."""

    mode: int
    seen: dict[str, int] = field(default_factory=dict)
    safe: dict[str, int] = field(default_factory=dict)
    parent: int = ROOT
    owner: tuple[int, int] = (0, 0)
    changed_ns: int = 0


@dataclass(frozen=True, slots=True)
class Naming:
    """A change of names that waits; all its parts survive, or none does."""

    changes: tuple[tuple[int, str, int | None], ...]


class DiskModel:
    """Files and directories by number, and the names that wait."""

    def __init__(self, mode: int = 0o40700) -> None:
        self.nodes: dict[int, File | Directory] = {ROOT: Directory(mode)}
        self.syncs_total = 0
        self._namings: list[Naming] = []
        self._next = ROOT

    # --- what processes do --------------------------------------------------------------------

    def directory(self, number: int) -> Directory | None:
        """The directory of that number, if it is one."""
        node = self.nodes.get(number)
        return node if isinstance(node, Directory) else None

    def create(self, parent: int, name: str, mode: int, *, is_directory: bool = False) -> int:
        """Make a file or directory under a new name; returns its number."""
        self._next += 1
        number = self._next
        self.nodes[number] = Directory(mode, parent=parent) if is_directory else File(mode)
        self._name((parent, name, number))
        return number

    def link(self, parent: int, name: str, number: int) -> None:
        """Give a file one more name."""
        self._name((parent, name, number))

    def remove(self, parent: int, name: str) -> None:
        """Take a name away."""
        self._name((parent, name, None))

    def rename(self, parent: int, name: str, new_parent: int, new_name: str) -> None:
        """Move a name, over another one if it is there."""
        directory = self.directory(parent)
        assert directory is not None, "the caller looked it up"
        number = directory.seen[name]
        moved = self.nodes[number]
        if isinstance(moved, Directory):
            moved.parent = new_parent
        self._name((parent, name, None), (new_parent, new_name, number))

    def exchange(self, parent: int, name: str, other_parent: int, other_name: str) -> None:
        """Let two names change places."""
        one, other = self.directory(parent), self.directory(other_parent)
        assert one is not None, "the caller looked it up"
        assert other is not None, "the caller looked it up"
        self._name(
            (parent, name, other.seen[other_name]), (other_parent, other_name, one.seen[name])
        )

    def _name(self, *changes: tuple[int, str, int | None]) -> None:
        naming = Naming(changes)
        for directory, table in self._tables(naming, safe=False):
            _apply_names(naming, directory, table)
        self._namings.append(naming)

    def _tables(self, naming: Naming, *, safe: bool) -> Iterator[tuple[int, dict[str, int]]]:
        for number in dict.fromkeys(number for number, _, _ in naming.changes):
            directory = self.directory(number)
            if directory is not None:
                yield number, directory.safe if safe else directory.seen

    def write(self, number: int, offset: int, data: bytes, *, is_synchronous: bool = False) -> None:
        """Write to a file; a synchronous write is safe when this returns."""
        file = self.file(number)
        file.seen.write(offset, data)
        file.waiting.append(Write(offset, bytes(data)))
        if is_synchronous:
            self.sync_file(number)

    def truncate(self, number: int, size: int) -> None:
        """Set the size of a file."""
        file = self.file(number)
        file.seen.truncate(size)
        file.waiting.append(Truncate(size))

    def file(self, number: int) -> File:
        """The file of that number."""
        node = self.nodes[number]
        assert isinstance(node, File), "the kernel asks files for what files do"
        return node

    def sync_file(self, number: int) -> None:
        """Make everything safe that was written to a file."""
        file = self.file(number)
        for change in file.waiting:
            _apply_content(change, file.safe)
        file.waiting.clear()
        self.syncs_total += 1

    def sync_directory(self, number: int) -> None:
        """Make the names of a directory safe."""
        left = []
        for naming in self._namings:
            if any(directory == number for directory, _, _ in naming.changes):
                self._make_safe(naming)
            else:
                left.append(naming)
        self._namings = left
        self.syncs_total += 1

    def _make_safe(self, naming: Naming) -> None:
        for directory, table in self._tables(naming, safe=True):
            _apply_names(naming, directory, table)

    def stored_bytes(self) -> int:
        """What all files that can be seen take."""
        return sum(one.seen.stored_bytes for one in self.nodes.values() if isinstance(one, File))

    def forget(self, number: int) -> None:
        """Drop a node that neither a name nor a process refers to any more."""
        named = any(
            number in (*node.seen.values(), *node.safe.values())
            for node in self.nodes.values()
            if isinstance(node, Directory)
        )
        waits = any(number == one for naming in self._namings for _, _, one in naming.changes)
        if number != ROOT and not named and not waits:
            self.nodes.pop(number, None)

    # --- what the power cut does --------------------------------------------------------------

    def cut(self, dice: random.Random, loss: Loss) -> str:
        """Lose the power; afterwards all that is seen is what survived. Returns what was lost."""
        waited = sum(len(node.waiting) for node in self.nodes.values() if isinstance(node, File))
        kept_names = 0 if loss is Loss.DROP else dice.randint(0, len(self._namings))
        names = len(self._namings)
        for naming in self._namings[:kept_names]:
            self._make_safe(naming)
        self._namings.clear()
        kept = 0
        for node in self.nodes.values():
            if isinstance(node, File):
                for change in survivors(node.waiting, dice, loss):
                    _apply_content(change, node.safe)
                    kept += 1
                node.waiting.clear()
                node.seen = node.safe.copy()
            else:
                node.seen = dict(node.safe)
        self._drop_unreachable()
        return (
            f"{loss.value}: of {waited} unsynced writes {kept} pieces survived, {kept_names} of"
            f" {names} names"
        )

    def _drop_unreachable(self) -> None:
        reached, todo = {ROOT}, [ROOT]
        while todo:
            node = self.nodes[todo.pop()]
            if isinstance(node, Directory):
                for number in node.seen.values():
                    if number not in reached:
                        reached.add(number)
                        todo.append(number)
        self.nodes = {number: node for number, node in self.nodes.items() if number in reached}


def survivors(
    waiting: list[Write | Truncate], dice: random.Random, loss: Loss
) -> Iterator[Write | Truncate]:
    """Choose what of the waiting changes reaches the disk."""
    if loss is Loss.DROP:
        return
    if loss is Loss.TEAR:
        whole = dice.randint(0, len(waiting))
        yield from waiting[:whole]
        if whole < len(waiting):
            torn = waiting[whole]
            if isinstance(torn, Write):
                sectors = list(_sectors(torn))
                yield from sectors[: dice.randint(0, len(sectors) - 1)]
        return
    chance = dice.random()
    for change in waiting:
        if isinstance(change, Truncate):
            if dice.random() < chance:
                yield change
        else:
            yield from (one for one in _sectors(change) if dice.random() < chance)


def _sectors(write: Write) -> Iterator[Write]:
    """Split a write where sectors end; each reaches the disk whole or not at all."""
    at = 0
    while at < len(write.data):
        offset = write.offset + at
        count = min(SECTOR_BYTES - offset % SECTOR_BYTES, len(write.data) - at)
        yield Write(offset, write.data[at : at + count])
        at += count


def _apply_content(change: Write | Truncate, content: Content) -> None:
    if isinstance(change, Write):
        content.write(change.offset, change.data)
    else:
        content.truncate(change.size)


def _apply_names(naming: Naming, directory: int, table: dict[str, int]) -> None:
    for number, name, target in naming.changes:
        if number == directory:
            if target is None:
                table.pop(name, None)
            else:
                table[name] = target
