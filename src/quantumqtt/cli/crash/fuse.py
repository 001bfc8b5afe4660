"""The kernel's side of `disk_model.py`: FUSE spoken directly, through /dev/fuse.

Theory of operation. The kernel hands over one request at a time, a header of 40 bytes and arguments
by its kind; each is answered with a header of 16 bytes and a result. Pages are not cached for
writing, so a write has reached us before the process goes on, and what is seen after a sync that we
answered is what the model calls safe. Names and attributes are valid for no time, which costs
requests and never shows anything stale.

Absent on purpose: symbolic links, extended attributes, and locks, which the kernel keeps by itself.
`sync(2)` and `syncfs(2)` never reach a FUSE file system; a broker that trusts them alone would be
judged too hard, and is told so by the guide.
"""

import errno
import os
import stat
import struct
import time
from collections.abc import Callable
from typing import Final

from quantumqtt.cli.crash.disk_model import (
    PAGE_BYTES,
    Directory,
    DiskModel,
    File,
)

_IN: Final = struct.Struct("<IIQQIIII")
_OUT: Final = struct.Struct("<IiQ")
_ATTR: Final = struct.Struct("<QQQQQQIIIIIIIIII")
_ENTRY: Final = struct.Struct("<QQQQII")
_INIT_OUT: Final = struct.Struct("<IIIIHHIIHH32x")
_DIRENT: Final = struct.Struct("<QQII")
_SETATTR: Final = struct.Struct("<IIQQQQQQIIIIIIII")
_IO: Final = struct.Struct("<QQIIQII")
_STATFS: Final = struct.Struct("<QQQQQIIII24x")
_FALLOCATE: Final = struct.Struct("<QQQII")
_OPEN_OUT: Final = struct.Struct("<QII")

_MINOR: Final = 31
_BIG_WRITES: Final = 1 << 5
_MAX_PAGES: Final = 1 << 22
_WRITE_BYTES_MAX: Final = 1024 * 1024
REQUEST_BYTES_MAX: Final = _WRITE_BYTES_MAX + 64 * 1024

_SET_MODE, _SET_UID, _SET_GID, _SET_SIZE = 1, 2, 4, 8
_KEEP_SIZE, _PUNCH_HOLE, _ZERO_RANGE = 1, 2, 16
_NO_REPLACE, _EXCHANGE = 1, 2
_FORGET, _INIT, _INTERRUPT, _DESTROY, _BATCH_FORGET = 2, 26, 36, 38, 42
_SILENT: Final = frozenset({_FORGET, _INTERRUPT, _BATCH_FORGET})
_NEVER_SHORT: Final = 255

_Answer = Callable[[int, bytes], bytes]


class FuseError(Exception):
    """A request that is answered with an error number."""

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.number = number


class Requests:
    """Answers the kernel's requests out of a model."""

    def __init__(self, model: DiskModel) -> None:
        self.model = model
        self._asker = (0, 0)
        self._answers: dict[int, _Answer] = {
            1: self._lookup,
            3: self._getattr,
            4: self._setattr,
            8: self._mknod,
            9: self._mkdir,
            10: self._unlink,
            11: self._rmdir,
            12: self._rename,
            13: self._link,
            14: self._open,
            15: self._read,
            16: self._write,
            17: self._statfs,
            18: self._nothing,
            20: self._fsync,
            25: self._nothing,
            _INIT: self._init,
            27: self._open,
            28: self._readdir,
            29: self._nothing,
            30: self._fsyncdir,
            35: self._create,
            _DESTROY: self._nothing,
            43: self._fallocate,
            45: self._rename2,
        }

    def answer(self, request: bytes) -> bytes | None:
        """Answer one request; None where the kernel wants no answer."""
        _, kind, unique, node, uid, gid, _, _ = _IN.unpack_from(request)
        if kind in _SILENT:
            return None
        answer = self._answers.get(kind)
        if answer is None:
            return _OUT.pack(_OUT.size, -errno.ENOSYS, unique)
        try:
            self._asker = (uid, gid)
            body = answer(node, request[_IN.size :])
        except FuseError as error:
            return _OUT.pack(_OUT.size, -error.number, unique)
        return _OUT.pack(_OUT.size + len(body), 0, unique) + body

    # --- looking ------------------------------------------------------------------------------

    def _init(self, node: int, arguments: bytes) -> bytes:
        del node
        major, _, readahead, flags = struct.unpack_from("<IIII", arguments)
        return _INIT_OUT.pack(
            *(major, _MINOR, readahead, flags & (_BIG_WRITES | _MAX_PAGES)),
            *(16, 12, _WRITE_BYTES_MAX, 1, _WRITE_BYTES_MAX // PAGE_BYTES, 0),
        )

    def _nothing(self, node: int, arguments: bytes) -> bytes:
        del node, arguments
        return b""

    def _node(self, number: int) -> File | Directory:
        node = self.model.nodes.get(number)
        if node is None:
            raise FuseError(errno.ESTALE)
        return node

    def _file(self, number: int) -> File:
        node = self._node(number)
        if not isinstance(node, File):
            raise FuseError(errno.EISDIR)
        return node

    def _directory(self, number: int) -> Directory:
        node = self._node(number)
        if not isinstance(node, Directory):
            raise FuseError(errno.ENOTDIR)
        return node

    def _child(self, parent: int, name: str) -> int:
        number = self._directory(parent).seen.get(name)
        if number is None:
            raise FuseError(errno.ENOENT)
        return number

    def _attributes(self, number: int) -> bytes:
        node = self._node(number)
        size = node.seen.size if isinstance(node, File) else PAGE_BYTES
        blocks = node.seen.stored_bytes // 512 if isinstance(node, File) else 8
        seconds, rest = divmod(node.changed_ns, 1_000_000_000)
        links = 1 if isinstance(node, File) else 2
        return _ATTR.pack(
            *(number, size, blocks, seconds, seconds, seconds, rest, rest, rest),
            *(node.mode, links, *node.owner, 0, PAGE_BYTES, 0),
        )

    def _entry(self, number: int) -> bytes:
        return _ENTRY.pack(number, 0, 0, 0, 0, 0) + self._attributes(number)

    def _lookup(self, node: int, arguments: bytes) -> bytes:
        return self._entry(self._child(node, _name(arguments)))

    def _getattr(self, node: int, arguments: bytes) -> bytes:
        del arguments
        return struct.pack("<QII", 0, 0, 0) + self._attributes(node)

    def _statfs(self, node: int, arguments: bytes) -> bytes:
        del node, arguments
        total = 1 << 24
        free = total - self.model.stored_bytes() // PAGE_BYTES
        return _STATFS.pack(
            *(total, free, free, 1 << 20, 1 << 20, PAGE_BYTES, _NEVER_SHORT, PAGE_BYTES, 0)
        )

    def _readdir(self, node: int, arguments: bytes) -> bytes:
        directory = self._directory(node)
        _, offset, size, _, _, _, _ = _IO.unpack_from(arguments)
        names = [(".", node), ("..", directory.parent), *directory.seen.items()]
        listed = b""
        for place, (name, number) in enumerate(names[offset:], start=offset + 1):
            text = os.fsencode(name)
            kind = stat.S_IFMT(self._node(number).mode) >> 12
            entry = _DIRENT.pack(number, place, len(text), kind) + text
            entry += bytes(-len(entry) % 8)
            if len(listed) + len(entry) > size:
                break
            listed += entry
        return listed

    # --- names --------------------------------------------------------------------------------

    def _new(self, parent: int, name: str, mode: int, *, is_directory: bool = False) -> int:
        if name in self._directory(parent).seen:
            raise FuseError(errno.EEXIST)
        number = self.model.create(parent, name, mode, is_directory=is_directory)
        self._node(number).owner = self._asker
        self._touch(number)
        return number

    def _mknod(self, node: int, arguments: bytes) -> bytes:
        mode, _, _, _ = struct.unpack_from("<IIII", arguments)
        if not stat.S_ISREG(mode):
            raise FuseError(errno.EPERM)
        return self._entry(self._new(node, _name(arguments[16:]), mode))

    def _mkdir(self, node: int, arguments: bytes) -> bytes:
        mode, _ = struct.unpack_from("<II", arguments)
        name = _name(arguments[8:])
        return self._entry(self._new(node, name, stat.S_IFDIR | mode, is_directory=True))

    def _create(self, node: int, arguments: bytes) -> bytes:
        _, mode, _, _ = struct.unpack_from("<IIII", arguments)
        number = self._new(node, _name(arguments[16:]), stat.S_IFREG | stat.S_IMODE(mode))
        return self._entry(number) + _OPEN_OUT.pack(0, 0, 0)

    def _open(self, node: int, arguments: bytes) -> bytes:
        del arguments
        self._node(node)
        return _OPEN_OUT.pack(0, 0, 0)

    def _unlink(self, node: int, arguments: bytes) -> bytes:
        name = _name(arguments)
        self._file(self._child(node, name))
        self.model.remove(node, name)
        return b""

    def _rmdir(self, node: int, arguments: bytes) -> bytes:
        name = _name(arguments)
        if self._directory(self._child(node, name)).seen:
            raise FuseError(errno.ENOTEMPTY)
        self.model.remove(node, name)
        return b""

    def _link(self, node: int, arguments: bytes) -> bytes:
        (old,) = struct.unpack_from("<Q", arguments)
        name = _name(arguments[8:])
        self._file(old)
        if name in self._directory(node).seen:
            raise FuseError(errno.EEXIST)
        self.model.link(node, name, old)
        return self._entry(old)

    def _rename(self, node: int, arguments: bytes) -> bytes:
        (target,) = struct.unpack_from("<Q", arguments)
        return self._move(node, target, arguments[8:], 0)

    def _rename2(self, node: int, arguments: bytes) -> bytes:
        target, flags = struct.unpack_from("<QI", arguments)
        return self._move(node, target, arguments[16:], flags)

    def _move(self, node: int, target: int, names: bytes, flags: int) -> bytes:
        old, new = (os.fsdecode(part) for part in names.split(b"\0")[:2])
        self._child(node, old)
        there = self._directory(target).seen.get(new)
        if flags & _EXCHANGE:
            if there is None:
                raise FuseError(errno.ENOENT)
            self.model.exchange(node, old, target, new)
            return b""
        if there is not None:
            if flags & _NO_REPLACE:
                raise FuseError(errno.EEXIST)
            over = self._node(there)
            if isinstance(over, Directory) and over.seen:
                raise FuseError(errno.ENOTEMPTY)
        self.model.rename(node, old, target, new)
        return b""

    # --- contents -----------------------------------------------------------------------------

    def _touch(self, number: int) -> None:
        self._node(number).changed_ns = time.time_ns()

    def _setattr(self, node: int, arguments: bytes) -> bytes:
        valid, _, _, size, *_, mode, _, uid, gid, _ = _SETATTR.unpack_from(arguments)
        one = self._node(node)
        if valid & _SET_SIZE:
            self._file(node)
            self.model.truncate(node, size)
            self._touch(node)
        if valid & _SET_MODE:
            one.mode = stat.S_IFMT(one.mode) | stat.S_IMODE(mode)
        one.owner = (
            uid if valid & _SET_UID else one.owner[0],
            gid if valid & _SET_GID else one.owner[1],
        )
        return self._getattr(node, b"")

    def _read(self, node: int, arguments: bytes) -> bytes:
        _, offset, size, _, _, _, _ = _IO.unpack_from(arguments)
        return self._file(node).seen.read(offset, size)

    def _write(self, node: int, arguments: bytes) -> bytes:
        _, offset, size, _, _, flags, _ = _IO.unpack_from(arguments)
        self._file(node)
        data = arguments[_IO.size : _IO.size + size]
        synchronous = bool(flags & os.O_DSYNC)
        self.model.write(node, offset, data, is_synchronous=synchronous)
        self._touch(node)
        return struct.pack("<II", size, 0)

    def _fallocate(self, node: int, arguments: bytes) -> bytes:
        _, offset, length, mode, _ = _FALLOCATE.unpack_from(arguments)
        file = self._file(node)
        if mode & ~(_KEEP_SIZE | _PUNCH_HOLE | _ZERO_RANGE):
            raise FuseError(errno.EOPNOTSUPP)
        if mode & (_PUNCH_HOLE | _ZERO_RANGE):
            end = offset + length
            if mode & _KEEP_SIZE:
                end = min(end, file.seen.size)
            if end > offset:
                self.model.write(node, offset, bytes(end - offset))
        elif not mode & _KEEP_SIZE and offset + length > file.seen.size:
            self.model.truncate(node, offset + length)
        return b""

    def _fsync(self, node: int, arguments: bytes) -> bytes:
        del arguments
        self._file(node)
        self.model.sync_file(node)
        return b""

    def _fsyncdir(self, node: int, arguments: bytes) -> bytes:
        del arguments
        self._directory(node)
        self.model.sync_directory(node)
        return b""


def _name(arguments: bytes) -> str:
    return os.fsdecode(arguments.split(b"\0", 1)[0])
