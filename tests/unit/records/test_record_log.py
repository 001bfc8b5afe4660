from collections.abc import Sequence
from pathlib import Path

import pytest

from quantumqtt import errors
from quantumqtt._core import RecordLog

KEY = b"k" * 32
MESSAGES = [(f"plant/{number}", f"payload {number}".encode()) for number in range(10)]


def open_log(folder: Path, *, tenant: str = "default", key: bytes = KEY) -> RecordLog:
    return RecordLog(str(folder), tenant=tenant, partition=3, key=key)


def filled(folder: Path, messages: Sequence[tuple[str, bytes]] = MESSAGES) -> RecordLog:
    log = open_log(folder)
    log.append(messages, now_ms=1_700_000_000_000, client_id="sensor")
    log.seal()
    return log


def test_what_was_sealed_is_there_after_a_new_start(tmp_path: Path) -> None:
    assert filled(tmp_path).bounds() == (0, 10)
    log = open_log(tmp_path)
    assert log.bounds() == (0, 10)
    assert log.payloads([0, 9]) == [b"payload 0", b"payload 9"]
    assert log.append(MESSAGES, now_ms=1_700_000_000_001) == 20


def test_what_was_not_sealed_is_gone_with_a_log_that_stands_alone(tmp_path: Path) -> None:
    filled(tmp_path).append(MESSAGES, now_ms=1_700_000_000_001)
    assert open_log(tmp_path).bounds() == (0, 10)


def test_retention_keeps_what_is_referred_to(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.append([("late", b"last")], now_ms=1_700_000_000_002)
    log.seal()
    assert log.retain(now_ms=1_700_000_000_100, bytes_max=1, referenced=[4, 7])
    assert log.bounds() == (10, 11)
    assert log.payloads([4, 7, 10]) == [b"payload 4", b"payload 7", b"last"]
    with pytest.raises(errors.StorageError, match="5 to 6 have expired") as caught:
        log.payloads([5])
    assert caught.value.hint
    assert open_log(tmp_path).payloads([4, 7]) == [b"payload 4", b"payload 7"]


def test_a_hold_keeps_all_until_it_is_released(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.hold("audit", 0)
    assert not log.retain(now_ms=2_000_000_000_000, age_ms=1)
    assert log.release("audit")
    assert not log.release("audit")
    assert log.retain(now_ms=2_000_000_000_000, age_ms=1)
    assert log.bounds() == (10, 10)


def test_small_chunks_are_merged_and_their_files_removed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for round_number in range(4):
        log.append(MESSAGES, now_ms=1_700_000_000_000 + round_number)
        log.seal()
    assert log.statistics()["chunk_count"] == 4
    assert log.merge()
    assert not log.merge()
    assert log.statistics()["chunk_count"] == 1
    assert len(list((tmp_path / "log").glob("*.chunk"))) == 1
    assert log.payloads(range(40)) == [payload for _, payload in MESSAGES] * 4


def test_times_are_found(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.append(MESSAGES, now_ms=1_700_000_000_500)
    assert log.offset_for_time(0) == 0
    assert log.offset_for_time(1_700_000_000_001) == 10
    assert log.offset_for_time(1_700_000_000_501) == 20


def test_a_damaged_file_is_told_and_not_served(tmp_path: Path) -> None:
    filled(tmp_path)
    (chunk,) = (tmp_path / "log").glob("*.chunk")
    content = bytearray(chunk.read_bytes())
    content[200] ^= 1
    chunk.write_bytes(content)
    log = open_log(tmp_path)
    with pytest.raises(errors.CorruptStore, match="offsets 0 to 9 cannot be read"):
        log.payloads([3])
    content[-100] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(errors.CorruptStore, match=r"digest|footer"):
        open_log(tmp_path)


@pytest.mark.parametrize(("tenant", "key"), [("other", KEY), ("default", b"x" * 32)])
def test_another_tenant_or_key_opens_nothing(tmp_path: Path, tenant: str, key: bytes) -> None:
    filled(tmp_path)
    with pytest.raises(errors.CorruptStore, match="footer does not open"):
        open_log(tmp_path, tenant=tenant, key=key)


@pytest.mark.requirement("LOG-35")
def test_no_file_says_whose_log_it_is_or_what_is_in_it(tmp_path: Path) -> None:
    log = RecordLog(str(tmp_path), tenant="tenant-of-note", partition=3, key=KEY)
    log.append([("topic-of-note", b"payload-of-note")], now_ms=1, client_id="client-of-note")
    log.seal()
    for file in (tmp_path / "log").iterdir():
        assert b"-of-note" not in file.read_bytes()


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        open_log(tmp_path, key=b"short")
    log = open_log(tmp_path)
    with pytest.raises(ValueError, match="source kafka"):
        log.append(MESSAGES, now_ms=1, source="kafka")
    with pytest.raises(ValueError, match="column colour"):
        log.read(columns=["colour"])


def test_as_much_as_the_largest_packet_takes_is_one_record(tmp_path: Path) -> None:
    payload = bytes(range(256)) * (65_536 + 512)
    log = filled(tmp_path, [("small", b"1"), ("large", payload), ("small", b"2")])
    assert log.payloads([0, 1, 2]) == [b"1", payload, b"2"]
    with pytest.raises(ValueError, match="16908288 is the most"):
        log.append([("larger", payload + b"!")], now_ms=1)


def test_a_stream_is_an_arrow_capsule_that_can_be_taken_once(tmp_path: Path) -> None:
    stream = filled(tmp_path).read()
    capsule = stream.__arrow_c_stream__()
    assert "arrow_array_stream" in repr(capsule)
    with pytest.raises(ValueError, match="taken before"):
        stream.__arrow_c_stream__()
    del capsule  # nobody took what was in it; it is released with the capsule
