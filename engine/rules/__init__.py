"""What was declared or configured, resolved and frozen; arithmetic only. Knows no queue."""
