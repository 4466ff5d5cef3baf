"""The lake of Delta tables, and the ingest that adds new records of the journal to it."""
