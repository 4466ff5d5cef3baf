"""Policies and operator policies: their keys, which one wins on a queue or exchange."""
