"""What listeners get: one thing that happened, in the words of `events.py`, with the messages that it happened to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..events import EventKind
from .message import Envelope, Message


@dataclass(slots=True)
class Event:
    """One thing that happened to a run of messages, or to a named object.

    `messages` are message ids, oldest first; empty for events about objects. `subject` is the queue, exchange or
    client by name; `detail` holds what the kind adds (why, count, to, ...). `of`: the messages themselves, one for each
    id, or the envelope that a run of new ones shares.
    """

    kind: EventKind
    vhost: str
    subject: str
    messages: Sequence[int] = ()
    detail: dict[str, object] | None = None
    of: Sequence[Message] | Envelope | None = None


#: Listeners are called in the turn that caused the event and must not call back into the engine.
Listener = Callable[[Event], None]
