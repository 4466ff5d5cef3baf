"""One connection between wire and engine: events are handled, turn by turn. Nothing here waits."""
