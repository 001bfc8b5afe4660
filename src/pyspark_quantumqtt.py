"""Makes `spark.read.format("quantumqtt")` work without a word of Python before it.

On the first look-up of a format Spark imports every top-level module whose name starts with
`pyspark_`, and takes its `DefaultSource`. Importing this must therefore be safe wherever Spark
runs, and does nothing else.
"""

from quantumqtt.spark.source import LogSource


class DefaultSource(LogSource):
    """The source `quantumqtt`, by the name Spark looks for."""
