"""What a journal says has happened, and what is there now: replay, snapshots, checking, repair, what may be removed."""
