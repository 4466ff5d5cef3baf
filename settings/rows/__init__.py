"""The tables of settings. A row says everything about one setting: key, reader, default, when a change acts, help."""
