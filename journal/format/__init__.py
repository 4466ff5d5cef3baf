"""The octets of a journal: blocks, records, their heaps, names (docs/journal-format.md)."""
