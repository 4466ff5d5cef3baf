"""A broker that serves: composition root, addresses, TLS files, keeper of the journal, the edge of all frontends."""
