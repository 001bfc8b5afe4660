"""The source `quantumqtt`: what Spark asks for by this name."""

from pyspark.sql.types import StructType

from quantumqtt.spark.batch import BatchReader, PushingBatchReader
from quantumqtt.spark.crossing import spelled_errors
from quantumqtt.spark.options import parse_options
from quantumqtt.spark.rows import spark_schema
from quantumqtt.spark.stream import StreamReader
from quantumqtt.spark.versions import DataSource


class LogSource(DataSource):
    """The broker's committed message log, replayable and partitioned, as a table or a stream.

    Options are listed in `quantumqtt.spark.options.OPTIONS` and in docs/reference/spark.md.
    """

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "quantumqtt"

    def schema(self) -> StructType:
        """Every column of a record; the log has one schema."""
        return spark_schema()

    def reader(self, schema: StructType) -> BatchReader:
        """Make the reader of one batch."""
        del schema
        with spelled_errors():
            options = parse_options(dict(self.options.items()), streaming=False)
        return PushingBatchReader(options) if options.push_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> StreamReader:
        """Make the reader of a stream."""
        del schema
        with spelled_errors():
            return StreamReader(parse_options(dict(self.options.items()), streaming=True))
