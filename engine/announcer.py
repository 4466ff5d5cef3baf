"""Announcing to the listeners what happened. Source: `events.py`; docs/architecture.md, "Events"."""

from .messages.event import Event, Listener


class Announcer:
    """Of one broker. Callers look for `listeners` first: with none, no event is created."""

    __slots__ = ("listeners",)

    def __init__(self) -> None:
        self.listeners: list[Listener] = []

    def announce(self, event: Event) -> None:
        """Call each listener with what happened."""
        for listener in self.listeners:
            listener(event)
