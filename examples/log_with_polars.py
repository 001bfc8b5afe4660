"""The message log in Polars: messages and bytes per topic.

Run with the address of a log service: python examples/log_with_polars.py grpc://127.0.0.1:8815
"""

import sys

import polars as pl

from quantumqtt.logreader import LogReader


def main(endpoint: str) -> None:
    """Print the ten busiest topics."""
    frames = []
    with LogReader(endpoint) as log:
        for number, held in log.partitions().items():
            rows = log.read(number, held.earliest, held.end, columns=["topic", "payload"])
            frames.append(pl.DataFrame(rows.read_all()))
    busiest = (
        pl.concat(frames)
        .group_by("topic")
        .agg(pl.len().alias("messages"), pl.col("payload").bin.size().sum().alias("bytes"))
        .sort("messages", "topic", descending=[True, False])
        .head(10)
    )
    print(busiest)


if __name__ == "__main__":
    main(sys.argv[1])
