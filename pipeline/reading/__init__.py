"""The journal column by column: `leveret_journal`, a data source of Spark, and its parts for programs without Spark."""
