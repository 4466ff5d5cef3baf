"""The functions of expressions, by what they are about. Source: queues page B.4."""
