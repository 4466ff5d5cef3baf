"""Warnings about a valid configuration as a whole."""
