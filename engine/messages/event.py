"""What listeners get: one thing that happened, in the words of `events.py`. One class a family, with typed fields.

Here is what all have in common. What happens to the messages of a queue is in queues/queue_events.py, what happens as
they are published in publishing/publish_events.py, what happens to named objects in object_events.py.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ..events import EventKind
from .message import Envelope, Message
from .mixed import stretches_alike


# Neither this class nor its families are frozen: creating one would cost three times as much. They share two methods,
# since code made for each of 24 classes is a twentieth of the time that a broker takes to start.
@dataclass(slots=True, eq=False, repr=False)
class Event:
    """One thing that happened to a run of messages, or to a named object. Nobody changes it.

    `subject`: the queue, exchange, address or client by name. `messages`: message ids, oldest first; empty for events
    about objects. `of`: the messages themselves, one for each id, or the envelope that a run of them shares.
    """

    kind: EventKind
    vhost: str
    subject: str
    messages: Sequence[int]
    of: Sequence[Message] | Envelope | None

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _values(self) == _values(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in _values(self).items())})"

    @property
    def detail(self) -> dict[str, object] | None:
        """What the family adds, by name; None: nothing. For those who print or store events of any kind."""
        return None


def _values(event: Event) -> dict[str, object]:
    return {one.name: getattr(event, one.name) for one in fields(event)}


@dataclass(slots=True, eq=False, repr=False)
class ObjectEvent(Event):
    """Something happened to a named object, and to no message."""

    messages: Sequence[int] = field(default=(), init=False)
    of: None = field(default=None, init=False)


@dataclass(slots=True, eq=False, repr=False)
class MixedEvent(Event):
    """Something happened to a run of new messages, each with an envelope of its own."""

    of: None = field(default=None, init=False)
    envelopes: Sequence[Envelope]

    def stretches(self) -> Iterator[Any]:
        """The same as events of messages with one envelope each, in order."""
        for start, stop, envelope in stretches_alike(self.envelopes):
            yield self._stretch(start, stop, envelope)

    @abstractmethod
    def _stretch(self, start: int, stop: int, envelope: Envelope) -> Event:
        """The event of the messages from one offset to before another."""


#: Listeners are called in the turn that caused the event and must not call back into the engine. One with a true
#: attribute `takes_mixed` gets a `MixedEvent` as it is, all others its stretches.
Listener = Callable[[Event], None]


def emit_mixed(listeners: Iterable[Listener], event: MixedEvent) -> None:
    """Call each listener with what happened to a mixed run."""
    for listener in listeners:
        if getattr(listener, "takes_mixed", False):
            listener(event)
        else:
            for one in event.stretches():
                listener(one)
