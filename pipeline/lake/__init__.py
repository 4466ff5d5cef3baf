"""The lake of Parquet tables, and the ingest that brings what is new in the journal into it."""
