"""Workers that have not installed this package get its code with the query."""

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from pyspark import cloudpickle

import quantumqtt
from quantumqtt.spark.planning import LogSlice
from quantumqtt.spark.source import LogSource
from quantumqtt.spark.table import TableWriter

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.conftest import Source

# Refuses the package as if it were not installed, then does what a worker does.
WORKER = """
import pickle, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("quantumqtt", "pyspark_quantumqtt"):
            raise ModuleNotFoundError(f"{name} is not installed here", name=name)

sys.meta_path.insert(0, Absent())
run = pickle.load(open(sys.argv[1], "rb"))
print(run())
"""


@pytest.fixture
def by_value() -> object:
    cloudpickle.register_pickle_by_value(quantumqtt)
    yield
    cloudpickle.unregister_pickle_by_value(quantumqtt)


@pytest.mark.usefixtures("by_value")
def test_worker_without_the_package_reads_and_writes(source: "Source", tmp_path: "Path") -> None:
    stream = LogSource({"endpoint": source.endpoint}).streamReader(None)
    writer = TableWriter(str(tmp_path / "table"), "parquet")
    one = LogSlice(tenant="default", partition=0, start=5, end=905)

    class Partition:
        value = one

    def run() -> object:
        # Twice: the second slice goes over the connection that the first one made.
        first = sum(batch.num_rows for batch in stream.read(Partition))
        message = writer.write(stream.read(Partition))
        return first, [(file.first, file.last) for file in message.files]

    pickled = tmp_path / "run.pickle"
    pickled.write_bytes(cloudpickle.dumps(run))
    ran = subprocess.run(
        [sys.executable, "-c", WORKER, pickled], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "(900, [(5, 904)])"


def test_worker_with_the_package_needs_only_names(source: "Source") -> None:
    stream = LogSource({"endpoint": source.endpoint}).streamReader(None)
    assert len(cloudpickle.dumps(stream)) < 1_500
