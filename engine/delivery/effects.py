"""Effects: values in a client's outbox that its frontend turns into frames."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ...settings.slotted import slotted
from ..errors import EngineError
from ..messages.message import Envelope, Envelopes, Message, deliveries_of, id_of, stretches_alike
from .consumer import Consumer

if TYPE_CHECKING:
    from ..clients.session import Session


#: Approximate octets of a delivery on the wire in addition to its content.
DELIVERY_OVERHEAD = 64


@slotted
class Delivered:
    """Messages delivered to one consumer, with consecutive delivery tags and the same redelivered flag.

    `first_tag`: set by the session. `envelopes`: the common one, or one for each message.
    """

    consumer: Consumer
    first_tag: int
    envelopes: Envelopes
    redelivered: bool
    contents: Sequence[bytes]

    @property
    def overhead(self) -> int:
        """Approximate octets of each delivery in addition to its content."""
        return DELIVERY_OVERHEAD

    def runs(self) -> Iterator[tuple[int, Envelope, Sequence[bytes]]]:
        """The messages as runs with one envelope: first tag, envelope, contents."""
        if isinstance(self.envelopes, Envelope):
            yield self.first_tag, self.envelopes, self.contents
            return
        for start, stop, envelope in stretches_alike(self.envelopes):
            yield self.first_tag + start, envelope, self.contents[start:stop]


@slotted
class ConsumerCancelled:
    """The broker ended a subscription, for example because its queue was deleted."""

    consumer: Consumer


@slotted
class SessionFailed:
    """The broker closed a session because of an error."""

    session: "Session"
    error: EngineError


Effect = Delivered | ConsumerCancelled | SessionFailed


def by_redelivered(messages: Sequence[Message], below: int) -> Iterable[tuple[bool, Sequence[Message]]]:
    """The messages in order, as runs with one redelivered flag. `below`: `QueueEvents.redelivered_below`."""
    if below and min(map(id_of, messages)) < below:
        return [
            (redelivered, list(run))
            for redelivered, run in groupby(messages, lambda one: one.deliveries > 0 or one.id < below)
        ]
    if not any(map(deliveries_of, messages)):
        return ((False, messages),)
    if all(map(deliveries_of, messages)):
        return ((True, messages),)
    return [(redelivered, list(run)) for redelivered, run in groupby(messages, lambda one: one.deliveries > 0)]
