"""Settings of addresses: their queue arguments, the entries that match an address, and the merged result."""
