"""The data pipeline: reads the broker's journal with DuckDB or Spark. Optional: the broker never imports it.

    journal --ingest--> a lake of Delta tables --jobs--> answers

`schemas` defines the tables. Importing this package needs no other libraries.

Folders, each of which imports only those before it: `reading` (the journal as rows) < `lake` (and its ingest) < `jobs`.
Jobs also use `engines`, `amqp` (messages to and from any broker), `output` and `report`. `__main__` and `running` put
the folders together.
"""
