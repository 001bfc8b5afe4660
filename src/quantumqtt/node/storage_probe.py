"""Whether a disk keeps what it says it has kept, as far as that can be told from outside.

A log is worth what a sync is worth. Some storage takes a sync lightly: a file system in memory, one
that was mounted without barriers, a layer of a container that goes with it, a server at the other
end of a network, a library that makes syncs return at once. What can be seen of that is looked for
at the start. Nothing is proved by finding nothing; see `quantumqtt torture --fault power`.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quantumqtt.errors import ConfigError

RECORD_FILE: Final = "storage.json"
_PROBE_FILE: Final = "storage.probe"
_MOUNTS: Final = Path("/proc/self/mountinfo")
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
_LAYERED: Final = frozenset({"overlay", "aufs", "unionfs"})
_NETWORKED: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs"}
)
_WITHOUT_BARRIERS: Final = frozenset(
    {"nobarrier", "barrier=0", "nobarriers", "async_commit_unsafe"}
)
# The fastest disks with a protected cache take several times this, system call included.
_SYNC_SECONDS_MIN: Final = 5e-6
_SYNC_TRIES: Final = 5
_BLOCK: Final = bytes(4096)


@dataclass(frozen=True, slots=True)
class Mount:
    """The file system below a directory."""

    point: str
    kind: str
    options: frozenset[str]


def probe_storage(directory: Path) -> tuple[str, ...]:
    """Say what is suspicious about the disk below a directory; nothing when nothing is seen."""
    findings: list[str] = []
    mount = mount_of(directory, _read_mounts())
    if mount is not None:
        findings += judge_mount(mount)
    seconds = fastest_sync(directory)
    if seconds is not None and seconds < _SYNC_SECONDS_MIN:
        findings.append(f"a sync takes {seconds * 1e6:.1f} µs, which no disk does: it is ignored")
    return tuple(findings)


def enforce_storage(
    directory: Path, findings: Sequence[str], *, is_production: bool, is_accepted: bool
) -> None:
    """Refuse unsafe storage in production unless that was accepted, and record what was found.

    Raises:
        ConfigError: Storage that cannot be trusted, under profile production.
    """
    if findings and is_production and not is_accepted:
        raise ConfigError(
            f"data directory {directory}: {'; '.join(findings)}",
            hint="choose a disk that keeps what was synced, or accept the risk with"
            " storage.accept_unsafe = true",
        )
    record = directory / RECORD_FILE
    told = json.dumps({"accepted": is_accepted, "findings": list(findings)}) + "\n"
    with suppress(OSError):
        if not findings:
            record.unlink(missing_ok=True)
        elif not record.exists() or record.read_text("utf-8") != told:
            record.write_text(told, "utf-8")


def mount_of(directory: Path, mounts: Sequence[Mount]) -> Mount | None:
    """Find the file system that holds a directory: the innermost, and of equals the last."""
    path = os.path.realpath(directory)
    best: Mount | None = None
    for mount in mounts:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def judge_mount(mount: Mount) -> list[str]:
    """Say what is suspicious about a file system."""
    findings = []
    if mount.kind in _IN_MEMORY:
        findings.append(f"{mount.kind} is memory: nothing outlives the machine")
    elif mount.kind in _LAYERED:
        findings.append(f"{mount.kind} is a container's own layer: it goes with the container")
    elif mount.kind in _NETWORKED:
        findings.append(f"{mount.kind} is another machine's disk: what a sync means is its affair")
    if bare := sorted(mount.options & _WITHOUT_BARRIERS):
        findings.append(f"mounted with {bare[0]}: a sync does not reach behind the disk's cache")
    return findings


def parse_mounts(text: str) -> list[Mount]:
    """Read `/proc/self/mountinfo`; lines nobody can read are passed over."""
    mounts = []
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if not dash or len(fields) < 6 or len(rest) < 3:
            continue
        point = (
            fields[4].encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "replace")
        )
        options = frozenset((*fields[5].split(","), *rest[2].split(",")))
        mounts.append(Mount(point, rest[0], options))
    return mounts


def fastest_sync(
    directory: Path, *, clock: Callable[[], float] = time.perf_counter
) -> float | None:
    """Measure syncs of one block until one is plausible; None when it cannot be tried."""
    path = directory / _PROBE_FILE
    fastest: float | None = None
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        for _ in range(_SYNC_TRIES):
            os.pwrite(descriptor, _BLOCK, 0)
            began = clock()
            os.fdatasync(descriptor)
            took = clock() - began
            fastest = took if fastest is None else max(fastest, took)
            if took >= _SYNC_SECONDS_MIN:
                break
    except OSError:
        # A full or failing disk has better ways to say so.
        return None
    finally:
        os.close(descriptor)
        with suppress(OSError):
            path.unlink()
    return fastest


def _read_mounts() -> list[Mount]:
    try:
        return parse_mounts(_MOUNTS.read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        return []
