"""Telling the listeners what happened. Source: `events.py`; docs/architecture.md, "Events"."""

from collections.abc import Iterable, Sequence

from .events import EventKind
from .messages.event import Event, Listener
from .messages.message import Envelope
from .queues.queue import Queue


class Announcer:
    """Of one broker. On the hot path callers look for `listeners` first: with none an event costs no call."""

    __slots__ = ("listeners",)

    def __init__(self) -> None:
        self.listeners: list[Listener] = []

    def emit_published(
        self,
        vhost: str,
        envelope: Envelope,
        messages: Sequence[int],
        blobs: Sequence[bytes],
        queues: Iterable[Queue],
        **more: object,
    ) -> None:
        """Tell the listeners about a run of new messages, and to which queues they go."""
        detail: dict[str, object] = {"envelope": envelope, "blobs": blobs, "queues": queues, **more}
        event = Event(EventKind.PUBLISHED, vhost, envelope.exchange, messages, detail, envelope)
        for listener in self.listeners:
            listener(event)

    def emit_object(self, kind: EventKind, vhost: str, subject: str, detail: dict[str, object]) -> None:
        """Tell the listeners, if there are any, about a queue, an exchange, a client."""
        if self.listeners:
            event = Event(kind, vhost, subject, (), detail)
            for listener in self.listeners:
                listener(event)
