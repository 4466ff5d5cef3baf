"""The choice of the consumer of the next message: credit, turns, filters, message groups."""
