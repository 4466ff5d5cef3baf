"""What stands in a journal, octet by octet: blocks, records, their heaps, names (docs/journal-format.md)."""
