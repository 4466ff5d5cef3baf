"""Who leads, who is in sync, and up to where the journal is agreed: events in, decisions out. No I/O, no clock."""
