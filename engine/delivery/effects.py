"""Effects: values in a client's outbox that its frontend turns into frames."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ..errors import EngineError
from ..messages.message import Envelope, Envelopes, Message, deliveries_of, id_of, stretches_alike
from .consumer import Consumer

if TYPE_CHECKING:
    from ..clients.session import Session


#: Octets of a delivery on the wire beside its content, roughly.
DELIVERY_OVERHEAD = 64


class Delivered:
    """An effect: a run of messages delivered to one consumer with consecutive delivery tags and one redelivered flag.

    `first_tag`: set by the session. `envelopes`: the one that all share, or one for each; `runs` hides the difference.
    """

    __slots__ = ("consumer", "contents", "envelopes", "first_tag", "redelivered")

    def __init__(
        self,
        consumer: Consumer,
        first_tag: int,
        envelopes: Envelopes,
        redelivered: bool,
        contents: Sequence[bytes],
    ) -> None:
        self.consumer = consumer
        self.first_tag = first_tag
        self.envelopes = envelopes
        self.redelivered = redelivered
        self.contents = contents

    @property
    def overhead(self) -> int:
        """Octets of each delivery beside its content, roughly."""
        return DELIVERY_OVERHEAD

    def runs(self) -> Iterator[tuple[int, Envelope, Sequence[bytes]]]:
        """First tag, envelope and contents of each stretch with one envelope, in order."""
        if isinstance(self.envelopes, Envelope):
            yield self.first_tag, self.envelopes, self.contents
            return
        for start, stop, envelope in stretches_alike(self.envelopes):
            yield self.first_tag + start, envelope, self.contents[start:stop]


class ConsumerCancelled:
    """An effect: the broker ended a subscription, for example because its queue was deleted."""

    __slots__ = ("consumer",)

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer


class SessionFailed:
    """An effect: the broker ended a session by an error; its unacknowledged messages are requeued."""

    __slots__ = ("error", "session")

    def __init__(self, session: "Session", error: EngineError) -> None:
        self.session = session
        self.error = error


Effect = Delivered | ConsumerCancelled | SessionFailed


def by_redelivered(messages: Sequence[Message], below: int) -> Iterable[tuple[bool, Sequence[Message]]]:
    """The messages in order, as runs of redelivered and of new ones. `below`: `QueueEvents.redelivered_below`."""
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
