"""What a query's filters let us leave unread.

Every filter goes back to Spark, which applies it again: narrowing may therefore be coarse, but it
must never lose a row. A filter that is not understood narrows nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from quantumqtt.logwire.tickets import OFFSET_MAX, TOPICS_MAX
from quantumqtt.spark.offsets import Ends

_TIME_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Condition:
    """One filter as plain data: column, comparison, value. Conditions are joined by AND."""

    column: str
    comparison: str
    value: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """Which partitions, offsets (half open), times (both ends in) and topics can matter at all."""

    partitions: frozenset[int] | None = None
    start: int = 0
    end: int = OFFSET_MAX
    since_us: int | None = None
    until_us: int | None = None
    topics: tuple[str, ...] | None = None
    nothing: bool = False


def narrow(conditions: Iterable[Condition]) -> Narrowing:
    """Collect what the conditions say together."""
    narrowing = Narrowing()
    for condition in conditions:
        narrowing = _NARROWERS.get(condition.column, _keep)(narrowing, condition)
    return narrowing


def narrow_range(
    narrowing: Narrowing, starts: Ends, ends: Ends, at_time: Callable[[int, int], int]
) -> tuple[Ends, Ends]:
    """Cut ranges to what can matter; `at_time(partition, ts_us)` asks the log."""
    new_starts: Ends = {}
    new_ends: Ends = {}
    for number in sorted(ends):
        chosen = narrowing.partitions is None or number in narrowing.partitions
        if narrowing.nothing or not chosen:
            continue
        start = max(starts.get(number, 0), narrowing.start)
        end = min(ends[number], narrowing.end)
        if narrowing.since_us is not None and start < end:
            start = max(start, at_time(number, narrowing.since_us))
        if narrowing.until_us is not None and narrowing.until_us < _TIME_MAX and start < end:
            end = min(end, at_time(number, narrowing.until_us + 1))
        if start < end:
            new_starts[number], new_ends[number] = start, end
    return new_starts, new_ends


def join_topics(asked: Sequence[str], narrowed: tuple[str, ...] | None) -> tuple[str, ...]:
    """Choose the filters to send: rows must match both lists, a ticket carries one.

    The query's own are the finer ones, and Spark checks nothing of `topicFilter`; so they replace
    it only where each lies within it word for word.
    """
    if narrowed is None:
        return tuple(asked)
    if not asked:
        return narrowed
    inside = all(any(_lies_within(fine, wide) for wide in asked) for fine in narrowed)
    return narrowed if inside else tuple(asked)


def _lies_within(fine: str, wide: str) -> bool:
    """Tell whether every topic that `fine` matches is matched by `wide`; no when in doubt."""
    levels, pattern = fine.split("/"), wide.split("/")
    if fine.startswith("$") != wide.startswith("$"):
        return False
    for at, word in enumerate(pattern):
        if word == "#":
            return True
        if at >= len(levels) or levels[at] == "#" or (word not in ("+", levels[at])):
            return False
    return len(levels) == len(pattern)


def _keep(narrowing: Narrowing, condition: Condition) -> Narrowing:
    del condition
    return narrowing


def _by_partition(narrowing: Narrowing, condition: Condition) -> Narrowing:
    numbers = _numbers(condition)
    if numbers is None:
        return narrowing
    known = narrowing.partitions
    return replace(narrowing, partitions=numbers if known is None else known & numbers)


def _numbers(condition: Condition) -> frozenset[int] | None:
    value = condition.value
    if condition.comparison == "=" and isinstance(value, int):
        return frozenset({value})
    if condition.comparison == "in" and isinstance(value, tuple | list):
        return frozenset(each for each in value if isinstance(each, int))
    return None


def _by_offset(narrowing: Narrowing, condition: Condition) -> Narrowing:
    low, high = narrowing.start, narrowing.end
    if (numbers := _numbers(condition)) is not None:
        if not numbers:
            return replace(narrowing, nothing=True)
        low, high = max(low, min(numbers)), min(high, max(numbers) + 1)
    elif isinstance(value := condition.value, int):
        if condition.comparison in (">", ">="):
            low = max(low, value + (condition.comparison == ">"))
        elif condition.comparison in ("<", "<="):
            high = min(high, value + (condition.comparison == "<="))
    return replace(narrowing, start=low, end=max(low, high))


def _by_time(narrowing: Narrowing, condition: Condition) -> Narrowing:
    value = condition.value
    if not isinstance(value, datetime) or value.tzinfo is None:
        return narrowing
    # Whole microseconds by integers: a float of this size is off by one now and then.
    since_epoch = value - _EPOCH
    ts_us = (since_epoch.days * 86_400 + since_epoch.seconds) * 1_000_000 + since_epoch.microseconds
    since, until = narrowing.since_us, narrowing.until_us
    if condition.comparison in (">", ">=", "="):
        since = ts_us if since is None else max(since, ts_us)
    if condition.comparison in ("<", "<=", "="):
        until = ts_us if until is None else min(until, ts_us)
    return replace(narrowing, since_us=since, until_us=until)


def _by_topic(narrowing: Narrowing, condition: Condition) -> Narrowing:
    value = condition.value
    if condition.comparison == "=" and isinstance(value, str):
        topics: tuple[object, ...] = (value,)
    elif condition.comparison == "in" and isinstance(value, tuple | list):
        topics = tuple(value)
    elif condition.comparison == "starts with" and isinstance(value, str) and "/" in value:
        # Whole levels only: "plant/a" may go on as "plant/ab", so it is asked for as "plant/#".
        topics = (value[: value.rindex("/") + 1] + "#",)
    else:
        return narrowing
    filters = tuple(each for each in topics if isinstance(each, str) and _is_literal(each))
    if len(filters) < len(topics) or not filters or len(filters) > TOPICS_MAX:
        return narrowing
    # The first that is found stays; AND of two lists could only be finer still.
    return replace(narrowing, topics=narrowing.topics or filters)


def _is_literal(topic: str) -> bool:
    name = topic.removesuffix("/#")
    return bool(name) and not any(letter in name for letter in "+#\0")


_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_NARROWERS: Final[dict[str, Callable[[Narrowing, Condition], Narrowing]]] = {
    "partition": _by_partition,
    "offset": _by_offset,
    "ts": _by_time,
    "topic": _by_topic,
}
