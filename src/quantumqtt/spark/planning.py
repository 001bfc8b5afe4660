"""What to read next: pure plans over ranges of offsets.

Nothing here asks the log, reads a clock or knows Spark; what the log holds comes in as an argument.
A plan is a function of its arguments, so a batch that Spark runs again reads the same rows.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from quantumqtt.errors import OffsetExpired, SliceUnavailable, UnknownPartition
from quantumqtt.logwire import PartitionRange
from quantumqtt.spark.offsets import Ends
from quantumqtt.spark.options import EARLIEST, LATEST, Moment, Positions

Held = Mapping[int, PartitionRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlice:
    """What one task reads: offsets `start` up to, not including, `end`."""

    tenant: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Rows that retention took before they were read."""

    partition: int
    start: int
    end: int


def resolve(
    positions: Positions, held: Held, *, tenant: str, at_time: Callable[[int, int], int]
) -> Ends:
    """Turn positions into offsets; `at_time(partition, ts_us)` asks the log.

    A named partition that the log does not have, or an offset past its end, is refused: it is a
    slip, or another log. An offset before the earliest row is left for `check_held` to judge.
    """
    for number, _ in positions.each:
        if number not in held:
            raise UnknownPartition(
                f"offsets name partition {number}, which tenant {tenant} does not have",
                hint=f"it has {', '.join(map(str, sorted(held))) or 'none yet'}",
                tenant=tenant,
                partition=number,
            )
    ends: Ends = {}
    for number, rows in held.items():
        position = positions.of(number)
        if position == EARLIEST:
            ends[number] = rows.earliest
        elif position == LATEST:
            ends[number] = rows.end
        elif isinstance(position, Moment):
            ends[number] = at_time(number, position.ts_us)
        else:
            assert isinstance(position, int), "words were settled above"
            ends[number] = position
            if position > rows.end:
                raise past_end(tenant, number, position, rows)
    return ends


def check_held(
    starts: Ends, held: Held, *, tenant: str, fail_on_loss: bool
) -> tuple[Ends, tuple[Loss, ...]]:
    """See that the log still holds what is to be read next; move starts past what it lost.

    A partition that appeared since counts as read up to 0: what it lost before it was first seen
    is a loss as well.

    Raises:
        OffsetExpired: Retention was quicker, and that is to stop the query.
        SliceUnavailable: The log is shorter than what was read of it already: another log.
        UnknownPartition: It has lost a partition altogether.
    """
    moved = {**dict.fromkeys(held, 0), **starts}
    losses: list[Loss] = []
    for number, start in sorted(moved.items()):
        rows = held.get(number)
        if rows is None:
            raise UnknownPartition(
                f"tenant {tenant} has no partition {number} any more; it was read up to {start}",
                hint="the checkpoint belongs to another log; use a new one",
                tenant=tenant,
                partition=number,
            )
        if start > rows.end:
            raise past_end(tenant, number, start, rows)
        if start < rows.earliest:
            if fail_on_loss:
                raise expired(tenant, number, start, rows)
            losses.append(Loss(partition=number, start=start, end=rows.earliest))
            moved[number] = rows.earliest
    return moved, tuple(losses)


def advance(
    starts: Ends, held: Held, *, rows_max: int | None = None, bytes_max: int | None = None
) -> Ends:
    """Choose where the next micro-batch ends.

    `starts` come from `check_held`. Under a limit every partition with rows gets an equal share,
    and what some do not use goes to the others: a short partition is never starved by a long one.
    At least one row is read when there is one, whatever the limit, or a single large record would
    stop the stream for ever.
    """
    waiting = {number: max(0, rows.end - starts[number]) for number, rows in held.items()}
    budget = rows_max
    if bytes_max is not None:
        by_bytes = _rows_of_bytes(waiting, held, bytes_max)
        budget = by_bytes if budget is None else min(budget, by_bytes)
    taken = waiting if budget is None else _share(waiting, max(1, budget))
    return {number: starts[number] + taken.get(number, 0) for number in sorted(starts)}


def split(starts: Ends, ends: Ends, *, tenant: str, rows_per_task: int) -> list[LogSlice]:
    """Cut what lies between into slices of nearly equal size, in order, none empty or too long."""
    slices: list[LogSlice] = []
    for number in sorted(ends):
        start, end = starts.get(number, 0), ends[number]
        count = max(0, end - start)
        parts = -(-count // rows_per_task)
        cuts = [start + count * part // parts for part in range(parts + 1)] if parts else []
        slices += [
            LogSlice(tenant=tenant, partition=number, start=a, end=b) for a, b in pairwise(cuts)
        ]
    return slices


def clip(starts: Ends, held: Held, target: Ends) -> tuple[Ends, Held]:
    """Look at the log as it was when a target was fixed: what came later is not there yet.

    A start past its target (a checkpoint of a later run) stays: nothing is read backwards.
    """
    then = {
        number: PartitionRange(
            earliest=rows.earliest,
            end=max(starts[number], min(rows.end, target[number])),
            bytes=rows.bytes,
        )
        for number, rows in held.items()
        if number in target
    }
    return {number: starts[number] for number in then}, then


def lag(ends: Ends, held: Held) -> int:
    """Count the committed rows that have not been read."""
    return sum(max(0, rows.end - ends.get(number, rows.earliest)) for number, rows in held.items())


def past_end(tenant: str, partition: int, offset: int, rows: PartitionRange) -> SliceUnavailable:
    """Say that an offset is not there."""
    return SliceUnavailable(
        f"{tenant}/{partition}: offset {offset} is past the end of the log, {rows.end}",
        hint="the log was replaced or restored; start with a new checkpoint and startingOffsets",
        tenant=tenant,
        partition=partition,
        start=offset,
        earliest=rows.earliest,
        end=rows.end,
    )


def expired(tenant: str, partition: int, start: int, rows: PartitionRange) -> OffsetExpired:
    """Say that rows are gone."""
    return OffsetExpired(
        f"{tenant}/{partition}: offsets {start} to {rows.earliest - 1} have expired unread",
        hint="set failOnDataLoss to false to go on without them; longer retention, or a pipeline"
        " that keeps up, prevents it",
        tenant=tenant,
        partition=partition,
        start=start,
        earliest=rows.earliest,
        end=rows.end,
    )


def _rows_of_bytes(waiting: Mapping[int, int], held: Held, bytes_max: int) -> int:
    # The log tells bytes per partition; their mean is the best guess for rows not yet seen.
    count = sum(rows.count for number, rows in held.items() if waiting[number])
    size = sum(rows.bytes for number, rows in held.items() if waiting[number])
    return bytes_max * count // size if size else sum(waiting.values())


def _share(waiting: Mapping[int, int], budget: int) -> dict[int, int]:
    taken: dict[int, int] = {}
    hungry: Iterable[int] = sorted(waiting, key=lambda number: (waiting[number], number))
    left = len(waiting)
    for number in hungry:
        # Shortest first: each takes at most an equal part of what is left for those behind it.
        # Rounding up puts the odd rows at the front, so that a budget of 1 is still spent.
        taken[number] = min(waiting[number], -(-budget // left))
        budget -= taken[number]
        left -= 1
    return taken
