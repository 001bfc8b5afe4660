"""Reading the broker's message log from Python.

    with LogReader("grpc://127.0.0.1:8815") as log:
        for number, held in log.partitions().items():
            table = log.read(number, held.earliest, held.end, topics=["plant/#"]).read_all()

What comes out are Arrow record batches: Polars, DuckDB and pandas take them as they are. The same
range gives the same rows each time, or a typed error; there is never a silent gap.
"""

from quantumqtt.logreader.place import LogPlace
from quantumqtt.logreader.reader import LogReader
from quantumqtt.logreader.retries import Retries

__all__ = ["LogPlace", "LogReader", "Retries"]
