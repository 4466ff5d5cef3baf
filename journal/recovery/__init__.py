"""Reading a journal: contents, live readers, replay, snapshots, stories of messages, checking, repair."""
