"""Octets and frames by hand: a codec that shares no code with the broker, the beginning of a connection, a tap."""
