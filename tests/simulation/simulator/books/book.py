"""What each book can be asked; most have little to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leveret.engine import Broker, Event

Handlers = dict[type[Event], Callable[[Any], object]]


class Book:
    """Books override what concerns them."""

    def handlers(self) -> Handlers:
        """Which events it wants."""
        return {}

    def attach(self, broker: Broker) -> None:
        """A new life of the broker begins."""

    def turn_ended(self) -> None:
        """A turn has ended, and all that it caused. Raises: Broken."""

    def check(self) -> None:
        """Everything is at rest. Raises: Broken."""
