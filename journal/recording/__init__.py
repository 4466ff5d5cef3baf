"""The engine's events as records, and records as the engine's objects. The one room here that knows queues."""
