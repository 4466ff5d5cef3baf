"""Reading: contents, live readers, replay, snapshots, checking, repair, what may be removed."""
