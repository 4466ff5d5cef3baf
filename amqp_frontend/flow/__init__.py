"""Flow control of a connection: parked publishes, notices to the peer, and throttled publishers."""
