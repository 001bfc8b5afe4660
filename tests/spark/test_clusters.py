"""The same job on a standalone cluster, through Spark Connect, and over an upgrade of Spark.

Streaming differs on a cluster: code and options travel, workers are other processes with other
folders, and executors die alone. So these start a real master with two workers.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark
import pytest

from quantumqtt.spark.table import open_place
from tests.harness.landing import Landing, Service, descendants
from tests.harness.node_process import Lines
from tests.harness.ports import free_port
from tests.harness.stand_in_log import append_to_folder
from tests.spark.test_stream import expected, rows_of
from tools.spark_environment import make

START_S_MAX = 120.0
SPARK = Path(pyspark.__file__).parent

pytestmark = [pytest.mark.night, pytest.mark.timeout(900)]


class Daemon:
    """A JVM of Spark's that says on its output when it is there."""

    def __init__(self, home: Path, ready: str, *words: str, script: str = "spark-class") -> None:
        self.process = subprocess.Popen(
            [SPARK / "bin" / script, *words],
            cwd=home,
            env=spark_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.said = Lines(self.process.stdout)
        line = self.said.wait_for(lambda one: ready in one, deadline_s=START_S_MAX)
        assert line is not None, "\n".join(self.said.all()[-40:])
        self.line = line

    def end(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.said.join()


class Cluster:
    """A master and two workers of one core each."""

    def __init__(self, home: Path) -> None:
        deploy = "org.apache.spark.deploy"
        alone = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self.home = home
        self.daemons = [Daemon(home, "Starting Spark master at", f"{deploy}.master.Master", *alone)]
        found = re.search(r"spark://\S+", self.daemons[0].line)
        assert found is not None
        self.master = found.group(0)
        for number in (1, 2):
            folder = home / f"worker-{number}"
            folder.mkdir()
            words = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder))
            where = (f"{deploy}.worker.Worker", *alone, *words, self.master)
            self.daemons.append(Daemon(home, "Successfully registered with master", *where))

    def executors(self) -> list[int]:
        """List the executors' processes."""
        found = {pid: words for one in self.daemons for pid, words in below(one).items()}
        return [pid for pid, words in found.items() if "CoarseGrainedExecutorBackend" in words]

    def end(self) -> None:
        for daemon in self.daemons:
            daemon.end()


def below(daemon: Daemon) -> Mapping[int, str]:
    return descendants(daemon.process.pid)


def spark_environment() -> dict[str, str]:
    """What a cluster is told about its machine: here, the Python that has our package."""
    kept = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    return {**kept, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    home = tmp_path / "cluster"
    home.mkdir()
    made = Cluster(home)
    yield made
    made.end()


SMALL = ("--conf", "spark.executor.memory=512m", "--conf", "spark.executor.cores=1")


@pytest.mark.requirement("PIPE-18")
@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_a_standalone_cluster_lands_every_row_once(
    cluster: Cluster, service: Service, tmp_path: Path, table_format: str
) -> None:
    service.start()
    ends = {0: 0, 1: 0}
    for _ in range(2):
        for partition in ends:
            rows = 40_000
            ends[partition] = append_to_folder(service.folder, "default", partition, rows)
        words = ("--once", "--format", table_format, "--max-records", "25000", *SMALL)
        run = Landing(
            service, tmp_path, *words, master=cluster.master, environment=spark_environment()
        )
        rows_told = [batch["rows"] for batch in run.batches()]
        assert run.finish() == 0, run.errors.read_text()[-3_000:]
        assert rows_told == [25_000, 25_000, 25_000, 5_000]
    assert rows_of(tmp_path / "table", table_format) == expected(p0=ends[0], p1=ends[1])
    for number in (1, 2):
        assert list((cluster.home / f"worker-{number}").glob("app-*/*/stderr")), "both had work"


@pytest.mark.requirement("PIPE-13", "PIPE-18")
def test_executors_that_die_cost_no_row_and_double_none(
    cluster: Cluster, service: Service, tmp_path: Path
) -> None:
    service.start()
    ends = {
        partition: append_to_folder(service.folder, "default", partition, 100_000)
        for partition in (0, 1)
    }
    words = ("--once", "--max-records", "20000", *SMALL)
    run = Landing(service, tmp_path, *words, master=cluster.master, environment=spark_environment())
    killed = 0
    while run.next_batch() is not None:
        if killed < 3 and (found := cluster.executors()):
            os.kill(found[0], signal.SIGKILL)
            killed += 1
    assert run.finish() == 0, run.errors.read_text()[-3_000:]
    assert killed == 3
    assert rows_of(tmp_path / "table", "delta") == expected(p0=ends[0], p1=ends[1])


@pytest.mark.requirement("PIPE-18")
def test_spark_connect_lands_every_row_once(service: Service, tmp_path: Path) -> None:
    port = free_port()
    server = Daemon(
        tmp_path,
        "Spark Connect server started",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", "local[2]", "--conf", f"spark.connect.grpc.binding.port={port}"),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--conf", "spark.ui.enabled=false", "spark-internal"),
        script="spark-submit",
    )
    try:
        service.start()
        for partition in (0, 1):
            append_to_folder(service.folder, "default", partition, 30_000)
        words = ("--once", "--max-records", "25000")
        run = Landing(service, tmp_path, *words, master=f"sc://127.0.0.1:{port}")
        rows_told = [batch["rows"] for batch in run.batches()]
        assert run.finish() == 0, run.errors.read_text()[-3_000:]
        assert rows_told == [25_000, 25_000, 10_000]
        assert rows_of(tmp_path / "table", "delta") == expected(p0=30_000, p1=30_000)
    finally:
        server.end()


@pytest.mark.requirement("PIPE-13")
def test_a_checkpoint_of_4_2_goes_on_under_4_3(service: Service, tmp_path: Path) -> None:
    service.start()
    ends = {0: 0, 1: 0}
    for release, killed in (("42", False), ("42", True), ("43", False), ("43", False)):
        python = make(release) / "bin" / "python"
        for partition in ends:
            ends[partition] = append_to_folder(service.folder, "default", partition, 30_000)
        words = ("--once", "--max-records", "10000")
        run = Landing(service, tmp_path, *words, python=str(python))
        if killed:
            assert run.next_batch() is not None
            run.kill_group()
            continue
        assert sum(batch_rows(batch) for batch in run.batches()) > 0
        assert run.finish() == 0, run.errors.read_text()[-3_000:]
    assert rows_of(tmp_path / "table", "delta") == expected(p0=ends[0], p1=ends[1])
    landed = open_place(str(tmp_path / "table"), "delta").landed()
    assert landed == {("default", number): end for number, end in ends.items()}


def batch_rows(batch: Mapping[str, object]) -> int:
    rows = batch["rows"]
    assert isinstance(rows, int)
    return rows
