"""What Spark 4 looks for when it starts: packages whose names begin with `pyspark_`, and the `DefaultSource` in them.

With this package installed `spark.read.format("leveret_journal")` works in any session, with nothing to register.
"""

from leveret.pipeline.reading.source import JournalSource

DefaultSource = JournalSource

__all__ = ["DefaultSource"]
