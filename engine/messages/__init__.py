"""One message: its octets, what they say, and what is remembered of it. Knows no queue."""
