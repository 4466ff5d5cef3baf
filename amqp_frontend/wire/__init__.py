"""Octets: reads and writes frames and methods, checks the peer's input, renders errors. It needs no broker."""
