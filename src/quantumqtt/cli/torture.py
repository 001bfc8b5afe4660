"""`quantumqtt torture --cmd …`: hurt a broker, and name what it lost that it had acknowledged."""

import asyncio
import json
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from quantumqtt.cli.crash.hurt import Fault
from quantumqtt.cli.failures import report
from quantumqtt.errors import ConfigError, QuantuMQTTError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from quantumqtt.cli.crash.disk import Disk
    from quantumqtt.cli.crash.run import Outcome, Plan, Round
    from quantumqtt.cli.crash.victim import Victim

_COMMAND: Final = "quantumqtt torture"


class TortureCode(IntEnum):
    """Exit codes of this command; its own, since "did not come back" is a verdict here."""

    OK = 0
    VIOLATED = 1
    USAGE = 2
    ABSENT = 3
    INTERRUPTED = 130


def torture(
    cmd: Annotated[
        str,
        typer.Option(
            "--cmd",
            metavar="COMMAND",
            help="How to start the broker; {port}, {data} and {config} are filled in.",
        ),
    ],
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="Configuration with {port} and {data}, for {config}."
        ),
    ] = None,
    fault: Annotated[Fault, typer.Option(help="How to hurt it.")] = Fault.KILL,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, help="How often.")] = 10,
    seed: Annotated[int, typer.Option(metavar="N", help="Decides every die of the plan.")] = 1,
    clients: Annotated[
        int, typer.Option(metavar="N", min=2, help="A third publish, the others subscribe.")
    ] = 12,
    rate: Annotated[
        int, typer.Option(metavar="N", min=1, help="Publishes per second, all together.")
    ] = 1_000,
    size: Annotated[int, typer.Option(metavar="BYTES", min=64, help="Size of a payload.")] = 64,
    traffic: Annotated[
        float, typer.Option(metavar="S", min=0.1, help="Traffic before the fault, at most.")
    ] = 1.5,
    settle: Annotated[
        float, typer.Option(metavar="S", min=0.5, help="Silence after which nothing will come.")
    ] = 3.0,
    wills_within: Annotated[
        float,
        typer.Option(
            metavar="S",
            min=0,
            help="How long a broker may hold back the wills of clients that its own end cut off, "
            "which MQTT allows. Only waited for where wills are missing.",
        ),
    ] = 65.0,
    start_within: Annotated[
        float, typer.Option(metavar="S", min=0.5, help="How long a start may take.")
    ] = 60.0,
    disk_mb: Annotated[int, typer.Option(metavar="N", help="Size of the disk of disk-full.")] = 64,
    first: Annotated[bool, typer.Option("--first", help="Stop at the first bad round.")] = False,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Leave data and the broker's output in this directory."),
    ] = None,
    trace_syncs: Annotated[
        bool,
        typer.Option(
            "--trace-syncs",
            help="With --fault none: does a sync lie before each acknowledgement? Needs strace.",
        ),
    ] = False,
    json_wanted: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Hurt any broker under load and name what it lost of what it had acknowledged.

    The broker is started on a free port with an empty data directory, hurt in the midst of traffic,
    started again on the same data, and judged by an account of its own. Exit codes: 0 nothing was
    lost, 1 promises were broken, 2 wrong usage or something needed is missing, 3 the broker did not
    start or did not come back.
    """
    signal.signal(signal.SIGTERM, _on_termination)
    try:
        if trace_syncs:
            code = _trace(cmd, config, fault, json_wanted=json_wanted, seconds=start_within)
        else:
            from quantumqtt.cli.crash.ledger import Property
            from quantumqtt.cli.crash.run import Plan
            from quantumqtt.cli.crash.swarm import Shape

            plan = Plan(
                fault=fault,
                rounds=rounds,
                seed=seed,
                shape=Shape(clients=clients, rate=rate, payload_bytes=size),
                traffic_s=traffic,
                settle_s=settle,
                wills_within_s=wills_within,
                stops_at=frozenset(Property if first else ()),
            )
            code = _torture(plan, cmd, config, keep, disk_mb, start_within, json_wanted=json_wanted)
    except QuantuMQTTError as error:
        from quantumqtt.cli.crash.victim import BrokerAbsent

        report(error)
        absent = isinstance(error, BrokerAbsent)
        raise typer.Exit(TortureCode.ABSENT if absent else TortureCode.USAGE) from error
    except KeyboardInterrupt as stop:
        raise typer.Exit(TortureCode.INTERRUPTED) from stop
    raise typer.Exit(code)


def _on_termination(number: int, frame: FrameType | None) -> NoReturn:
    """Leave by the way of Ctrl-C, which ends the broker and takes mounts down.

    Raises:
        KeyboardInterrupt: Always.
    """
    del number, frame
    raise KeyboardInterrupt


def _torture(
    plan: "Plan",
    command: str,
    config: Path | None,
    keep: Path | None,
    disk_mb: int,
    start_within_s: float,
    *,
    json_wanted: bool,
) -> TortureCode:
    from quantumqtt.cli.crash.report import document, print_report
    from quantumqtt.cli.crash.victim import Victim

    with scratch(keep) as folder:
        disk = open_disk(plan.fault, folder, disk_mb)
        try:
            victim = Victim(
                command, disk.directory, folder, config=config, starts_within_s=start_within_s
            )
            outcome = _run(plan, victim, disk, watching=sys.stderr.isatty() and not json_wanted)
        finally:
            disk.close()
    again = reproduce(plan, command, config, disk_mb)
    if json_wanted:
        found = document(plan, outcome, command, again, victim.slowest_start_s)
        print(json.dumps(found, ensure_ascii=False))
    else:
        print_report(plan, outcome, again, victim.slowest_start_s)
    if outcome.absence is not None:
        report(outcome.absence)
        return TortureCode.ABSENT
    return TortureCode.VIOLATED if outcome.ledger.violations else TortureCode.OK


def _run(plan: "Plan", victim: "Victim", disk: "Disk", *, watching: bool) -> "Outcome":
    from quantumqtt.cli.crash.run import Torture

    with _progress(plan, watching=watching) as on_round:
        return asyncio.run(Torture(plan, victim, disk, on_round).run())


@contextmanager
def _progress(plan: "Plan", *, watching: bool) -> "Iterator[Callable[[Round], None]]":
    """A bar over the rounds, on terminals only."""
    if not watching:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[found]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(plan.fault.value, total=plan.rounds, found="")
        total = 0

        def on_round(done: "Round") -> None:
            nonlocal total
            total += len(done.violations)
            bar.update(task, advance=1, found=f"{total} violations" if total else "")

        yield on_round


@contextmanager
def scratch(keep: Path | None) -> Iterator[Path]:
    """A directory for data and output; it is left only where somebody asked for it."""
    if keep is not None:
        keep = keep.absolute()
        if keep.exists() and any(keep.iterdir()):
            raise ConfigError(f"--keep {keep}: it is not empty", "name a new directory")
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    folder = Path(tempfile.mkdtemp(prefix="quantumqtt-torture-"))
    # Brokers that give up root must still reach their data.
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        with suppress(OSError):
            shutil.rmtree(folder)


def open_disk(fault: Fault, folder: Path, disk_mb: int) -> "Disk":
    """Make the disk that a fault needs.

    Raises:
        StorageError: It has to be mounted, and we may not.
    """
    from quantumqtt.cli.crash.disk import PlainDisk, SmallDisk, check_size

    directory = folder / "data"
    if fault is Fault.DISK_FULL:
        return SmallDisk(directory, check_size(disk_mb))
    if fault is Fault.POWER:
        from quantumqtt.cli.crash.power_disk import PowerDisk

        return PowerDisk(directory)
    return PlainDisk(directory)


def reproduce(plan: "Plan", command: str, config: Path | None, disk_mb: int) -> str:
    """The line that does it again: the same plan; timing adds its own dice."""
    shape = plan.shape
    words = [*_COMMAND.split(), "--cmd", command]
    words += ["--config", str(config)] if config is not None else []
    words += ["--fault", plan.fault.value, "--rounds", str(plan.rounds), "--seed", str(plan.seed)]
    words += ["--clients", str(shape.clients), "--rate", str(shape.rate)]
    words += ["--size", str(shape.payload_bytes), "--traffic", f"{plan.traffic_s:g}"]
    words += ["--disk-mb", str(disk_mb)] if plan.fault is Fault.DISK_FULL else []
    return shlex.join(words)


def _trace(
    command: str, config: Path | None, fault: Fault, *, json_wanted: bool, seconds: float
) -> TortureCode:
    from quantumqtt.cli.crash.disk import PlainDisk
    from quantumqtt.cli.crash.syncs import trace_serial_run
    from quantumqtt.cli.crash.victim import Victim

    if fault is not Fault.NONE:
        raise ConfigError(
            f"--trace-syncs with --fault {fault.value}", "add --fault none: nothing is hurt there"
        )
    strace = shutil.which("strace")
    if strace is None:
        raise StorageError("--trace-syncs needs strace, which is not here", "apt install strace")
    with scratch(None) as folder:
        disk = PlainDisk(folder / "data")
        victim = Victim(command, disk.directory, folder, config=config, starts_within_s=seconds)
        verdict = asyncio.run(trace_serial_run(victim, strace))
    if json_wanted:
        print(json.dumps(verdict.document()))
    else:
        print(verdict.text())
    return TortureCode.OK if verdict.is_kept else TortureCode.VIOLATED
