"""The events of a queue's messages and consumers, as listeners get them. `subject`: the name of the queue.

`QueueEvents` creates them. Source: rulings, "Events".
"""

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from ...settings.slotted import slotted
from ..events import EventKind
from ..messages.event import Event, MixedEvent, ObjectEvent
from ..messages.message import Envelope, Message

if TYPE_CHECKING:
    from ..clients.client import Client
    from ..clients.session import Session


@slotted
class EnqueuedEvent(Event):
    """New messages are in the queue. `owner`: the number of the site that owns them, in a queue with owners; else 0."""

    kind: EventKind = field(default=EventKind.ENQUEUED, init=False)
    run: Sequence[Message] | Envelope
    owner: int = 0

    @property
    def detail(self) -> None:
        return None  # `owner` is for the journal alone


@slotted
class MixedEnqueuedEvent(MixedEvent):
    """A mixed run of new messages is in the queue."""

    kind: EventKind = field(default=EventKind.ENQUEUED, init=False)

    def _stretch(self, start: int, stop: int, envelope: Envelope) -> Event:
        return EnqueuedEvent(self.vhost, self.subject, self.messages[start:stop], envelope)


@slotted
class DeliveredEvent(Event):
    """Messages went to a session.

    `consumer`: the consumer's tag; None: a get. `contents`: the contents of a run that went to the consumer at once,
    without being ready. `redelivered_below`: see `QueueEvents`; `is_redelivery` asks it.
    """

    kind: EventKind = field(default=EventKind.DELIVERED, init=False)
    run: Sequence[Message] | Envelope
    session: "Session"
    consumer: str | None
    contents: Sequence[bytes] = ()
    redelivered_below: int = 0

    def is_redelivery(self, message: Message) -> bool:
        """Whether the delivery of a message of this event has the redelivered flag."""
        return message.deliveries > 1 or message.id < self.redelivered_below

    @property
    def detail(self) -> dict[str, object]:
        detail: dict[str, object] = {"client": self.session.client, "session": self.session}
        if self.consumer is not None:
            detail["consumer"] = self.consumer
        if self.contents:
            detail["contents"] = self.contents
        return detail


@slotted
class AckedEvent(Event):
    """Deliveries were acknowledged, or needed no acknowledgement. The messages left the queue, unless they are `kept`.

    `client`, `consumer`: client and tag of the no-ack consumer that got the run; otherwise None.
    """

    kind: EventKind = field(default=EventKind.ACKED, init=False)
    run: Sequence[Message] | Envelope
    kept: bool = False
    client: "Client | None" = None
    consumer: str | None = None

    @property
    def detail(self) -> dict[str, object] | None:
        detail: dict[str, object] = {"kept": True} if self.kept else {}
        if self.client is not None:
            detail |= {"consumer": self.consumer, "client": self.client}
        return detail or None


@slotted
class LeftEvent(Event):
    """Messages left the queue without an acknowledgement, and do not come back. `kind`: any terminal one but `acked`.

    `reason`: as in `x-death`, or that of a bound or an operator; None: there is none. `to`: the exchange that gets them
    as dead letters, or the target of a move. `came_in`: they were in the queue (False: it refused them).
    """

    run: Sequence[Message] | Envelope
    reason: str | None = None
    to: str | None = None
    came_in: bool = True


@slotted
class RequeuedEvent(Event):
    """Deliveries came back and are ready again. `counted`: they were failed attempts."""

    kind: EventKind = field(default=EventKind.REQUEUED, init=False)
    run: Sequence[Message]
    why: str
    counted: bool


@slotted
class LeaseEndedEvent(Event):
    """Leases of messages ended. Unless another event follows, the messages are ready again.

    `why`: deadline, unsubscribed, taken_over (by another client, or an operator), lifetime, site_lost; or the reason of
    a requeue: nacked, rejected, recovered, closed, lost.
    """

    kind: EventKind = field(default=EventKind.LEASE_ENDED, init=False)
    run: Sequence[Message]
    why: str


@slotted
class TransferredEvent(Event):
    """Ready messages belong to another site now, whose consumer gets them next. `number`: that of the target."""

    kind: EventKind = field(default=EventKind.TRANSFERRED, init=False)
    run: Sequence[Message]
    source: str
    target: str
    number: int

    @property
    def detail(self) -> dict[str, object]:
        return {"from": self.source, "to": self.target}


@slotted
class NotesEvent(ObjectEvent):
    """The state that the journal keeps with a queue's declaration changed (`Kind.notes`)."""

    kind: EventKind = field(default=EventKind.SETTINGS_CHANGED, init=False)


@slotted
class ScheduledEvent(Event):
    """Messages wait until they are due.

    `due_ns`: a time for each (monotonic ns). `counted`: for returned messages, whether the delivery was a failed
    attempt; None: they are new.
    """

    kind: EventKind = field(default=EventKind.SCHEDULED, init=False)
    run: Sequence[Message]
    why: str
    due_ns: Sequence[int]
    counted: bool | None = None


@slotted
class DueEvent(Event):
    """The wait of scheduled messages is over."""

    kind: EventKind = field(default=EventKind.DUE, init=False)
    run: Sequence[Message]


@slotted
class ConsumerEvent(ObjectEvent):
    """A subscription to the queue began or ended. `tag`: the consumer's tag."""

    tag: str
    client: "Client"
