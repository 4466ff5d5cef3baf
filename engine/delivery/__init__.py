"""The choice of the consumer for the next message: credit, order of service, filters, message groups."""
