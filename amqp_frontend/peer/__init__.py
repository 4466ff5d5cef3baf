"""The other end of a connection: who it is, its channels, and what it is to be sent."""
