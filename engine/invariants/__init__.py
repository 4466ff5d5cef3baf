"""What is true of the engine between two turns, whatever happened: assertions for our own mistakes, and for no others.

In production nobody calls this. Tests call it at their end, the simulation after each turn, `leveret serve --debug`
every second. Each part looks at one kind of things that are written down twice, and says where the two differ; nothing
is changed by it. docs/simulation.md, "Invariants".
"""

from .checking import MANY, InvariantBroken, check_broker, check_queues

__all__ = ["MANY", "InvariantBroken", "check_broker", "check_queues"]
