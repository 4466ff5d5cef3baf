"""The engines that run the SQL of the jobs: DuckDB (local.py) and Spark (spark.py), with one interface
(protocol.py)."""
