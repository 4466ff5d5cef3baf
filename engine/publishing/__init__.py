"""The way of a publish to the queues: rules of its address, routes, and services behind exchanges."""
