"""Records and contents read back from a journal: in order, by LSN, and read ahead of the caller."""
