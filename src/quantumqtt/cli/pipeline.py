"""`quantumqtt pipeline …`: run jobs over the message log, on Spark."""

import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from quantumqtt.cli.extras import extras_explained
from quantumqtt.cli.failures import ExitCode, exit_code_of, report
from quantumqtt.errors import ConfigError, QuantuMQTTError

if TYPE_CHECKING:
    from quantumqtt.pipeline import LandProgress, LandStart

app = typer.Typer(
    help="Run jobs over the message log, on Spark.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
run_app = typer.Typer(
    help="Run one job.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(run_app, name="run")


@app.callback()
@run_app.callback()
def _group() -> None:
    """Keep these groups while each has one command."""


@run_app.command("land")
def land(
    table: Annotated[str, typer.Option(metavar="PATH", help="Folder of the table.")],
    checkpoint: Annotated[str, typer.Option(metavar="PATH", help="Folder Spark remembers in.")],
    endpoint: Annotated[
        str,
        typer.Option(
            metavar="URL", envvar="QUANTUMQTT_LOG_ENDPOINT", help="grpc:// or grpc+tls://."
        ),
    ] = "grpc://127.0.0.1:8815",
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Whose log.")] = "default",
    token: Annotated[
        str | None,
        typer.Option(metavar="WORD", envvar="QUANTUMQTT_LOG_TOKEN", help="Where one is asked for."),
    ] = None,
    tls_roots: Annotated[
        str | None, typer.Option(metavar="FILE", help="Certificates of the service's authority.")
    ] = None,
    table_format: Annotated[
        str, typer.Option("--format", metavar="NAME", help="delta or parquet.")
    ] = "delta",
    topic: Annotated[
        list[str] | None,
        typer.Option("-t", "--topic", metavar="FILTER", help="Only these; may be repeated."),
    ] = None,
    once: Annotated[
        bool,
        typer.Option(
            "--once/--continuous", help="End when what is committed now has landed, or go on."
        ),
    ] = False,
    interval: Annotated[
        float, typer.Option(metavar="S", min=0.1, help="How often to look, when going on.")
    ] = 1.0,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="local[N], spark://…, k8s://…, sc://… (default: the environment's, or local[*]).",
        ),
    ] = None,
    max_records: Annotated[
        int, typer.Option(metavar="N", min=1, help="Most rows of one batch and commit.")
    ] = 2_000_000,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Go on past rows that expired before they landed."),
    ] = False,
    conf: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
    ] = None,
    until_input_ends: Annotated[
        bool,
        typer.Option("--until-input-ends", help="End also when standard input does."),
    ] = False,
    json_wanted: Annotated[
        bool,
        typer.Option(
            "--json", help="Print JSON: where it starts, then one object per batch; no bar."
        ),
    ] = False,
) -> None:
    r"""Land every committed message in a table, raw, each exactly once.

    A run that was killed, or whose checkpoint is lost, goes on where the table ends; no batch is
    ever visible in part, or twice. Ctrl-C ends after the batch under way.

    \b
    quantumqtt pipeline run land --table lake/messages --checkpoint lake/_land --once
    """
    try:
        with extras_explained():
            from quantumqtt.logreader import LogPlace
            from quantumqtt.logreader.place import read_roots
            from quantumqtt.pipeline import LandOptions, run_land
        options = LandOptions(
            place=LogPlace(endpoint=endpoint, token=token, tls_roots=read_roots(tls_roots)),
            tls_roots=tls_roots,
            table=table,
            checkpoint=checkpoint,
            tenant=tenant,
            table_format=table_format,
            topics=tuple(topic or ()),
            once=once,
            interval_s=interval,
            master=master,
            fail_on_data_loss=not accept_loss,
            records_per_trigger=max_records,
            settings=parse_settings(conf or []),
        )
        with _stopping() as stop, _View(json_wanted=json_wanted) as view:
            if until_input_ends:
                _stop_with_input(stop)
            rows = run_land(options, on_start=view.begin, on_progress=view.show, stop=stop)
    except QuantuMQTTError as error:
        report(error)
        raise typer.Exit(exit_code_of(error)) from error
    if not json_wanted:
        print(f"{rows} rows landed in {table}")
    raise typer.Exit(ExitCode.OK)


def parse_settings(pairs: list[str]) -> dict[str, str]:
    """Read `--conf key=value`.

    Raises:
        ConfigError: One is no such pair.
    """
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise ConfigError(f"--conf {pair!r} is no setting", hint="write --conf key=value")
        settings[key] = value
    return settings


class _View:
    """One line of JSON per batch, or a bar that fills as the lag goes to nothing."""

    def __init__(self, *, json_wanted: bool) -> None:
        self._json = json_wanted
        console = Console(file=sys.stderr)
        self._bar = Progress(
            TextColumn("landing"),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            disable=json_wanted or not console.is_terminal,
        )
        self._task = self._bar.add_task("starting Spark", total=None)

    def __enter__(self) -> "_View":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, start: "LandStart") -> None:
        if self._json:
            print(json.dumps(start.as_json()), flush=True)
            return
        doing = "landing" if start.running else "starting Spark"
        self._bar.update(self._task, description=f"{doing} · {start.lag:,} behind")

    def show(self, progress: "LandProgress") -> None:
        if self._json:
            print(json.dumps(progress.as_json()), flush=True)
            return
        self._bar.update(
            self._task,
            total=progress.rows_total + progress.lag,
            completed=progress.rows_total,
            description=f"{progress.rows_total:,} rows · {progress.rows_per_s:,.0f}/s ·"
            f" batch {progress.batch_s:.1f} s · {progress.lag:,} behind",
        )


def _stop_with_input(stop: threading.Event) -> None:
    """Wish for the end when whoever holds our input is gone, however it went."""

    def read() -> None:
        with suppress(OSError):
            while sys.stdin.buffer.read(4_096):
                pass
        stop.set()

    threading.Thread(target=read, name="input", daemon=True).start()


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C or SIGTERM into a wish to end in order; a second one ends at once."""
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_SIGNALS = (signal.SIGINT, signal.SIGTERM)
