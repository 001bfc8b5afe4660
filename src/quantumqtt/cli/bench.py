"""`quantumqtt bench`: load a broker, and check what it does with it.

The letters are those of emqtt_bench where it has them. The generator is native
(`crates/load`); here stand the words, the progress bar and the verdict.
"""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Annotated, Final, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from quantumqtt._core import LoadProgress, run_load
from quantumqtt.cli.bench_plan import RunPlan, Scenario, Wish, in_words_of_options, plan_run
from quantumqtt.cli.bench_report import Outcome
from quantumqtt.cli.failures import ExitCode, exit_code_of, report
from quantumqtt.errors import ConfigError, QuantuMQTTError

_RATE_WINDOW_S: Final = 0.5
_LABEL_WIDTH: Final = 14


def bench(
    scenario: Annotated[Scenario, typer.Argument(help="The shape of the traffic, see above.")],
    host: Annotated[
        str, typer.Option("-h", "--host", metavar="NAME", help="The broker.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("-p", "--port", metavar="N", min=1, max=65535, help="Its port.")
    ] = 1883,
    version: Annotated[
        str, typer.Option("-V", "--version", metavar="3|4|5", help="MQTT 3.1, 3.1.1 or 5.0.")
    ] = "5",
    count: Annotated[
        int | None,
        typer.Option(
            "-c",
            "--count",
            metavar="N",
            min=1,
            help="Publishers, or all clients where there is one kind.",
        ),
    ] = None,
    subscribers: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Subscribers of fan-in (default: 1) and fan-out (default: 50)."
        ),
    ] = None,
    startnumber: Annotated[
        int, typer.Option("-n", "--startnumber", metavar="N", min=0, help="What %i counts from.")
    ] = 0,
    interval: Annotated[
        int,
        typer.Option(
            "-i", "--interval", min=0, metavar="MS", help="Pause between connects; 0: none."
        ),
    ] = 0,
    interval_of_msg: Annotated[
        float | None,
        typer.Option(
            "-I",
            "--interval_of_msg",
            min=0,
            metavar="MS",
            help="Open loop: each publisher sends once per so many milliseconds.",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="PER_S",
            help="Open loop: messages per second over all publishers (default for latency: 5000).",
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "-t",
            "--topic",
            metavar="TOPIC",
            help="%i is the client's number, %c its id, %u the user name"
            " (default: bench/RUN/%i, for sub bench/#).",
        ),
    ] = None,
    topics: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Topics each publisher rotates over, as one more level."
        ),
    ] = 1,
    size: Annotated[
        int, typer.Option("-s", "--size", min=0, metavar="BYTES", help="Payload.")
    ] = 64,
    qos: Annotated[
        int,
        typer.Option(
            "-q", "--qos", metavar="0|1|2", min=0, max=2, help="Of publishes and subscriptions."
        ),
    ] = 0,
    window: Annotated[
        int | None,
        typer.Option(
            "-F",
            "--inflight",
            "--window",
            metavar="N",
            min=0,
            help="Closed loop: messages under way per publisher, at QoS 0 until they are delivered;"
            " 0: as many as TCP takes (default: 1000 at QoS 0, else 100)."
            " For conn and idle: connects under way (default: 64).",
        ),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            "-L",
            "--limit",
            metavar="N",
            min=0,
            help="Messages (conn: connects) of all clients together, rounded up to a whole number"
            " each; 0: until --duration.",
        ),
    ] = 0,
    duration: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="S", help="How long to publish (default: 10 without -L; conn: no churn)."
        ),
    ] = None,
    retain: Annotated[
        str, typer.Option("-r", "--retain", metavar="true|false", help="Publish with RETAIN.")
    ] = "false",
    clean: Annotated[
        str,
        typer.Option(
            "-C",
            "--clean",
            metavar="true|false",
            help="false gives subscribers persistent sessions; the run ends them again.",
        ),
    ] = "true",
    session_expiry: Annotated[
        int | None,
        typer.Option(
            "-x",
            "--session-expiry",
            min=0,
            metavar="S",
            help="Expiry of persistent sessions at MQTT 5 (default: 3600).",
        ),
    ] = None,
    keepalive: Annotated[
        int, typer.Option("-k", "--keepalive", min=0, max=65535, metavar="S", help="Keep alive.")
    ] = 300,
    username: Annotated[
        str | None, typer.Option("-u", "--username", metavar="NAME", help="User of every client.")
    ] = None,
    password: Annotated[
        str | None, typer.Option("-P", "--password", metavar="WORD", help="Its password.")
    ] = None,
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="What client ids begin with.")
    ] = "bench",
    ifaddr: Annotated[
        str | None,
        typer.Option(
            metavar="IP,IP",
            help="Addresses to connect from in turn; one has ports for some 28 000 connections.",
        ),
    ] = None,
    single_writes: Annotated[
        bool, typer.Option("--single-writes", help="Every PUBLISH in a write of its own.")
    ] = False,
    threads: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Threads of the generator; a topic stays on one."),
    ] = 1,
    patience: Annotated[
        float,
        typer.Option(min=0.1, metavar="S", help="Wait so long without progress before giving up."),
    ] = 5.0,
    broker_pid: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="PID", help="Report CPU and memory of the broker's process here."
        ),
    ] = None,
    json_wanted: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    r"""Load a broker, check every message, report what it cost.

    \b
    conn      connect -c clients once each; with --duration or -L again and again
    pub       publish to nobody in particular
    sub       subscribe and count what others publish
    pairs     every publisher has a subscriber of its own
    fan-in    many publishers, few subscribers that hear them all
    fan-out   few publishers, many subscribers that hear them all
    idle      connect clients and leave them alone: memory per connection
    latency   pairs at a fixed rate; waiting in the generator counts as latency

    Every message carries its publisher, its number and its time; subscribers notice what is lost,
    repeated, late, altered or misled. A message under way in a closed loop makes room for the next
    only when it is acknowledged or, at QoS 0, delivered.

    \b
    Ends with 0 when every promise of the chosen QoS was kept, 3 when one was not, 2 when the run
    could not begin, 1 when it did not end by itself, 130 after Ctrl-C.
    Only the one named host is contacted, and for no longer than --duration and an hour.

    \b
    quantumqtt bench pairs -c 10 -q 1 -F 100 --duration 5 --broker-pid $(pidof mosquitto)
    quantumqtt bench latency --rate 5000 -q 1 --json
    """
    wish = Wish(
        scenario=scenario,
        host=host,
        port=port,
        version=version,
        count=count,
        subscribers=subscribers,
        start_number=startnumber,
        interval_ms=interval,
        message_interval_ms=interval_of_msg,
        rate=rate,
        topic=topic,
        topics=topics,
        payload_bytes=size,
        qos=qos,
        window=window,
        limit=limit,
        duration_s=duration,
        retain=retain,
        clean=clean,
        expiry_s=session_expiry,
        keep_alive_s=keepalive,
        user_name=username,
        password=password,
        prefix=prefix,
        source_addresses=ifaddr,
        single_writes=single_writes,
        threads=threads,
        patience_s=patience,
        broker_pid=broker_pid,
    )
    try:
        outcome = run(plan_run(wish))
    except ConfigError as error:
        report(in_words_of_options(error))
        raise typer.Exit(ExitCode.USAGE) from error
    except QuantuMQTTError as error:
        report(error)
        raise typer.Exit(exit_code_of(error)) from error
    if json_wanted:
        print(json.dumps(outcome.document()))
    else:
        show(outcome, Console(soft_wrap=True, highlight=False))
    raise typer.Exit(exit_code(outcome))


def run(plan: RunPlan) -> Outcome:
    """Make the run, with a live view when somebody watches."""
    spec = plan.native()
    console = Console(file=sys.stderr)
    with _live_view(plan, console) as view, _Interruption() as interruption:

        def on_progress(progress: LoadProgress) -> bool:
            view.show(progress)
            return not interruption.wanted

        made = run_load(spec, on_progress)
    return Outcome(plan, made, interrupted=interruption.wanted)


def exit_code(outcome: Outcome) -> ExitCode:
    """Tell a broken promise from a run that did not end by itself."""
    if outcome.interrupted:
        return ExitCode.INTERRUPTED
    if not outcome.judged:
        return ExitCode.FAILED
    return ExitCode.VIOLATED if outcome.broken else ExitCode.OK


def show(outcome: Outcome, console: Console) -> None:
    """Print the summary, coloured only on a terminal."""
    for label, words in outcome.lines():
        style = "bold red" if label == "verdict" and outcome.broken else "none"
        console.print(Text(f"{label:<{_LABEL_WIDTH}} ", style="cyan").append(words, style=style))


class _Interruption:
    """Turns the first Ctrl-C into a wish to end in order; a second one ends at once."""

    def __init__(self) -> None:
        self.wanted = False

    def __enter__(self) -> "_Interruption":
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True


@dataclass(slots=True)
class RateMeter:
    """Events per second over the last moments."""

    elapsed_s: float = 0.0
    count: int = 0
    per_second: float = 0.0

    def update(self, elapsed_s: float, count: int) -> float:
        """Take a reading; the rate changes when enough time has passed since the last."""
        passed_s = elapsed_s - self.elapsed_s
        if passed_s < 0:
            self.elapsed_s, self.count, self.per_second = elapsed_s, count, 0.0
        elif passed_s >= _RATE_WINDOW_S:
            self.per_second = (count - self.count) / passed_s
            self.elapsed_s, self.count = elapsed_s, count
        return self.per_second


class _View:
    """The bar: first how many clients are connected, then how much is done."""

    def __init__(self, plan: RunPlan, progress: Progress) -> None:
        self._plan = plan
        self._progress = progress
        self._stage: Literal["connecting", "measuring"] | None = None
        self._task: TaskID | None = None
        self._meter = RateMeter()

    def show(self, now: LoadProgress) -> None:
        """Move the bar."""
        total, done, counted, noun = self._figures(now)
        if self._task is None or now.stage != self._stage:
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._stage, self._meter = now.stage, RateMeter()
            self._task = self._progress.add_task(now.stage, total=total, words="")
        words = f"{self._meter.update(now.elapsed_s, counted):,.0f} {noun}/s"
        self._progress.update(self._task, completed=done, words=words)

    def _figures(self, now: LoadProgress) -> tuple[float, float, int, str]:
        plan, scenario = self._plan, self._plan.wish.scenario
        if now.stage == "connecting" or scenario is Scenario.CONN:
            churns = plan.messages_each > 0
            total = plan.publishers * plan.messages_each if churns else plan.clients
            if plan.duration_s and now.stage == "measuring":
                return plan.duration_s, now.elapsed_s, now.connected, "connects"
            return total, now.connected, now.connected, "connects"
        counted = now.sent if scenario is Scenario.PUB else now.received
        if plan.duration_s:
            return plan.duration_s, min(now.elapsed_s, plan.duration_s), counted, "messages"
        total = max(plan.publishers, plan.subscribers) * plan.messages_each
        return total, now.sent or now.received, counted, "messages"


@contextmanager
def _live_view(plan: RunPlan, console: Console) -> Iterator[_View]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[words]}"),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        yield _View(plan, progress)
