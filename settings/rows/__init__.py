"""The tables of settings. A row has all facts about one setting: key, reader, default, time of effect, help."""
