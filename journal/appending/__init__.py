"""Appending to the journal: turns of records, blocks, checkpoints, deletion of old segments."""
