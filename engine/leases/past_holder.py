"""The holder of leases that have ended, and of copies that were delivered without a lease."""

from typing import TYPE_CHECKING, ClassVar

from ..delivery.consumer import Holder
from ..messages.message import Message
from ..queues.queue import Queue
from .headers import with_entries

if TYPE_CHECKING:
    from ..clients.session import Session

#: The id of a delivered object whose acknowledgement has no effect: a copy, or a slot that has ended.
NOTHING = 0


class PastHolder(Holder):
    """Holder of a session's leases of one queue that have ended, and of copies without a lease. They count nowhere.

    A lease is the message object itself, which stays under its tag in the session until the client settles it. If the
    lease ends before that, the object stays there, so that a late acknowledgement is no error. The queue continues with
    another object of the same id. Source: queues page A.2 (lease), A.5 (stale tags).
    """

    is_past: ClassVar[bool] = True

    __slots__ = ()

    def __init__(self, queue: Queue, session: "Session") -> None:
        super().__init__(queue, session, counts_against_prefetch=False)


def unleased_copy(message: Message, entries: bytes) -> Message:
    """A copy of a message, with more headers, for a delivery without a lease. Acknowledging it has no effect."""
    content = with_entries(message.envelope, message.content, entries)
    return Message(NOTHING, content, message.envelope.for_added_headers())
