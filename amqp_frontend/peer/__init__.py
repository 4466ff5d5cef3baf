"""The other end of a connection: its identity, its channels, and the output for it."""
