"""The journal as the broker has it: turns of records into blocks, checkpoints, segments that are no longer needed."""
