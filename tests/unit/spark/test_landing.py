"""Which files of a batch a table takes in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantumqtt.errors import LandingConflict, SinkError
from quantumqtt.spark.landing import LandedFile, plan_commit


def file(first: int, end: int, partition: int = 0, tenant: str = "t") -> LandedFile:
    return LandedFile(
        path=f"{tenant}/{partition}/{first}",
        size=1,
        tenant=tenant,
        partition=partition,
        date="2026-11-19",
        rows=end - first,
        first=first,
        last=end - 1,
        first_us=0,
        last_us=0,
    )


def test_new_files_move_the_end_of_their_partition() -> None:
    plan = plan_commit([file(20, 30), file(10, 20), file(0, 5, 1)], {("t", 0): 10})
    assert plan.ends == {("t", 0): 30, ("t", 1): 5}
    assert [one.first for one in plan.files] == [10, 20, 0]
    assert plan.left_out == ()


def test_batch_that_is_run_again_is_left_out() -> None:
    batch = [file(0, 10), file(10, 20)]
    first = plan_commit(batch, {})
    again = plan_commit(batch, first.ends)
    assert again.files == ()
    assert again.ends == {}
    assert again.left_out == tuple(batch)


def test_rows_that_a_filter_left_out_make_no_gap() -> None:
    assert plan_commit([file(57, 90)], {("t", 0): 12}).ends == {("t", 0): 90}


@pytest.mark.parametrize("landed", [1, 5, 9])
def test_half_a_batch_is_a_conflict(landed: int) -> None:
    with pytest.raises(LandingConflict, match=f"ends at offset {landed}"):
        plan_commit([file(0, 10)], {("t", 0): landed})


def test_overlapping_files_of_one_batch_are_refused() -> None:
    with pytest.raises(SinkError, match="two files of one batch hold offset 9"):
        plan_commit([file(0, 10), file(9, 12)], {})


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=20),
    st.data(),
)
def test_every_row_lands_once_whatever_is_run_again(sizes: list[int], data: st.DataObject) -> None:
    """Batches as a checkpoint plans them; after each, the last one may be run again."""
    ends: dict[tuple[str, int], int] = {}
    landed: list[int] = []
    at = 0
    for size in sizes:
        cut = data.draw(st.integers(0, size - 1))
        batch = [file(at + a, at + b) for a, b in ((0, cut), (cut, size)) if a < b]
        for _ in range(data.draw(st.integers(1, 3))):
            plan = plan_commit(batch, ends)
            ends.update(plan.ends)
            landed += [o for one in plan.files for o in range(one.first, one.last + 1)]
        at += size
    assert landed == list(range(at))
