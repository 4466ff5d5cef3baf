"""The contents of a configuration: keys of the broker, profiles, addresses, queues, diverts, users, limits."""
