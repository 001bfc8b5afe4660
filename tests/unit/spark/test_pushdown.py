"""What filters let us leave unread: never a row that the query wants."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from quantumqtt.logwire import PartitionRange
from quantumqtt.spark.pushdown import Condition, join_topics, narrow, narrow_range

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TOPICS = ["a", "a/b", "a/bc", "b/c"]
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda x, y: x == y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    "in": lambda x, y: x in y,
    "starts with": lambda x, y: x.startswith(y),
}


def numbers(column: str, top: int) -> st.SearchStrategy[Condition]:
    one = st.integers(0, top)
    ordered = st.sampled_from(["=", ">", ">=", "<", "<="])
    return st.one_of(
        st.builds(Condition, st.just(column), ordered, one),
        st.builds(Condition, st.just(column), st.just("in"), st.lists(one, max_size=3)),
    )


CONDITIONS = st.lists(
    st.one_of(
        numbers("offset", 50),
        numbers("partition", 2),
        st.builds(
            lambda comparison, second: Condition(
                "ts", comparison, EPOCH + timedelta(seconds=second)
            ),
            st.sampled_from(["=", ">", ">=", "<", "<="]),
            st.integers(0, 50),
        ),
        st.builds(Condition, st.just("topic"), st.just("="), st.sampled_from(TOPICS)),
        st.builds(
            Condition,
            st.just("topic"),
            st.just("in"),
            st.lists(st.sampled_from(TOPICS), min_size=1, max_size=3),
        ),
        st.builds(
            Condition, st.just("topic"), st.just("starts with"), st.sampled_from(["a", "a/", "a/b"])
        ),
        st.builds(Condition, st.just("client_id"), st.just("="), st.just("c")),
    ),
    max_size=4,
)


def matches(topic: str, topics: tuple[str, ...] | None) -> bool:
    if topics is None:
        return True
    return any(
        topic == each or (each.endswith("/#") and f"{topic}/".startswith(each[:-1]))
        for each in topics
    )


@given(CONDITIONS)
def test_no_row_that_the_query_wants_is_left_unread(conditions: list[Condition]) -> None:
    rows: list[dict[str, Any]] = [
        {
            "partition": p,
            "offset": o,
            "ts": EPOCH + timedelta(seconds=o),
            "topic": TOPICS[o % 4],
            "client_id": "c",
        }
        for p in range(3)
        for o in range(5, 50)
    ]
    wanted = [
        row
        for row in rows
        if all(COMPARE[c.comparison](row[c.column], c.value) for c in conditions)
    ]
    narrowing = narrow(conditions)
    held = {number: PartitionRange(earliest=5, end=50) for number in range(3)}
    starts, ends = narrow_range(
        narrowing,
        {number: rows.earliest for number, rows in held.items()},
        {number: rows.end for number, rows in held.items()},
        lambda _, ts_us: min(50, max(5, -(-ts_us // 1_000_000))),
    )
    read = [
        row
        for row in rows
        if row["partition"] in ends
        and starts[row["partition"]] <= row["offset"] < ends[row["partition"]]
        and matches(str(row["topic"]), narrowing.topics)
    ]
    assert all(row in read for row in wanted)


def test_bounds_are_exact_where_they_can_be() -> None:
    narrowing = narrow([Condition("offset", ">=", 10), Condition("offset", "<", 20)])
    assert narrow_range(narrowing, {0: 0}, {0: 100}, lambda *_: 0) == ({0: 10}, {0: 20})
    nothing = narrow([Condition("offset", "in", [])])
    assert narrow_range(nothing, {0: 0}, {0: 100}, lambda *_: 0) == ({}, {})
    one = narrow([Condition("partition", "=", 1)])
    assert narrow_range(one, {0: 0, 1: 0}, {0: 9, 1: 9}, lambda *_: 0) == ({1: 0}, {1: 9})


def test_topics_of_the_query_replace_the_option_only_where_they_lie_within_it() -> None:
    assert join_topics((), ("a/b",)) == ("a/b",)
    assert join_topics(("a/#",), None) == ("a/#",)
    assert join_topics(("a/#", "b/+"), ("a/b", "b/c")) == ("a/b", "b/c")
    assert join_topics(("a/+",), ("a/b/c",)) == ("a/+",)
    assert join_topics(("a/+",), ("a/#",)) == ("a/+",)
    assert join_topics(("#",), ("$SYS/x",)) == ("#",)
