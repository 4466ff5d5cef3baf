"""Records and contents read back from a journal: in order, by LSN, ahead of who asks."""
