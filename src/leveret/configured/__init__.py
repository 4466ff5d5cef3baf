"""Applies the configuration's declarations to a broker, at the start and after each reload."""
