"""The disk whose power is cut, and the small one that fills, under ordinary programs."""

import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quantumqtt.cli.crash.disk import SmallDisk
from quantumqtt.cli.crash.disk_model import Loss
from quantumqtt.cli.crash.power_disk import PowerDisk
from tests.harness.crash_runs import needs_mounts

pytestmark = needs_mounts

# Says "ok N" after it wrote line N; with the word "sync" it asks the disk first, as one should.
WRITER = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND | int(sys.argv[3]), 0o600)
folder = os.open(os.path.dirname(sys.argv[1]), os.O_RDONLY)
os.fsync(folder)
for number in range(100000):
    os.write(file, b"line %06d\\n" % number)
    if sys.argv[2] == "sync":
        os.fdatasync(file)
    print("ok", number, flush=True)
"""
LINES_SEEN = 200


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[PowerDisk]:
    one = PowerDisk(tmp_path / "power", (Loss.DROP,))
    try:
        yield one
    finally:
        one.close()


def lines_after_a_cut(disk: PowerDisk, word: str, flags: int = 0) -> tuple[int, list[str]]:
    """Kill the writer while it writes, cut the power; what it said, and what is there."""
    file = disk.directory / "lines"
    command = [sys.executable, "-c", WRITER, str(file), word, str(flags)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        said = -1
        for _ in range(LINES_SEEN):
            said = int(writer.stdout.readline().split()[1])
        writer.kill()
    disk.cut(random.Random(1))
    return said, file.read_text("utf-8").splitlines() if file.exists() else []


def test_a_program_that_syncs_before_it_says_ok_loses_nothing(disk: PowerDisk) -> None:
    said, found = lines_after_a_cut(disk, "sync")
    assert len(found) > said
    assert found[: said + 1] == [f"line {number:06}" for number in range(said + 1)]


def test_a_program_that_says_ok_without_a_sync_is_found_out(disk: PowerDisk) -> None:
    said, found = lines_after_a_cut(disk, "none")
    assert said == LINES_SEEN - 1
    assert found == []


def test_synchronous_writes_are_as_good_as_syncs(disk: PowerDisk) -> None:
    said, found = lines_after_a_cut(disk, "none", os.O_DSYNC)
    assert len(found) > said


def test_a_database_keeps_what_it_committed(disk: PowerDisk) -> None:
    """SQLite is a stranger with a reputation: what it lost here, the disk would have lost."""
    file = disk.directory / "numbers.db"
    for number in range(5):
        base = sqlite3.connect(file)
        base.execute("pragma synchronous = extra")
        base.execute("create table if not exists numbers (number integer)")
        base.execute("insert into numbers values (?)", (number,))
        base.commit()
        base.close()
        disk.cut(random.Random(number))
        base = sqlite3.connect(file)
        found = [row[0] for row in base.execute("select number from numbers order by number")]
        base.close()
        assert found == list(range(number + 1))


def test_files_behave_as_files_do(disk: PowerDisk) -> None:
    root = disk.directory
    (root / "folder").mkdir()
    (root / "folder" / "one").write_bytes(b"x" * 300_000)
    with (root / "folder" / "one").open("r+b") as file:
        file.seek(100_000)
        file.write(b"y" * 10)
        os.posix_fallocate(file.fileno(), 0, 400_000)
    os.link(root / "folder" / "one", root / "two")
    (root / "folder" / "one").rename(root / "three")
    content = (root / "three").read_bytes()
    assert len(content) == 400_000
    assert content[99_999:100_011] == b"x" + b"y" * 10 + b"x"
    assert content[300_000:] == bytes(100_000)
    assert sorted(path.name for path in root.iterdir()) == ["folder", "three", "two"]
    with pytest.raises(FileExistsError):
        (root / "folder").mkdir()
    (root / "folder").rmdir()
    os.truncate(root / "two", 3)
    assert (root / "two").read_bytes() == b"xxx"
    (root / "two").unlink()
    assert [path.name for path in root.iterdir()] == ["three"]


def test_a_small_disk_fills_and_empties(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "small", 4 << 20)
    try:
        (disk.directory / "data").write_bytes(b"kept")
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (disk.directory / "more").write_bytes(bytes(100_000))
        disk.free()
        (disk.directory / "more").write_bytes(bytes(100_000))
        assert (disk.directory / "data").read_bytes() == b"kept"
    finally:
        disk.close()
    assert list(disk.directory.iterdir()) == []
