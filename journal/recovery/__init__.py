"""What happened by a journal, and what is there now: replay, snapshots, checking, repair, what may be removed."""
