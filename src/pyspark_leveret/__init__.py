"""The package that Spark 4 loads when it starts: it searches packages with the prefix `pyspark_` for a `DefaultSource`.

With this package installed `spark.read.format("leveret_journal")` works in any session, with nothing to register.
"""

from leveret.pipeline.reading.source import JournalSource

DefaultSource = JournalSource

__all__ = ["DefaultSource"]
