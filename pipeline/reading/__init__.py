"""The journal a column at a time: `leveret_journal`, a data source of Spark; a program without Spark reads so, too."""
