"""Where the messages of one queue wait: in memory, in the journal, by priority, by key, for all to read."""
