"""The events of publishing, as listeners get them."""

from collections.abc import Sequence
from dataclasses import field

from ...settings.slotted import slotted
from ..events import EventKind
from ..messages.event import Event, MixedEvent, ObjectEvent
from ..messages.message import Envelope
from ..queues.queue import Queue


@slotted
class PublishedEvent(Event):
    """A run of new messages. `subject` is the exchange; `run` their common envelope.

    `queues`: the queues of their route, and the topic log (`LogSink`). `cause`: why the broker published them (the
    reason of a dead letter, retroactive); None: a client published them, or the broker forwarded what a client did.
    """

    kind: EventKind = field(default=EventKind.PUBLISHED, init=False)
    run: Envelope
    contents: Sequence[bytes]
    queues: Sequence[Queue]
    cause: str | None = None

    @property
    def reached(self) -> Sequence[Queue]:
        """The queues, without the topic log (the only one with an empty name)."""
        return [queue for queue in self.queues if queue.name]

    @property
    def detail(self) -> dict[str, object]:
        detail: dict[str, object] = {"envelope": self.run, "contents": self.contents, "queues": self.reached}
        if self.cause is not None:
            detail["cause"] = self.cause
        return detail


@slotted
class MixedPublishedEvent(MixedEvent):
    """New messages of one client, all for one queue. `subject` is empty, because their exchanges may differ."""

    kind: EventKind = field(default=EventKind.PUBLISHED, init=False)
    contents: Sequence[bytes]
    queue: Queue

    def _stretch(self, start: int, stop: int, envelope: Envelope) -> Event:
        ids, contents = self.messages[start:stop], self.contents[start:stop]
        return PublishedEvent(self.vhost, envelope.exchange, ids, envelope, contents, (self.queue,))


@slotted
class DuplicateEvent(ObjectEvent):
    """A message was dropped before it got an id, because its address, the `subject`, knows its duplicate id."""

    kind: EventKind = field(default=EventKind.DROPPED, init=False)
    duplicate_id: str

    @property
    def detail(self) -> dict[str, object]:
        return {"reason": "duplicate", "id": self.duplicate_id}
