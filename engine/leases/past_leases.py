"""What becomes of the delivery tag of a lease that ended without its holder's doing.

A lease is the message itself: it stands under its tag in the session until the client settles it, whatever happens
meanwhile. Where the lease ends by time, by another's acknowledgement or by `basic.cancel`, the object stays there as a
tombstone, so that a late acknowledgement is no error, and the queue goes on with another object of the same id.
Source: queues page A.2 (lease), A.5 (stale tags).
"""

from typing import ClassVar

from ..delivery.consumer import Holder, Origin, Receiver
from ..messages.message import Envelope, Message

#: The id of a tombstone whose message is nobody's any more: an acknowledgement concerns nothing.
NOTHING = 0


class PastHolder(Holder):
    """Has the leases of one queue that ended at a session: they count nowhere any more."""

    is_past: ClassVar[bool] = True

    __slots__ = ()

    def __init__(self, queue: Origin, session: Receiver) -> None:
        super().__init__(queue, session, counts_against_prefetch=False)


def shown(blob: bytes, envelope: Envelope) -> Message:
    """A delivery that is only shown: an acknowledgement of it concerns nothing."""
    return Message(NOTHING, blob, envelope)
