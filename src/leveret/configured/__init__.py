"""What the configuration declares, made so in a broker, at the start and after each reload."""
