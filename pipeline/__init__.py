"""The data pipeline: reads the broker's journal with Spark. An optional extra, `leveret[spark]`, that the broker never
imports.

    journal --leveret_journal (a data source)--> ingest --> a lake of Parquet tables --> jobs

`schemas` defines the tables. Importing this package needs none of the extra's libraries.

Rooms, each of which imports only those before it: `reading` (the data source) < `lake` (and its ingest) < `jobs`, which
also import `amqp` (messages to and from any broker). All share `schemas`, `json_values`, `progress` and `error_texts`;
`session` and `__main__` put the rooms together.
"""
