"""Many measurements in turn: brokers alternate, progress is shown, nothing is measured twice."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bench.brokers import ALL, Broker, by_name
from bench.generator import RunFailed
from bench.measure import Load, measure
from bench.results import Record, Sample


@dataclass(frozen=True, slots=True)
class Task:
    """A load that some brokers are put to."""

    name: str
    load: Load
    brokers: Sequence[Broker]


def choose_brokers(names: Sequence[str]) -> tuple[list[Broker], list[Broker]]:
    """Tell the brokers that are installed from those that are not.

    Raises:
        StopIteration: There is no broker of that name.
    """
    wanted = [by_name(name) for name in names] if names else list(ALL)
    present = [broker for broker in wanted if broker.program() is not None]
    return present, [broker for broker in wanted if broker not in present]


def measure_all(record: Record, tasks: Sequence[Task], repeats: int) -> None:
    """Measure what the record does not have yet.

    The outermost loop is that of the repeats, so that a disturbance of the machine hits one repeat
    of everything and not every repeat of one thing; and who comes first changes each time.
    """
    # Brokers must not outlive us: a wish to end unwinds like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    missing = [
        (task, broker, repeat)
        for repeat in range(repeats)
        for task in tasks
        for broker in _turned(task.brokers, repeat)
        if not record.has((task.name, broker.name, repeat))
    ]
    columns = (
        MofNCompleteColumn(),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=len(missing))
        for task, broker, repeat in missing:
            progress.update(bar, description=f"{task.name} · {broker.name}")
            sample = _measured(task, broker, repeat)
            if sample.error is not None:
                progress.console.print(f"{task.name} · {broker.name}: {sample.error}")
            record.add(sample)
            progress.advance(bar)


def _turned(brokers: Sequence[Broker], repeat: int) -> list[Broker]:
    at = repeat % max(len(brokers), 1)
    return [*brokers[at:], *brokers[:at]]


def _measured(task: Task, broker: Broker, repeat: int) -> Sample:
    try:
        figures, reports = measure(broker, task.load)
    except (RunFailed, RuntimeError, OSError) as error:
        return Sample(task.name, broker.name, repeat, error=str(error))
    return Sample(task.name, broker.name, repeat, figures, reports)
