"""The journal column by column: `leveret_journal`, a data source for Spark; programs without Spark can use it, too."""
