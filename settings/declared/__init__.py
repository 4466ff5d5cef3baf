"""The contents of a configuration: values of its tables, addresses, queues, diverts, users, limits."""
