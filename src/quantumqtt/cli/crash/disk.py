"""Where the broker under torture keeps its data: a plain directory, a small disk, a failing one.

Mounting needs privileges, so who lacks them is told how to get some for one command: a namespace of
one's own (`unshare`) is enough, nobody needs to be root on the machine.
"""

import ctypes
import errno
import os
import random
from pathlib import Path
from typing import Final, Protocol

from quantumqtt.errors import ConfigError, StorageError

_MNT_DETACH: Final = 2
_CHUNK: Final = bytes(64 * 1024)
UNSHARE_HINT: Final = (
    "run it as root, or in a namespace of your own: unshare --user --map-root-user --mount"
    " quantumqtt torture …; in a container, allow mounts (CAP_SYS_ADMIN) and /dev/fuse"
)


class Disk(Protocol):
    """What a round needs of the place where data lie."""

    @property
    def directory(self) -> Path:
        """The data directory."""

    def cut(self, dice: random.Random) -> str:
        """Lose the power; returns what that did, in words."""

    def fill(self) -> None:
        """Leave no space."""

    def free(self) -> None:
        """Give the space back."""

    def close(self) -> None:
        """Take it down."""


class PlainDisk:
    """An ordinary directory; nothing here can hurt it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)

    @property
    def directory(self) -> Path:
        """The data directory."""
        return self._directory

    def cut(self, dice: random.Random) -> str:
        """Nothing is lost: the page cache outlives processes."""
        del dice
        return ""

    def fill(self) -> None:
        """Not here: it would fill somebody's real disk."""
        raise AssertionError("a plain directory is not to be filled")

    def free(self) -> None:
        """Nothing to give back."""

    def close(self) -> None:
        """Nothing to take down; whoever made the directory removes it."""


class SmallDisk(PlainDisk):
    """A file system in memory with a fixed size, and ballast to fill it."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        """Mount it.

        Raises:
            StorageError: We may not.
        """
        super().__init__(directory)
        mount("tmpfs", directory, "tmpfs", f"size={size_bytes},mode=0700")
        self._ballast = directory / ".ballast"

    def fill(self) -> None:
        """Write ballast until there is no space left."""
        file = os.open(self._ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            while True:
                os.write(file, _CHUNK)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        finally:
            os.close(file)

    def free(self) -> None:
        """Throw the ballast away."""
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it; what lies there is gone."""
        unmount(self._directory)


def mount(source: str, target: Path, kind: str, options: str) -> None:
    """Mount a file system.

    Raises:
        StorageError: The kernel refuses; the hint says how to be allowed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), os.fsencode(target), kind.encode(), 0, options.encode()) != 0:
        number = ctypes.get_errno()
        raise StorageError(f"cannot mount {kind} on {target}: {os.strerror(number)}", UNSHARE_HINT)


def unmount(target: Path) -> None:
    """Detach a mount, whoever still looks at it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.umount2(os.fsencode(target), _MNT_DETACH)


def check_size(size_mb: int) -> int:
    """Turn megabytes into bytes.

    Raises:
        ConfigError: So small that nothing could start on it.
    """
    if size_mb < 4:
        raise ConfigError(f"--disk-mb {size_mb} leaves no room to start", "give at least 4")
    return size_mb * 1024 * 1024
