"""The base classes of events, which listeners receive. `events.py` lists the kinds of events.

The events of a queue's messages are in queues/queue_events.py, those of publishing in publishing/publish_events.py,
those of named objects in object_events.py.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, fields
from typing import Any, ClassVar

from ...settings.slotted import slotted
from ..events import EventKind
from .message import Envelope, Message, stretches_alike


# Neither this class nor its subclasses are frozen: creating a frozen object costs three times as much. They share two
# methods, because generating these for each class takes a twentieth of the broker's start.
@slotted
class Event:
    """One event of a run of messages, or of a named object. Listeners must not change it.

    `subject`: name of the queue, exchange, address or client. `messages`: message ids, oldest first; empty for events
    of objects. `run`: the messages, one for each id, or their common envelope. `what`: the type of the object, where
    objects of several types have the same event.
    """

    kind: EventKind
    vhost: str
    subject: str
    messages: Sequence[int]
    run: Sequence[Message] | Envelope | None
    what: ClassVar[str] = ""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _values(self) == _values(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in _values(self).items())})"

    @property
    def detail(self) -> dict[str, object] | None:
        """`what` and the fields of the subclass, by name, except those with their defaults; None: there are none."""
        detail: dict[str, object] = {"what": self.what} if self.what else {}
        for one in fields(self)[len(fields(Event)) :]:
            if (value := getattr(self, one.name)) is not one.default:
                detail[one.name] = value
        return detail or None


def _values(event: Event) -> dict[str, object]:
    return {one.name: getattr(event, one.name) for one in fields(event)}


@slotted
class ObjectEvent(Event):
    """An event of a named object."""

    messages: Sequence[int] = field(default=(), init=False)
    run: None = field(default=None, init=False)


@slotted
class MixedEvent(Event):
    """An event of a run of new messages, each with its own envelope."""

    run: None = field(default=None, init=False)
    envelopes: Sequence[Envelope]

    def stretches(self) -> Iterator[Any]:
        """The events of messages with a common envelope, in order."""
        for start, stop, envelope in stretches_alike(self.envelopes):
            yield self._stretch(start, stop, envelope)

    @abstractmethod
    def _stretch(self, start: int, stop: int, envelope: Envelope) -> Event:
        """The event of the messages from offset `start` to the one before `stop`."""


#: The engine calls listeners in the turn that caused the event; they must not call back into the engine. A listener
#: with a true attribute `takes_mixed` receives a `MixedEvent` whole, all others receive its stretches.
Listener = Callable[[Event], None]


def emit_mixed(listeners: Iterable[Listener], event: MixedEvent) -> None:
    """Call each listener with a mixed event or its stretches."""
    for listener in listeners:
        if getattr(listener, "takes_mixed", False):
            listener(event)
        else:
            for one in event.stretches():
                listener(one)
