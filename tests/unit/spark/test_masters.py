"""Where Spark runs, and with which Python."""

import sys
from pathlib import Path

import pytest

from quantumqtt.spark.masters import (
    LOCAL,
    Place,
    choose_place,
    master_of,
    python_for_workers,
    read_defaults,
)

SUBMITTED = {"PYSPARK_GATEWAY_PORT": "4040"}


@pytest.mark.parametrize(
    ("asked", "environment", "defaults", "place"),
    [
        (None, {}, "", Place(master=LOCAL)),
        ("spark://h:7077", {"SPARK_REMOTE": "sc://h"}, "", Place(master="spark://h:7077")),
        ("sc://h:15002", {}, "", Place(remote="sc://h:15002")),
        (None, {"SPARK_REMOTE": "sc://h"}, "spark.master k8s://x", Place(remote="sc://h")),
        (None, SUBMITTED, "", Place()),
        (None, {}, "spark.master   spark://h:7077\n", Place()),
        (None, {}, "# spark.master spark://h\nspark.master.rest x", Place(master=LOCAL)),
    ],
)
def test_nobody_s_choice_is_overridden(
    asked: str | None, environment: dict[str, str], defaults: str, place: Place
) -> None:
    assert choose_place(asked, environment, defaults) == place


def test_workers_here_run_this_python_unless_told_otherwise() -> None:
    here = Place(master="local[2]")
    assert python_for_workers(here, {})["PYSPARK_PYTHON"] == sys.executable
    assert "PYSPARK_PYTHON" not in python_for_workers(here, {"PYSPARK_PYTHON": "/opt/py"})
    assert python_for_workers(Place(master="spark://h:7077"), {}) == {}
    assert python_for_workers(Place(), {}) == {}


def test_configuration_is_read_where_spark_reads_it(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.master=yarn\n")
    assert master_of(read_defaults({"SPARK_HOME": str(tmp_path)})) == "yarn"
    assert master_of(read_defaults({"SPARK_CONF_DIR": str(tmp_path / "conf")})) == "yarn"
    assert read_defaults({"SPARK_HOME": str(tmp_path / "none")}) == ""
