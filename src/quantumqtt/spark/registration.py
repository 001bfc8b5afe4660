"""Making the source and the tables known to a session, and sessions on this machine."""

import os
import sys
from collections.abc import Mapping

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from quantumqtt.errors import ConfigError
from quantumqtt.spark.masters import choose_place, python_for_workers, read_defaults
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
    """Open a session: on the master asked for, or where the machine says, or on this machine.

    See `masters.py` for who decides. A master on this machine starts its Python workers with this
    very Python unless told otherwise.

    Raises:
        ConfigError: Spark does not start, usually for want of Java.
    """
    place = choose_place(master, os.environ, read_defaults(os.environ))
    os.environ.update(python_for_workers(place, os.environ))
    builder = SparkSession.builder.appName(name)
    if place.remote is not None:
        builder = builder.remote(place.remote)
    elif place.master is not None:
        builder = builder.master(place.master)
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
        where = place.remote or place.master or "the master of its configuration"
        raise ConfigError(
            f"Spark does not start on {where}: {str(error).splitlines()[0][:300]}",
            hint="Spark needs Java 17 or newer: apt install openjdk-17-jre-headless",
        ) from error
