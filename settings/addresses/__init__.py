"""Settings of addresses: their fields, queue arguments for them, which entries match an address, the merged result."""
