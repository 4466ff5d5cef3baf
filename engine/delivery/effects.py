"""Effects: what a client's frontend is to tell its peer, as values in the client's outbox."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..errors import EngineError
from ..messages.message import Envelope
from ..messages.mixed import Envelopes, stretches_alike
from .consumer import Consumer, Receiver

if TYPE_CHECKING:
    from ..messages.lease_headers import RunHeaders  # what a broker without leased queues need not have


#: Octets on the wire beside the content, roughly.
DELIVERY_OVERHEAD = 64


class Delivered:
    """An effect: a run of messages handed to one consumer with consecutive delivery tags and one redelivered flag.

    `first_tag`: the session gives it as it delivers. `envelopes`: the one that all share, or one for each. Frontends
    that do not care for the difference ask `runs`.
    """

    __slots__ = ("blobs", "consumer", "envelopes", "first_tag", "redelivered")

    def __init__(
        self,
        consumer: Consumer,
        first_tag: int,
        envelopes: Envelopes,
        redelivered: bool,
        blobs: Sequence[bytes],
    ) -> None:
        self.consumer = consumer
        self.first_tag = first_tag
        self.envelopes = envelopes
        self.redelivered = redelivered
        self.blobs = blobs

    @property
    def overhead(self) -> int:
        """Octets of each delivery beside its content, roughly."""
        return DELIVERY_OVERHEAD

    def runs(self) -> Iterator[tuple[int, Envelope, Sequence[bytes]]]:
        """First tag, envelope and contents of each stretch with one envelope, in order."""
        if isinstance(self.envelopes, Envelope):
            yield self.first_tag, self.envelopes, self.blobs
            return
        for start, stop, envelope in stretches_alike(self.envelopes):
            yield self.first_tag + start, envelope, self.blobs[start:stop]


class DeliveredLeases(Delivered):
    """An effect: a run of leases of messages with one envelope, each with headers of its own.

    `blobs`: as published; `headers`: what each delivery says beside that.
    """

    __slots__ = ("headers",)

    def __init__(
        self, consumer: Consumer, first_tag: int, envelope: Envelope, blobs: Sequence[bytes], headers: "RunHeaders"
    ) -> None:
        self.consumer, self.first_tag, self.envelopes, self.blobs = consumer, first_tag, envelope, blobs
        self.redelivered = headers.deliveries > 1
        self.headers = headers

    @property
    def overhead(self) -> int:
        return DELIVERY_OVERHEAD + self.headers.size

    def plain(self) -> Delivered:
        """The same with contents that say all of it."""
        assert isinstance(self.envelopes, Envelope)
        dressed = self.headers.dressed(self.envelopes, self.blobs)
        return Delivered(self.consumer, self.first_tag, self.envelopes.plain(), self.redelivered, dressed)

    def runs(self) -> Iterator[tuple[int, Envelope, Sequence[bytes]]]:
        return self.plain().runs()


class ConsumerCancelled:
    """An effect: the broker ended a subscription (its queue is gone)."""

    __slots__ = ("consumer",)

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer


class SessionFailed:
    """An effect: the broker ended a session; what it held is given back."""

    __slots__ = ("error", "session")

    def __init__(self, session: Receiver, error: EngineError) -> None:
        self.session = session
        self.error = error


Effect = Delivered | ConsumerCancelled | SessionFailed
