"""What strace saw: read whole calls out of mixed lines, and judge the order of sync and answer."""

import pytest

from quantumqtt.cli.crash.syncs import Order, ack_of, judge, marker_of, read_calls


def escaped(data: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in data)


def read_line(number: int, thread: str = "7") -> str:
    data = b"\x32\x12\x00\x03a/b\x00\x01" + marker_of(number)
    return f'{thread} recvfrom(6, "{escaped(data)}", 65536, 0, NULL, NULL) = {len(data)}'


def ack_line(number: int, thread: str = "7") -> str:
    return f'{thread} sendto(6, "{escaped(ack_of(number))}", 4, MSG_NOSIGNAL, NULL, 0) = 4'


def orders(*lines: str, publishes: int = 1) -> list[Order]:
    return list(judge(list(read_calls(lines)), publishes).orders)


SYNC = "8 fdatasync(9) = 0"


def test_a_sync_between_publish_and_puback_keeps_the_promise() -> None:
    assert orders(read_line(1), SYNC, ack_line(1)) == [Order.SYNCED]


@pytest.mark.parametrize(
    "lines",
    [
        (read_line(1), ack_line(1)),
        (SYNC, read_line(1), ack_line(1)),
        (read_line(1), ack_line(1), SYNC),
        (read_line(1), "8 fdatasync(9) = -1 EIO (Input/output error)", ack_line(1)),
        (read_line(1), "8 fdatasync(9) = 0 (INJECTED)", ack_line(1)),
    ],
    ids=["none", "before", "after", "failed", "stubbed"],
)
def test_no_sync_or_one_at_the_wrong_time_breaks_it(lines: tuple[str, ...]) -> None:
    assert orders(*lines) == [Order.NOT_SYNCED]


def test_a_sync_that_began_before_the_publish_was_read_is_not_its_own() -> None:
    lines = (
        "8 fdatasync(9 <unfinished ...>",
        read_line(1),
        "8 <... fdatasync resumed>) = 0",
        ack_line(1),
    )
    assert orders(*lines) == [Order.NOT_SYNCED]


def test_a_sync_that_ended_after_the_answer_began_does_not_count() -> None:
    answer = ack_line(1)
    lines = (
        read_line(1),
        "8 fdatasync(9 <unfinished ...>",
        answer,
        "8 <... fdatasync resumed>) = 0",
    )
    assert orders(*lines) == [Order.NOT_SYNCED]


def test_calls_cut_in_two_by_other_threads_are_joined() -> None:
    data = escaped(b"\x32\x0f" + marker_of(1))
    lines = (
        "7 recvfrom(6,  <unfinished ...>",
        "9 fsync(3) = 0",
        f'7 <... recvfrom resumed>"{data}", 65536, 0, NULL, NULL) = 13',
        "8 fdatasync(9 <unfinished ...>",
        "7 epoll_wait(3, [], 64, 0) = 0",
        "8 <... fdatasync resumed>) = 0",
        ack_line(1),
    )
    assert orders(*lines) == [Order.SYNCED]


def test_each_publish_needs_its_own_sync() -> None:
    lines = (read_line(1), SYNC, ack_line(1), read_line(2), ack_line(2))
    assert orders(*lines, publishes=2) == [Order.SYNCED, Order.NOT_SYNCED]
    assert not judge(list(read_calls(lines)), 2).is_kept


def test_what_is_not_in_the_trace_is_not_judged_as_kept() -> None:
    verdict = judge(list(read_calls([read_line(1), SYNC])), 1)
    assert verdict.orders == (Order.NOT_SEEN,)
    assert not verdict.is_kept
    assert "io_uring" in verdict.text()


@pytest.mark.parametrize(
    ("line", "is_sync"),
    [
        ("8 msync(0x7f0000000000, 4096, MS_SYNC) = 0", True),
        ("8 msync(0x7f0000000000, 4096, MS_ASYNC) = 0", False),
        ('8 pwritev2(9, [{iov_base="\\x00", iov_len=1}], 1, 0, RWF_DSYNC) = 1', True),
        ('8 pwritev2(9, [{iov_base="\\x00", iov_len=1}], 1, 0, 0) = 1', False),
        ('8 pwrite64(9, "\\x00", 1, 0) = 1', False),
    ],
)
def test_other_ways_to_sync_are_known(line: str, is_sync: bool) -> None:
    expected = Order.SYNCED if is_sync else Order.NOT_SYNCED
    assert orders(read_line(1), line, ack_line(1)) == [expected]


def test_a_write_to_a_file_opened_for_synchronous_writes_is_a_sync() -> None:
    opened = '7 openat(AT_FDCWD, "\\x61", O_WRONLY|O_DSYNC) = 9'
    write = '8 pwrite64(9, "\\x00", 1, 0) = 1'
    assert orders(opened, read_line(1), write, ack_line(1)) == [Order.SYNCED]
    assert orders(opened, "7 close(9) = 0", read_line(1), write, ack_line(1)) == [Order.NOT_SYNCED]


def test_a_run_without_a_single_publish_proves_nothing() -> None:
    assert not judge([], 0).is_kept
