"""`quantumqtt up`: a broker, its pipeline, and, if wished, devices that give both something to do.

The broker is the one of `serve`, in this process, with the same flags. The pipeline is a child
process (Spark brings a JVM, and neither of them may ever take the broker with it); what it reports
is told on `/metrics`, `/v1/statistics` and under `$SYS/broker/pipeline/`. One Ctrl-C ends it all:
devices and pipeline first, while the log can still be read, then the broker, in order.
"""

import asyncio
import inspect
import logging
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from quantumqtt.cli.demo import Fleet
from quantumqtt.cli.serve import Company, Invocation, Surroundings, check, run, serve
from quantumqtt.config import Settings
from quantumqtt.errors import ConfigError
from quantumqtt.node import Broker, Listener
from quantumqtt.operations import ChildJob, JobReport

_log = logging.getLogger(__name__)

LAND: Final = "land"
_JAVA_MIN: Final = 17
_JAVA_REMEDY: Final = "Debian and Ubuntu: apt install openjdk-17-jre-headless"
_SPARK_REMEDY: Final = "pip install 'quantumqtt[spark]'; in a clone: ./start --pipeline"
_JAVA_S_MAX: Final = 20.0
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What `up` was asked for beyond a broker; None is "if it can be had"."""

    lake: Path
    demo: bool
    pipeline: bool | None
    python: Path | None
    master: str | None


def up(
    lake: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the pipeline lands the message log.")
    ] = Path("lake"),
    demo: Annotated[
        bool, typer.Option("--demo", help="Add simulated devices, all under the topic demo/.")
    ] = False,
    pipeline: Annotated[
        bool | None,
        typer.Option(
            help="Land the message log with Spark; default: where Spark, Java and a log are."
        ),
    ] = None,
    spark_python: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A Python that has quantumqtt[spark]; default: this one."
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Spark master; default: the environment's, or local[*]."),
    ] = None,
    **flags: object,
) -> None:
    """Run a broker with its pipeline, and devices for a demonstration; flags as for `serve`.

    Needs Java 17 and quantumqtt[spark] for the pipeline; without them the broker runs all the same.
    """
    invocation = Invocation.of(flags)
    if flags.get("check_only"):
        raise typer.Exit(check(invocation))
    raise typer.Exit(run(invocation, Household(Wishes(lake, demo, pipeline, spark_python, master))))


def _with_flags_of(model: Callable[..., None], function: Callable[..., None]) -> None:
    """Give a function whose last parameter is `**flags` the parameters of another one."""
    own = list(inspect.signature(function).parameters.values())[:-1]
    parameters = [*own, *inspect.signature(model).parameters.values()]
    # What typer reads; so help, completion and checks are those of `serve`, and stay so.
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {one.name: one.annotation for one in parameters}


_with_flags_of(serve, up)


class Household(Company):
    """The pipeline and the devices beside one broker."""

    def __init__(self, wishes: Wishes) -> None:
        self._wishes = wishes
        self._python: Path | None = None
        self._job: ChildJob | None = None
        self._fleet: Fleet | None = None
        self._has_worked = False

    def prepare(self, settings: Settings) -> None:
        """See what the pipeline needs; without an explicit wish for it, do without.

        Raises:
            ConfigError: It was asked for and cannot be had.
        """
        if self._wishes.pipeline is False:
            return
        try:
            if settings.durability == "memory":
                raise ConfigError(
                    "durability memory keeps no message log to land",
                    hint="name a data directory, or choose strict",
                )
            if settings.flight is None:
                raise ConfigError(
                    "the pipeline reads the log service, which is off",
                    hint="leave out --flight off",
                )
            self._python = find_python(self._wishes.python)
            check_java(os.environ)
        except ConfigError as error:
            self._python = None
            if self._wishes.pipeline:
                raise
            _log.warning("there is no pipeline", extra={"why": str(error), "remedy": error.hint})
            return
        self.log_token = secrets.token_urlsafe(32)

    def jobs(self) -> Sequence[JobReport]:
        """Tell how landing is doing."""
        return () if self._job is None else (self._job.report,)

    async def start(self, around: Surroundings) -> None:
        """Start what there is to start; devices first, so that there is something to land."""
        if self._wishes.demo:
            self._start_fleet(around.broker.listeners)
        if self._python is not None:
            self._start_pipeline(self._python, around)

    async def stop(self) -> None:
        """End devices and pipeline; a batch under way is finished."""
        fleet, self._fleet = self._fleet, None
        waits = [] if fleet is None else [fleet.stop()]
        if self._job is not None:
            waits.append(self._job.stop())
        await asyncio.gather(*waits)

    def kill(self) -> None:
        """End the pipeline at once; nothing visible in its table is ever in part."""
        if self._job is not None:
            self._job.kill()

    def _start_fleet(self, listeners: Sequence[Listener]) -> None:
        url = next((one.url for one in listeners if one.allow_anonymous and is_open(one)), None)
        if url is None:
            _log.warning(
                "there are no devices: they have no credentials, and every listener wants some",
                extra={"remedy": "add a listener on loopback, or --allow-anonymous"},
            )
            return
        self._fleet = Fleet(url)
        self._fleet.start()
        _log.info("devices come", extra={"count": self._fleet.count, "topics": "demo/#"})

    def _start_pipeline(self, python: Path, around: Surroundings) -> None:
        if around.log_url is None:
            _log.warning(
                "there is no pipeline: it reads the log service, which is off",
                extra={"remedy": "the line about the log service says why"},
            )
            return
        lake = self._wishes.lake.absolute()
        command = land_command(python, around, lake, self._wishes.master)
        environment = {**os.environ, "QUANTUMQTT_LOG_TOKEN": self.log_token or ""}
        broker = around.broker
        self._job = ChildJob(
            LAND,
            command,
            on_report=lambda report: self._on_report(broker, report),
            environment=environment,
        )
        self._job.start()
        _log.info("the pipeline starts", extra={"table": str(lake / "messages")})

    def _on_report(self, broker: Broker, report: JobReport) -> None:
        if report.state == "working" and not self._has_worked:
            self._has_worked = True
            _log.info("the pipeline works", extra={"job": report.name, "behind": report.lag})
        broker.tell(topics_of(report))


def topics_of(report: JobReport) -> Mapping[str, object]:
    """Say a report as topics below `$SYS/broker/`."""
    said = {
        "state": report.state,
        "lag": "" if report.lag is None else report.lag,
        "rows": report.rows_total,
        "rows_per_s": f"{report.rows_per_s:.1f}",
        "batch_s": f"{report.batch_s:.3f}",
        "batches": report.batches_total,
        "restarts": report.restarts_total,
    }
    return {f"pipeline/{report.name}/{name}": value for name, value in said.items()}


def land_command(
    python: Path, around: Surroundings, lake: Path, master: str | None
) -> tuple[str, ...]:
    """Spell the child: `pipeline run land`, reporting in JSON and ending with its input."""
    assert around.log_url is not None, "asked for where there is a log service"
    endpoint = around.log_url
    for host, reached in _EVERYWHERE.items():
        endpoint = endpoint.replace(f"//{host}:", f"//{reached}:")
    words = [str(python), "-m", "quantumqtt", "pipeline", "run", "land"]
    words += ["--json", "--until-input-ends", "--endpoint", endpoint]
    words += ["--table", str(lake / "messages"), "--checkpoint", str(lake / "_land")]
    certificate = around.settings.tls.certificate
    if endpoint.startswith("grpc+tls") and certificate is not None:
        words += ["--tls-roots", str(certificate)]
    return (*words, "--master", master) if master is not None else tuple(words)


def is_open(listener: Listener) -> bool:
    """Whether a client needs no certificates to come in here."""
    return listener.scheme in {"tcp", "unix"}


def find_python(wished: Path | None) -> Path:
    """Find an interpreter that has pyspark.

    Raises:
        ConfigError: There is none.
    """
    if wished is not None:
        # Not resolved: the environment of an interpreter is found by the name it is called by.
        if not os.access(wished, os.X_OK):
            raise ConfigError(f"--spark-python {wished}: no such program", hint=_SPARK_REMEDY)
        return wished.absolute()
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise ConfigError("the pipeline needs pyspark, which is not installed", hint=_SPARK_REMEDY)
    return Path(sys.executable)


def check_java(environment: Mapping[str, str]) -> None:
    """See that Spark's Java is there, and new enough.

    Raises:
        ConfigError: It is not.
    """
    home = environment.get("JAVA_HOME")
    path = environment.get("PATH", os.defpath)
    java = f"{home}/bin/java" if home else shutil.which("java", path=path)
    if java is None or not os.access(java, os.X_OK):
        raise ConfigError(
            f"the pipeline needs Java {_JAVA_MIN} or newer, and there is none", hint=_JAVA_REMEDY
        )
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_S_MAX, check=False
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"{java} cannot be asked: {error}", hint=_JAVA_REMEDY) from error
    found = re.search(r'version "(\d+)', told)
    if found is None or int(found.group(1)) < _JAVA_MIN:
        version = found.group(1) if found else "unknown"
        raise ConfigError(
            f"the pipeline needs Java {_JAVA_MIN} or newer; {java} is {version}", hint=_JAVA_REMEDY
        )
