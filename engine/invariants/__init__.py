# mypy: implicit-reexport
# ruff: noqa: F401 - imported for others
"""Invariants of the engine between two turns. A broken one is a mistake in the broker's code.

Tests check them at their end, the simulation after each turn, `leveret serve --debug` every second; production does
not. Each module compares state that is stored twice, and reports the differences. A check changes nothing. Source:
docs/simulation.md, "Invariants".
"""

from .checking import MANY, InvariantBroken, check_broker, check_queues, check_routes
