"""Configuration files read: TOML, Artemis's XML, broker.properties; what is doubtful in them."""
