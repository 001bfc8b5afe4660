"""The data directory: private, writable, and owned by one running broker at a time.

Rules:

- A missing directory is made with mode 0700.
- An existing one that others may look into is made private when it is ours or empty; a directory
  full of something else is refused, because tightening `/tmp` would hurt its other users.
- Ownership is an advisory lock (`flock`) on `quantumqtt.lock`, held as long as the broker lives.
  The kernel drops it when the process dies, so a crash leaves nothing to clean up. The process id
  inside the file is only for the error message of the next one.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from quantumqtt.errors import ConfigError

LOCK_FILE: Final = "quantumqtt.lock"
_MODE_PRIVATE: Final = 0o700
_MODE_LOCK_FILE: Final = 0o600
_OTHERS: Final = 0o077
_PID_CHARS_MAX: Final = 20


class DataDirectory:
    """A locked data directory; `release` it, or leave the `with` block, to let go."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Keep what `claim` has opened; use `claim`."""
        self.path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def claim(cls, path: Path) -> Self:
        """Make the directory if needed, check it, lock it.

        Raises:
            ConfigError: It cannot be made, written or locked; the hint says what to do.
        """
        path = path.absolute()
        _make_private(path)
        try:
            descriptor = os.open(
                path / LOCK_FILE,
                os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW,
                _MODE_LOCK_FILE,
            )
        except OSError as error:
            raise _unusable(path, error) from error
        try:
            _lock(path, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor)

    def release(self) -> None:
        """Drop the lock. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        """Hold the directory for a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go."""
        self.release()


def _make_private(path: Path) -> None:
    try:
        path.mkdir(mode=_MODE_PRIVATE, parents=True, exist_ok=True)
        mode = path.stat().st_mode
        if not mode & _OTHERS:
            return
        names = os.listdir(path)
        if names and LOCK_FILE not in names:
            raise ConfigError(
                f"data directory {path} is open to other users and holds other files",
                hint=f"choose an empty directory, or run `chmod 700 {path}` if it is ours alone",
            )
        path.chmod(_MODE_PRIVATE)
    except FileExistsError as error:
        raise ConfigError(
            f"data directory {path} is not a directory", hint="choose another path"
        ) from error
    except OSError as error:
        raise _unusable(path, error) from error


def _lock(path: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = _owner(descriptor)
        raise ConfigError(
            f"data directory {path} is in use by a running broker{owner}",
            hint="stop that broker, or choose another --data directory",
        ) from error
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        raise _unusable(path, error) from error


def _owner(descriptor: int) -> str:
    with suppress(OSError, ValueError):
        return f" (process {int(os.pread(descriptor, _PID_CHARS_MAX, 0))})"
    return ""


def _unusable(path: Path, error: OSError) -> ConfigError:
    reason = (error.strerror or str(error)).lower()
    return ConfigError(
        f"data directory {path} cannot be used: {reason}",
        hint=f"give this user (id {os.geteuid()}) the right to write there, or choose another path",
    )
