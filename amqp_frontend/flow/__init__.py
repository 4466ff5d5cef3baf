"""What a peer is asked to wait for: parked publishes, notices of that, and publishers that are read later."""
