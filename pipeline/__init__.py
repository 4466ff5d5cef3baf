"""The data pipeline: the broker's journal on Spark. An optional extra, `leveret[spark]`; the broker never imports it.

    journal --leveret_journal (a data source)--> ingest --> a lake of Parquet tables --> jobs

`schemas` says what is in each table. Importing this package needs none of the extra's libraries.

Rooms, each of which imports only those before it: `reading` (the data source) < `lake` (and its ingest) < `jobs`, which
know `amqp` (messages to and from any broker) as well. `schemas`, `json_values` and `progress` are words that all share;
`session` and `__main__` put the rooms together.
"""
