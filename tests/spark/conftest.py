"""A Spark on this machine for the whole run, a log service for each test."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quantumqtt.flight import LogService, LoopbackGate
from quantumqtt.logreader import LogPlace
from tests.harness.landing import Service
from tests.harness.stand_in_log import StandInLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# `just spark` runs these in an environment of its own; elsewhere there is nothing to collect.
collect_ignore_glob = [] if importlib.util.find_spec("pyspark") else ["test_*.py"]

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """One session: starting it takes longer than most tests."""
    from quantumqtt.spark import local_session, register

    session = local_session("tests", master="local[2]", settings=SETTINGS)
    session.sparkContext.setLogLevel("FATAL")
    register(session)
    yield session
    session.stop()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A log service that can be killed, over a folder of rows."""
    made = Service(tmp_path / "log")
    made.folder.mkdir()
    yield made
    made.kill()
    # Whatever a failed test left running, sessions of their own included.
    for reader in made.readers:
        reader.end()


class Source:
    """A log, the service over it, and how Spark reads it."""

    def __init__(self) -> None:
        self.log = StandInLog()
        self.service = LogService(self.log, gate=LoopbackGate())

    @property
    def endpoint(self) -> str:
        return f"grpc://127.0.0.1:{self.service.port}"

    @property
    def place(self) -> LogPlace:
        return LogPlace(endpoint=self.endpoint)

    def read(self, spark: "SparkSession", **options: object) -> "DataFrame":
        reader = spark.read.format("quantumqtt").option("endpoint", self.endpoint)
        return reader.options(**options).load()

    def stream(self, spark: "SparkSession", **options: object) -> "DataFrame":
        reader = spark.readStream.format("quantumqtt").option("endpoint", self.endpoint)
        return reader.options(**options).load()


@pytest.fixture
def source() -> Iterator[Source]:
    """A log with two partitions of a few rows."""
    made = Source()
    made.log.append("default", 0, 1_000)
    made.log.append("default", 1, 500)
    yield made
    made.service.shutdown()


Lander = Callable[..., list[int]]


@pytest.fixture
def land(spark: "SparkSession", source: Source, tmp_path: Path) -> Lander:
    """Run a stream into a table until all is there; give the rows of each batch."""

    def run(
        table_format: str = "delta",
        *,
        table: str = "table",
        checkpoint: str = "checkpoint",
        **options: object,
    ) -> list[int]:
        query = (
            source.stream(spark, **options)
            .writeStream.format("quantumqtt-table")
            .option("format", table_format)
            .option("path", str(tmp_path / table))
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress]

    return run
