"""Octets and frames by hand: a codec that shares no code with the broker, a handshake, a tap."""
