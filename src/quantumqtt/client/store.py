"""Where a session outlives its process: the store, and the one that is a file.

Theory of operation. A file is a header and then frames, each written and synced as one. A frame
holds the records (`journal.py`) of everything that happened while the frame before it was synced;
that is the group commit, and why many publishes cost one sync.

    header   8 bytes magic, u16 version, u16 length, client id, u32 CRC of all before
    frame    4 bytes magic, u32 length, u64 number, u32 CRC of number and records, records

Frames are numbered without gaps. After a crash the last frame may be torn, since it was not synced;
it is cut off, and nothing was promised about it. A bad frame with a good one behind it is damage:
it has a name, `CorruptStore`, and nothing is guessed.

When most of the file speaks of what is settled, the live rest is written to a new file which then
takes the old one's name. A lock on a file beside it keeps two clients apart; the kernel drops it
when its holder dies.
"""

import fcntl
import logging
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from quantumqtt.client.journal import Contents
from quantumqtt.errors import CorruptStore, StorageError

MAGIC: Final = b"QMQTTcli"
VERSION: Final = 1
FRAME_MAGIC: Final = b"QMf\x01"
# Below this a file is never written anew, above it when that makes it a quarter or less.
REWRITE_BYTES_MIN: Final = 4 * 1024 * 1024
REWRITE_SHARE: Final = 4
_HEADER: Final = struct.Struct(">8sHH")
_FRAME: Final = struct.Struct(">4sIQI")
_NUMBER: Final = struct.Struct(">Q")
_CRC: Final = struct.Struct(">I")
_LOG: Final = logging.getLogger(__name__)


class Store(Protocol):
    """What a client needs of a store. Called from one thread at a time, never on an event loop."""

    def open(self, client_id: str, *, is_fixed: bool) -> Contents:
        """Read what is there; an empty store begins with `client_id`.

        Raises:
            StorageError: It cannot be read, is in use, or is another client's (if `is_fixed`).
        """
        ...

    def commit(self, records: Sequence[bytes]) -> None:
        """Add records. They outlive the process when this returns.

        Raises:
            StorageError: They could not be stored.
        """
        ...

    def wants_rewrite(self, live_bytes: int) -> bool:
        """Whether everything should be written anew, `live_bytes` being what is still needed."""
        ...

    def rewrite(self, records: Sequence[bytes]) -> None:
        """Put records in the place of all there are.

        Raises:
            StorageError: They could not be stored; what was there still is.
        """
        ...

    def close(self) -> None:
        """Let go of everything. Idempotent."""
        ...


class FileStore:
    """A store in one file, with a lock file beside it."""

    def __init__(self, path: str | os.PathLike[str], *, sync: bool = True) -> None:
        """Plan a store; nothing is opened yet.

        Args:
            path: The file; its folder must exist.
            sync: Whether a commit waits for the disk. Without, a crash of the process harms
                nothing, but a power cut may.
        """
        self._path = Path(path)
        self._sync = sync
        self._file = -1
        self._lock = -1
        self._client_id = ""
        self._number = 0
        self._bytes = 0

    def open(self, client_id: str, *, is_fixed: bool) -> Contents:
        """Read what is there, cut a torn end off, and be ready to add."""
        try:
            self._take_lock()
            self._beside(".new").unlink(missing_ok=True)
            if not self._path.exists() or not self._path.stat().st_size:
                self._client_id = client_id
                self.rewrite(())
                return Contents(client_id)
            self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            contents = self._read(self._path.read_bytes())
        except OSError as error:
            self.close()
            raise self._failed("open", error) from error
        except StorageError:
            self.close()
            raise
        if is_fixed and contents.client_id != client_id:
            self.close()
            raise StorageError(
                f"store {self._path} is of client {contents.client_id!r}, not {client_id!r}",
                "give each client a store of its own",
            )
        self._client_id = contents.client_id
        return contents

    def commit(self, records: Sequence[bytes]) -> None:
        """Add a frame and wait until the disk has it."""
        frame = _frame(self._number + 1, b"".join(records))
        try:
            _write_all(self._file, frame)
            if self._sync:
                os.fdatasync(self._file)
        except OSError as error:
            self._take_back()
            raise self._failed("write to", error) from error
        self._number += 1
        self._bytes += len(frame)

    def _take_back(self) -> None:
        """Cut half a frame off, so that the end is clean if the disk lets us."""
        try:
            os.ftruncate(self._file, self._bytes)
            os.lseek(self._file, self._bytes, os.SEEK_SET)
        except OSError:
            _LOG.warning("store %s: could not cut off a failed write; opening it will", self._path)

    def wants_rewrite(self, live_bytes: int) -> bool:
        """Whether the file is large, and mostly about what is settled."""
        return self._bytes > max(REWRITE_BYTES_MIN, REWRITE_SHARE * live_bytes)

    def rewrite(self, records: Sequence[bytes]) -> None:
        """Write a new file and give it the name of the old one."""
        name = self._client_id.encode()
        head = _HEADER.pack(MAGIC, VERSION, len(name)) + name
        data = head + _CRC.pack(zlib.crc32(head))
        block = b"".join(records)
        number = 1 if block else 0
        if block:
            data += _frame(number, block)
        new = self._beside(".new")
        try:
            file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                _write_all(file, data)
                if self._sync:
                    os.fsync(file)
                new.replace(self._path)
                if self._sync:
                    self._sync_folder()
            except BaseException:
                os.close(file)
                raise
        except OSError as error:
            raise self._failed("write", error) from error
        old, self._file = self._file, file
        if old >= 0:
            os.close(old)
        self._number, self._bytes = number, len(data)

    def close(self) -> None:
        """Close the file and give the lock back."""
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    # --- reading ------------------------------------------------------------------------------

    def _read(self, data: bytes) -> Contents:
        contents, at = self._read_header(data)
        number = 0
        while at < len(data):
            block = _block_at(data, at, number + 1)
            if block is None:
                if _has_frame_behind(data, at, number):
                    raise self._corrupt(f"frame {number + 1} at byte {at} is damaged")
                _LOG.warning(
                    "store %s: cut off %d bytes of a commit that a crash interrupted",
                    self._path,
                    len(data) - at,
                )
                os.ftruncate(self._file, at)
                break
            try:
                contents.apply(block)
            except CorruptStore as error:
                raise self._corrupt(f"frame {number + 1} at byte {at}: {error}") from error
            number += 1
            at += _FRAME.size + len(block)
        os.lseek(self._file, at, os.SEEK_SET)
        self._number, self._bytes = number, at
        return contents

    def _read_header(self, data: bytes) -> tuple[Contents, int]:
        if len(data) < _HEADER.size or data[: len(MAGIC)] != MAGIC:
            raise self._corrupt("it does not begin as a client's store")
        _, version, length = _HEADER.unpack_from(data)
        if version != VERSION:
            raise StorageError(
                f"store {self._path} has version {version}, we read {VERSION}",
                "it was written by another release: open it with that one",
            )
        end = _HEADER.size + length
        if len(data) < end + _CRC.size or _CRC.unpack_from(data, end)[0] != zlib.crc32(data[:end]):
            raise self._corrupt("its header is damaged")
        try:
            name = data[_HEADER.size : end].decode()
        except UnicodeDecodeError as error:
            raise self._corrupt("its header is damaged") from error
        return Contents(name), end + _CRC.size

    # --- files --------------------------------------------------------------------------------

    def _take_lock(self) -> None:
        self._lock = os.open(self._beside(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StorageError(
                f"store {self._path} is in use by another client",
                "give each client a store of its own",
            ) from error

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def _sync_folder(self) -> None:
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _failed(self, verb: str, error: OSError) -> StorageError:
        return StorageError(
            f"cannot {verb} store {self._path}: {error.strerror or error}",
            "is there room on the disk, and may we write there?",
        )

    def _corrupt(self, what: str) -> CorruptStore:
        return CorruptStore(
            f"store {self._path}: {what}",
            "keep the file for an inquiry and start with a new one; what it held is not sent",
        )


def _frame(number: int, block: bytes) -> bytes:
    crc = zlib.crc32(block, zlib.crc32(_NUMBER.pack(number)))
    return _FRAME.pack(FRAME_MAGIC, len(block), number, crc) + block


def _block_at(data: bytes, at: int, number: int) -> bytes | None:
    """The records of the frame at this place; None when it is not whole, or another one."""
    if at + _FRAME.size > len(data):
        return None
    magic, length, found, crc = _FRAME.unpack_from(data, at)
    begin = at + _FRAME.size
    block = data[begin : begin + length]
    if magic != FRAME_MAGIC or found != number or len(block) != length:
        return None
    if zlib.crc32(block, zlib.crc32(_NUMBER.pack(number))) != crc:
        return None
    return block


def _has_frame_behind(data: bytes, at: int, number: int) -> bool:
    """Whether a later frame is whole: then this one is not the end that a crash left."""
    place = data.find(FRAME_MAGIC, at + 1)
    while place >= 0:
        if place + _FRAME.size <= len(data):
            found = _FRAME.unpack_from(data, place)[2]
            if found > number and _block_at(data, place, found) is not None:
                return True
        place = data.find(FRAME_MAGIC, place + 1)
    return False


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
