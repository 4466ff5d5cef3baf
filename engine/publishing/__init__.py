"""From a publish to the queues: what an address does first, routes, and services behind exchanges."""
