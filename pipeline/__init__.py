"""The data pipeline: the broker's journal on Spark. An optional extra, `leveret[spark]`; the broker never imports it.

    journal --leveret_journal (a data source)--> ingest --> a lake of Parquet tables --> jobs

`schemas` says what is in each table. Importing this package needs none of the extra's libraries.
"""
