"""Exchange types, bindings and their indexes, which map routing keys to destinations."""
