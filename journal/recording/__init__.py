"""Turns the engine's events into records, and records into the engine's objects. Only this folder knows queues."""
