"""From a routing key to destinations: exchange types, bindings and their indexes."""
