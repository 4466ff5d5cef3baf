"""Reading a journal: contents, live readers, replay, snapshots, checking, repair, which segments can be deleted."""
