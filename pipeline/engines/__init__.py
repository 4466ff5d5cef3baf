"""What answers the SQL of the jobs: DuckDB (local.py), or Spark (spark.py); one text for both (protocol.py)."""
