"""What to read next, for every log and every limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantumqtt.errors import OffsetExpired, SliceUnavailable, SourceError, UnknownPartition
from quantumqtt.logwire import PartitionRange
from quantumqtt.spark import offsets
from quantumqtt.spark.options import Moment, Positions
from quantumqtt.spark.planning import advance, check_held, clip, lag, resolve, split

Held = dict[int, PartitionRange]


@st.composite
def logs(draw: st.DrawFn) -> Held:
    """Some partitions, some of them expired, some empty."""
    held: Held = {}
    for number in draw(st.sets(st.integers(0, 9), max_size=5)):
        earliest = draw(st.integers(0, 10_000))
        count = draw(st.integers(0, 10_000))
        size = draw(st.sampled_from([0, count * 100]))
        held[number] = PartitionRange(earliest=earliest, end=earliest + count, bytes=size)
    return held


@st.composite
def logs_and_starts(draw: st.DrawFn) -> tuple[Held, offsets.Ends]:
    held = draw(logs())
    return held, {n: draw(st.integers(rows.earliest, rows.end)) for n, rows in held.items()}


@given(
    logs_and_starts(),
    st.one_of(st.none(), st.integers(1, 30_000)),
    st.one_of(st.none(), st.integers(1, 3_000_000)),
)
def test_a_batch_never_goes_back_past_the_end_or_over_its_limit(
    log: tuple[Held, offsets.Ends], rows_max: int | None, bytes_max: int | None
) -> None:
    held, starts = log
    ends = advance(starts, held, rows_max=rows_max, bytes_max=bytes_max)
    assert set(ends) == set(held)
    assert all(starts[n] <= ends[n] <= held[n].end for n in held)
    taken = sum(ends[n] - starts[n] for n in held)
    waiting = sum(held[n].end - starts[n] for n in held)
    if rows_max is not None:
        assert taken <= rows_max
        if bytes_max is None:
            assert taken == min(waiting, rows_max)
    assert (taken > 0) == (waiting > 0)


@given(logs_and_starts(), st.integers(1, 5_000))
def test_batches_reach_the_end_in_as_few_steps_as_the_limit_allows(
    log: tuple[Held, offsets.Ends], rows_max: int
) -> None:
    held, starts = log
    waiting = lag(starts, held)
    steps = 0
    while lag(starts, held):
        starts = advance(starts, held, rows_max=rows_max)
        steps += 1
    assert steps == -(-waiting // rows_max)


def test_a_short_partition_is_not_starved_by_a_long_one() -> None:
    held = {0: PartitionRange(earliest=0, end=1_000_000), 1: PartitionRange(earliest=0, end=10)}
    assert advance({0: 0, 1: 0}, held, rows_max=100) == {0: 90, 1: 10}


def test_bytes_are_turned_into_rows_by_their_mean() -> None:
    held = {0: PartitionRange(earliest=0, end=1_000, bytes=100_000)}
    assert advance({0: 0}, held, bytes_max=5_000) == {0: 50}
    # One row larger than the whole limit still goes on.
    assert advance({0: 0}, held, bytes_max=5) == {0: 1}


@given(
    st.dictionaries(
        st.integers(0, 9), st.tuples(st.integers(0, 10_000), st.integers(0, 5_000)), max_size=5
    ),
    st.integers(1, 3_000),
)
def test_slices_cover_each_range_once_in_order_and_evenly(
    ranges: dict[int, tuple[int, int]], rows_per_task: int
) -> None:
    starts = {number: start for number, (start, _) in ranges.items()}
    ends = {number: start + count for number, (start, count) in ranges.items()}
    slices = split(starts, ends, tenant="t", rows_per_task=rows_per_task)
    for number, start in starts.items():
        mine = [(one.start, one.end) for one in slices if one.partition == number]
        at = start
        for first, end in mine:
            assert first == at
            assert 0 < end - first <= rows_per_task
            at = end
        assert at == ends[number]
        sizes = {end - first for first, end in mine}
        assert not sizes or max(sizes) - min(sizes) <= 1


def test_partition_that_appeared_is_read_from_0_and_its_losses_count() -> None:
    held = {0: PartitionRange(earliest=0, end=5), 3: PartitionRange(earliest=7, end=9)}
    starts, losses = check_held({0: 2}, held, tenant="t", fail_on_loss=False)
    assert starts == {0: 2, 3: 7}
    assert [(loss.partition, loss.start, loss.end) for loss in losses] == [(3, 0, 7)]
    with pytest.raises(OffsetExpired) as caught:
        check_held({0: 2}, held, tenant="t", fail_on_loss=True)
    assert (caught.value.partition, caught.value.start, caught.value.earliest) == (3, 0, 7)


def test_log_that_is_shorter_or_lacks_a_partition_is_another_log() -> None:
    held = {0: PartitionRange(earliest=0, end=5)}
    with pytest.raises(SliceUnavailable, match="past the end"):
        check_held({0: 6}, held, tenant="t", fail_on_loss=False)
    with pytest.raises(UnknownPartition, match="any more"):
        check_held({0: 1, 1: 1}, held, tenant="t", fail_on_loss=False)


@given(logs_and_starts(), logs())
def test_a_fixed_target_hides_what_came_later(log: tuple[Held, offsets.Ends], later: Held) -> None:
    held, starts = log
    target = {number: rows.end for number, rows in held.items()}
    grown = {
        **{n: PartitionRange(earliest=0, end=rows.end) for n, rows in later.items()},
        **{n: PartitionRange(earliest=r.earliest, end=r.end + 100) for n, r in held.items()},
    }
    seen_starts, seen = clip({**dict.fromkeys(grown, 0), **starts}, grown, target)
    assert advance(seen_starts, seen) == target


def test_positions_become_offsets() -> None:
    held = {n: PartitionRange(earliest=10, end=20) for n in range(4)}
    positions = Positions("earliest", ((1, "latest"), (2, 15), (3, Moment(99))))
    asked: list[tuple[int, int]] = []

    def at_time(partition: int, ts_us: int) -> int:
        asked.append((partition, ts_us))
        return 17

    ends = resolve(positions, held, tenant="t", at_time=at_time)
    assert ends == {0: 10, 1: 20, 2: 15, 3: 17}
    assert asked == [(3, 99)]


def test_positions_the_log_does_not_have_are_refused() -> None:
    held = {0: PartitionRange(earliest=10, end=20)}

    def never(partition: int, ts_us: int) -> int:
        raise AssertionError("nobody asked for a time")

    with pytest.raises(SliceUnavailable):
        resolve(Positions("earliest", ((0, 21),)), held, tenant="t", at_time=never)
    with pytest.raises(UnknownPartition, match="partition 5"):
        resolve(Positions("earliest", ((5, 1),)), held, tenant="t", at_time=never)


@given(st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), max_size=20))
def test_offsets_have_one_spelling_and_come_back(ends: dict[int, int]) -> None:
    spelled = offsets.spell(ends)
    assert offsets.read(spelled) == ends
    assert list(spelled) == ["v", "p"]
    partitions = spelled["p"]
    assert isinstance(partitions, dict)
    assert [int(number) for number in partitions] == sorted(ends)


@pytest.mark.parametrize(
    "offset",
    [{}, {"v": 2, "p": {}}, {"v": 1}, {"v": 1, "p": {"a": 1}}, {"v": 1, "p": {"0": -1}}],
)
def test_offset_of_another_kind_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(SourceError):
        offsets.read(offset)
