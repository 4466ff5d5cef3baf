"""The tables of settings. A row says everything about one setting: key, reader, default, lifetime, help."""
