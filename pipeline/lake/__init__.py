"""The lake of Delta tables, and the ingest that adds new records of a journal to it."""
