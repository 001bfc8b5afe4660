"""Making the source and the tables known to a session, and sessions on this machine."""

import os
import sys
from collections.abc import Mapping

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from quantumqtt.errors import ConfigError
from quantumqtt.spark.source import LogSource
from quantumqtt.spark.table import LakeTable

# Without it Spark refuses readers that want filters, which the option `pushFilters` makes of ours.
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession, *, by_value: bool = False) -> None:
    """Make `quantumqtt` and `quantumqtt-table` known to a session.

    `by_value` sends this package's code along with each query, for clusters whose workers have
    pyarrow (and deltalake, for Delta tables) but not QuantuMQTT; with `--py-files` alone streams
    fail on such workers.
    """
    if by_value:
        cloudpickle.register_pickle_by_value(sys.modules[__name__.partition(".")[0]])
    spark.dataSource.register(LogSource)
    spark.dataSource.register(LakeTable)


def local_session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Open a session: on the master asked for, or where the environment says, or on this machine.

    A master on this machine starts its Python workers with this very Python unless told
    otherwise: the first `python3` on PATH may know nothing of pyarrow.

    Raises:
        ConfigError: Spark does not start, usually for want of Java.
    """
    chosen = master or _master_of_environment()
    if chosen is None:
        chosen = "local[*]"
    if chosen.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if chosen.startswith("sc://"):
        builder = builder.remote(chosen)
    elif chosen != "environment":
        builder = builder.master(chosen)
    wanted = {
        "spark.sql.session.timeZone": "UTC",
        PUSHDOWN: "true",
        **(settings or {}),
    }
    for key, value in wanted.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        # pyspark raises half a dozen kinds here, most of them for one reason.
        raise ConfigError(
            f"Spark does not start on {chosen}: {str(error).splitlines()[0][:300]}",
            hint="Spark needs Java 17 or newer: apt install openjdk-17-jre-headless",
        ) from error


def _master_of_environment() -> str | None:
    if remote := os.environ.get("SPARK_REMOTE"):
        return remote
    # spark-submit has chosen already; naming a master here would override it.
    submitted = "spark-submit" in os.environ.get("SPARK_ENV_LOADED", "") or os.environ.get(
        "PYSPARK_GATEWAY_PORT"
    )
    return "environment" if submitted else os.environ.get("MASTER")
