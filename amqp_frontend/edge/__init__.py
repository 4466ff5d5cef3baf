"""All code that waits: listening, reading and sending on sockets, PROXY headers, TLS handshakes."""
