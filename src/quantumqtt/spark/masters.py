"""Where Spark runs, and with which Python: decided from what the user and the machine say.

Nobody's choice is overridden: a master that was asked for comes first, then Spark Connect's
address, then what spark-submit or Spark's own configuration have settled, and this machine only
when nothing else was said.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LOCAL: Final = "local[*]"


@dataclass(frozen=True, slots=True)
class Place:
    """A master to name to Spark, or an address of Spark Connect; both None: Spark knows already."""

    master: str | None = None
    remote: str | None = None


def choose_place(asked: str | None, environment: Mapping[str, str], defaults: str = "") -> Place:
    """Choose; `defaults` is the text of `spark-defaults.conf`."""
    if asked is not None:
        return Place(remote=asked) if asked.startswith("sc://") else Place(master=asked)
    if remote := environment.get("SPARK_REMOTE"):
        return Place(remote=remote)
    # Started by spark-submit, which has a master by now; naming one here would override it.
    if "PYSPARK_GATEWAY_PORT" in environment or master_of(defaults) is not None:
        return Place()
    return Place(master=LOCAL)


def python_for_workers(place: Place, environment: Mapping[str, str]) -> dict[str, str]:
    """Choose the workers' Python for a master on this machine, unless the user has.

    Spark takes the first `python3` on PATH, which may know nothing of pyarrow. Elsewhere the path
    of this interpreter means nothing, and the cluster's own setting stays.
    """
    if place.master is None or not place.master.startswith("local"):
        return {}
    names = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    return {name: sys.executable for name in names if name not in environment}


def read_defaults(environment: Mapping[str, str]) -> str:
    """Read Spark's configuration file where Spark would; "" when there is none."""
    folders = [environment.get("SPARK_CONF_DIR"), environment.get("SPARK_HOME")]
    for folder, below in zip(folders, ("", "conf"), strict=True):
        if folder is not None:
            file = Path(folder) / below / "spark-defaults.conf"
            if file.is_file():
                return file.read_text(encoding="utf-8", errors="replace")
    return ""


def master_of(defaults: str) -> str | None:
    """Find `spark.master` in a configuration file: name and value, by space or `=`."""
    for line in defaults.splitlines():
        words = line.strip().replace("=", " ", 1).split()
        if len(words) == 2 and words[0] == "spark.master":
            return words[1]
    return None
