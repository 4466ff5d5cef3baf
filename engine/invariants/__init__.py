"""Invariants of the engine between two turns: assertions against mistakes in our code alone.

Production does not check them. Tests check at their end, the simulation after each turn, `leveret serve --debug` every
second. Each module compares one kind of state that is stored twice, and reports the differences; a check changes
nothing. docs/simulation.md, "Invariants".
"""

from .checking import MANY, InvariantBroken, check_broker, check_queues

__all__ = ["MANY", "InvariantBroken", "check_broker", "check_queues"]
