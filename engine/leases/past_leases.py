"""The delivery tags of leases that ended without their holders.

A lease is the message itself, and always stays under its tag in the session until the client settles it. If the lease
ends by time, by another client's acknowledgement or by `basic.cancel`, the object is a tombstone there, so that a late
acknowledgement is no error, and the queue goes on with another object of the same id.
Source: queues page A.2 (lease), A.5 (stale tags).
"""

from typing import TYPE_CHECKING, ClassVar

from ..delivery.consumer import Holder
from ..messages.message import Envelope, Message

if TYPE_CHECKING:
    from ..clients.session import Session
    from ..queues.queue import Queue

#: The id of a tombstone without a message: an acknowledgement has no effect.
NOTHING = 0


class PastHolder(Holder):
    """Holder of the leases of one queue that ended at a session: they count nowhere."""

    is_past: ClassVar[bool] = True

    __slots__ = ()

    def __init__(self, queue: "Queue", session: "Session") -> None:
        super().__init__(queue, session, counts_against_prefetch=False)


def shown(content: bytes, envelope: Envelope) -> Message:
    """A delivery that is only shown: an acknowledgement of it has no effect."""
    return Message(NOTHING, content, envelope)
