"""The message log in DuckDB: SQL over a stream of record batches, which is never held as a whole.

Run with the address of a log service: python examples/log_with_duckdb.py grpc://127.0.0.1:8815
"""

import sys

import duckdb

from quantumqtt.logreader import LogReader


def main(endpoint: str) -> None:
    """Print how many messages each topic of partition 0 has."""
    with LogReader(endpoint) as log:
        held = log.partitions()[0]
        messages = log.read(0, held.earliest, held.end, columns=["topic", "ts"])
        # DuckDB finds the reader by the name of the variable, and streams from it.
        counted = duckdb.sql(
            "SELECT topic, count(*) AS messages FROM messages GROUP BY topic ORDER BY 2 DESC, 1"
        )
        for topic, count in counted.fetchall():
            print(f"{count:>8}  {topic}")
        del messages


if __name__ == "__main__":
    main(sys.argv[1])
