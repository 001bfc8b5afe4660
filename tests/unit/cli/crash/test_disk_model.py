"""The disk that keeps what was synced: what survives a cut, and what must not."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantumqtt.cli.crash.disk_model import (
    ROOT,
    SECTOR_BYTES,
    Content,
    DiskModel,
    Loss,
    Truncate,
    Write,
    survivors,
)

FILE_MODE = 0o100600
every_loss = pytest.mark.parametrize("loss", list(Loss))


def content(model: DiskModel, name: str) -> bytes | None:
    directory = model.directory(ROOT)
    assert directory is not None
    number = directory.seen.get(name)
    if number is None:
        return None
    seen = model.file(number).seen
    return seen.read(0, seen.size)


def cut(model: DiskModel, loss: Loss = Loss.DROP, seed: int = 1) -> None:
    model.cut(random.Random(seed), loss)


@every_loss
@pytest.mark.parametrize("seed", range(20))
def test_what_was_synced_survives_every_cut(loss: Loss, seed: int) -> None:
    model = DiskModel()
    number = model.create(ROOT, "log", FILE_MODE)
    model.sync_directory(ROOT)
    model.write(number, 0, b"a" * 1000)
    model.sync_file(number)
    model.write(number, 1000, b"b" * 5000)
    cut(model, loss, seed)
    found = content(model, "log")
    assert found is not None
    assert found[:1000] == b"a" * 1000
    assert set(found[1000:]) <= {ord("b"), 0}


def test_what_was_not_synced_is_dropped() -> None:
    model = DiskModel()
    number = model.create(ROOT, "log", FILE_MODE)
    model.sync_directory(ROOT)
    model.write(number, 0, b"gone")
    assert content(model, "log") == b"gone"
    cut(model)
    assert content(model, "log") == b""


def test_a_synchronous_write_needs_no_sync() -> None:
    model = DiskModel()
    number = model.create(ROOT, "log", FILE_MODE)
    model.sync_directory(ROOT)
    model.write(number, 0, b"kept", is_synchronous=True)
    cut(model)
    assert content(model, "log") == b"kept"


def test_a_name_is_safe_when_its_directory_was_synced_and_not_before() -> None:
    model = DiskModel()
    number = model.create(ROOT, "log", FILE_MODE)
    model.write(number, 0, b"text")
    model.sync_file(number)
    cut(model)
    assert content(model, "log") is None


def test_a_rename_without_a_sync_leaves_the_old_file() -> None:
    model = DiskModel()
    for name, text in (("state", b"old"), ("state.new", b"new")):
        number = model.create(ROOT, name, FILE_MODE)
        model.write(number, 0, text)
        model.sync_file(number)
    model.sync_directory(ROOT)
    model.rename(ROOT, "state.new", ROOT, "state")
    assert content(model, "state") == b"new"
    assert content(model, "state.new") is None
    cut(model)
    assert content(model, "state") == b"old"
    assert content(model, "state.new") == b"new"


def test_a_renamed_file_that_was_not_synced_comes_back_empty() -> None:
    """The classic: the name survives, what it names does not."""
    model = DiskModel()
    number = model.create(ROOT, "state.new", FILE_MODE)
    model.write(number, 0, b"new")
    model.rename(ROOT, "state.new", ROOT, "state")
    model.sync_directory(ROOT)
    cut(model)
    assert content(model, "state") == b""


def test_a_removed_file_comes_back_unless_the_directory_was_synced() -> None:
    model = DiskModel()
    for name in ("one", "two"):
        model.create(ROOT, name, FILE_MODE)
    model.sync_directory(ROOT)
    model.remove(ROOT, "one")
    cut(model)
    assert content(model, "one") == b""
    model.remove(ROOT, "two")
    model.sync_directory(ROOT)
    cut(model)
    assert content(model, "two") is None


def test_names_survive_as_a_first_part_of_their_row() -> None:
    lengths = set()
    for seed in range(50):
        model = DiskModel()
        for n in range(5):
            model.create(ROOT, str(n), FILE_MODE)
        cut(model, Loss.TEAR, seed)
        directory = model.directory(ROOT)
        assert directory is not None
        assert list(directory.seen) == [str(n) for n in range(len(directory.seen))]
        lengths.add(len(directory.seen))
    assert lengths == set(range(6))


def test_a_subdirectory_that_lost_its_name_is_gone_with_all_that_was_in_it() -> None:
    model = DiskModel()
    folder = model.create(ROOT, "folder", 0o40700, is_directory=True)
    number = model.create(folder, "file", FILE_MODE)
    model.sync_file(number)
    model.sync_directory(folder)
    cut(model)
    assert list(model.nodes) == [ROOT]


def test_tearing_ends_at_a_sector() -> None:
    waiting: list[Write | Truncate] = [Write(0, b"x" * 4000), Write(4000, b"y" * 4000)]
    ends = set()
    for seed in range(200):
        kept = list(survivors(waiting, random.Random(seed), Loss.TEAR))
        end = sum(len(one.data) for one in kept if isinstance(one, Write))
        ends.add(end)
    assert len(ends) > 5
    assert all(end in (4000, 8000) or end % SECTOR_BYTES == 0 for end in ends)


def test_reordering_keeps_later_sectors_without_earlier_ones() -> None:
    waiting: list[Write | Truncate] = [Write(0, b"x" * 4096), Write(4096, b"y" * 4096)]
    orders = [list(survivors(waiting, random.Random(seed), Loss.REORDER)) for seed in range(50)]
    offsets = [{one.offset for one in kept if isinstance(one, Write)} for kept in orders]
    assert any(4096 in one and 0 not in one for one in offsets)
    assert any(0 in one and 4096 not in one for one in offsets)


def test_the_same_seed_loses_the_same() -> None:
    def run() -> bytes | None:
        model = DiskModel()
        number = model.create(ROOT, "log", FILE_MODE)
        model.sync_directory(ROOT)
        for n in range(20):
            model.write(number, n * 700, bytes([n]) * 700)
        cut(model, Loss.REORDER, 7)
        return content(model, "log")

    assert run() == run()


@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 20_000), st.binary(max_size=9_000)),
            st.integers(0, 25_000),
        ),
        max_size=12,
    )
)
def test_content_is_what_a_plain_array_would_hold(steps: list[tuple[int, bytes] | int]) -> None:
    held, plain = Content(), bytearray()
    for step in steps:
        if isinstance(step, int):
            held.truncate(step)
            plain = plain[:step] + bytes(max(0, step - len(plain)))
        else:
            offset, data = step
            held.write(offset, data)
            if data:
                plain += bytes(max(0, offset + len(data) - len(plain)))
                plain[offset : offset + len(data)] = data
    assert held.size == len(plain)
    assert held.read(0, held.size) == bytes(plain)
    assert held.read(5, 100) == bytes(plain[5:105])
