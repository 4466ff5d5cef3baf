"""Octets: frames and methods read and written, what a peer may send, and what it is told. No broker is needed."""
