"""One queue: its parts by kind, its rules and bounds, dispatch, settlement, and events."""
