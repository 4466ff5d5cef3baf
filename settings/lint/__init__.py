"""Warnings about a configuration as a whole, which is accepted nevertheless."""
