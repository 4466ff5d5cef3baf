"""What a configuration says: keys of the broker, profiles, addresses, queues, diverts, users, limits."""
