"""The file: what is written is read, a torn end is cut, damage has a name."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantumqtt.client.journal import Contents, Journal
from quantumqtt.client.receipts import Receipt
from quantumqtt.client.store import FRAME_MAGIC, FileStore
from quantumqtt.errors import CorruptStore, StorageError

GOLDEN = Path(__file__).parents[2] / "golden" / "client_store"


def publish(topic: str, payload: bytes, flags: int = 2, packet_id: int = 0) -> Receipt:
    receipt = Receipt(topic, payload, flags, b"\x01\x01" if packet_id else b"")
    receipt.packet_id = packet_id
    return receipt


def life(journal: Journal) -> Iterable[list[bytes]]:
    """One small life of a session, one commit after the other."""
    first, second, third = (
        publish("a", b"1", 2, 7),
        publish("ü/b", b"2" * 100, 5, 8),
        publish("c", b""),
    )
    journal.opened(5)
    journal.subscribed("a/#", 1)
    journal.subscribed("b", 0b1110)
    yield journal.take()[0]
    for receipt in (first, second, third):
        journal.accepted(receipt)
    yield journal.take()[0]
    journal.sent(first)
    journal.sent(second)
    journal.received(11)
    journal.received(12)
    yield journal.take()[0]
    journal.settled(first)
    journal.released(second)
    journal.completed(11)
    journal.unsubscribed("b")
    yield journal.take()[0]


def written(path: Path) -> list[int]:
    """Write that life to a file; returns its sizes after each commit."""
    store, journal = FileStore(path), Journal()
    journal.open(store.open("golden", is_fixed=True).next_sequence)
    sizes = [path.stat().st_size]
    for records in life(journal):
        store.commit(records)
        sizes.append(path.stat().st_size)
    store.close()
    return sizes


def read(path: Path) -> Contents:
    store = FileStore(path)
    try:
        return store.open("another", is_fixed=False)
    finally:
        store.close()


def check_whole(contents: Contents) -> None:
    assert (contents.client_id, contents.level, contents.next_sequence) == ("golden", 5, 4)
    assert contents.subscriptions == {"a/#": 1}
    assert contents.received == {12}
    assert list(contents.publishes) == [2, 3]
    assert contents.publishes[2].parts() == ("ü/b", b"2" * 100, 5, b"\x01\x01")
    assert (contents.publishes[2].packet_id, contents.publishes[2].released) == (8, True)
    assert contents.publishes[3].parts() == ("c", b"", 2, b"")


@pytest.mark.requirement("CLI-25")
def test_what_was_committed_is_read_back(tmp_path: Path) -> None:
    written(tmp_path / "s")
    check_whole(read(tmp_path / "s"))
    assert (tmp_path / "s").stat().st_mode & 0o077 == 0


@pytest.mark.requirement("CLI-25")
def test_the_bytes_of_the_first_release_stay_readable(tmp_path: Path) -> None:
    """Whole; and we still write the very same."""
    copy = tmp_path / "s"
    copy.write_bytes((GOLDEN / "version_1.bin").read_bytes())
    check_whole(read(copy))
    written(tmp_path / "new")
    assert (tmp_path / "new").read_bytes() == (GOLDEN / "version_1.bin").read_bytes()


def test_a_torn_end_is_cut_wherever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "s"
    sizes = written(path)
    whole = path.read_bytes()
    for length in range(sizes[-2], len(whole)):
        for tail in (b"", b"\0" * 64):
            path.write_bytes(whole[:length] + tail)
            assert read(path).received == {11, 12}
            assert path.stat().st_size == sizes[-2]
    # And it goes on from there.
    store = FileStore(path)
    store.open("golden", is_fixed=True)
    journal = Journal()
    journal.open(9)
    journal.received(99)
    store.commit(journal.take()[0])
    store.close()
    assert read(path).received == {11, 12, 99}


def test_damage_before_the_end_is_named_and_nothing_is_guessed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    sizes = written(path)
    whole = path.read_bytes()
    for at in range(sizes[-2]):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(StorageError) as failed:
            read(path)
        assert failed.value.hint
        if at not in (8, 9):  # the version, which another release may know
            assert isinstance(failed.value, CorruptStore)
        assert path.stat().st_size == len(whole)


def test_a_frame_that_is_missing_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "s"
    sizes = written(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: sizes[1]] + whole[sizes[2] :])
    with pytest.raises(CorruptStore, match="frame 2 at byte"):
        read(path)


@given(st.binary(max_size=200))
def test_any_block_is_records_or_a_named_error(block: bytes) -> None:
    contents = Contents("x")
    try:
        contents.apply(block)
    except CorruptStore:
        return
    assert len(contents.publishes) <= len(block)


def test_two_clients_cannot_share_a_store(tmp_path: Path) -> None:
    first = FileStore(tmp_path / "s")
    first.open("a", is_fixed=True)
    with pytest.raises(StorageError, match="in use"):
        FileStore(tmp_path / "s").open("a", is_fixed=True)
    first.close()
    first.close()
    with pytest.raises(StorageError, match="of client 'a', not 'b'"):
        FileStore(tmp_path / "s").open("b", is_fixed=True)
    assert read(tmp_path / "s").client_id == "a"


def test_a_store_that_cannot_be_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot open store"):
        FileStore(tmp_path / "absent" / "s").open("a", is_fixed=True)
    (tmp_path / "other").write_bytes(b"#!/bin/sh\n")
    with pytest.raises(CorruptStore, match="does not begin"):
        FileStore(tmp_path / "other").open("a", is_fixed=True)


def test_a_large_file_of_the_past_is_written_anew(tmp_path: Path) -> None:
    path, journal = tmp_path / "s", Journal()
    store = FileStore(path, sync=False)
    journal.open(store.open("a", is_fixed=True).next_sequence)
    kept = publish("kept", b"k", 4, 3)
    journal.accepted(kept)
    while not store.wants_rewrite(1000):
        past = publish("past", b"x" * 100_000)
        journal.accepted(past)
        journal.settled(past)
        store.commit(journal.take()[0])
    # What was noted and not committed yet is in the snapshot, too.
    journal.accepted(late := publish("late", b"l"))
    records, accepted = journal.snapshot(
        level=4, subscriptions={"f": 1}, received=[9], receipts=[kept, late]
    )
    assert accepted == [late]
    store.rewrite(records)
    assert path.stat().st_size < 1000
    journal.settled(kept)
    store.commit(journal.take()[0])
    store.close()
    contents = read(path)
    assert [one.parts()[0] for one in contents.publishes.values()] == ["late"]
    assert (contents.level, contents.subscriptions, contents.received) == (4, {"f": 1}, {9})
    assert not path.with_name("s.new").exists()


@pytest.mark.parametrize("step", ["write", "fdatasync"])
def test_a_commit_that_fails_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "s"
    store = FileStore(path)
    store.open("a", is_fixed=True)
    size, real = path.stat().st_size, os.write

    def fail(file: int, data: bytes = b"") -> int:
        if step == "write" and len(data) > 5:
            return real(file, data[:5])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(f"quantumqtt.client.store.os.{step}", fail)
        with pytest.raises(StorageError, match="No space left"):
            store.commit([b"\x0a\0\0\0\0"])
    assert path.stat().st_size == size
    store.close()
    assert read(path) == Contents("a")


def test_early_publishes_get_their_numbers_when_the_store_is_open() -> None:
    journal = Journal()
    early, dropped, at_most_once = publish("e", b""), publish("d", b""), publish("q", b"", 0)
    for receipt in (early, dropped, at_most_once):
        journal.accepted(receipt)
    journal.settled(dropped)
    assert journal.take() == ([], [])
    assert not early.accepted
    assert at_most_once.accepted
    journal.open(5)
    records, accepted = journal.take()
    assert (early.sequence, len(records), accepted) == (5, 1, [early])


def test_frames_are_told_apart_from_payloads_that_look_like_them(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store, journal = FileStore(path), Journal()
    journal.open(store.open("a", is_fixed=True).next_sequence)
    journal.accepted(publish("t", FRAME_MAGIC * 50))
    store.commit(journal.take()[0])
    store.close()
    size = path.stat().st_size
    os.truncate(path, size - 3)
    assert read(path).publishes == {}
