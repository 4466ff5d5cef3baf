"""Appending: turns of records into blocks, what the records say, checkpoints, and segments that nobody needs."""
