"""Effects: what a client's frontend is to tell its peer, as values in the client's outbox."""

from collections.abc import Sequence

from ..delivery.consumer import Consumer, Receiver
from ..errors import EngineError
from ..messages.message import Envelope


class Delivered:
    """An effect: a run of messages handed to one consumer with consecutive delivery tags.

    All messages of a run share envelope and redelivered flag, so that a frontend renders them alike.
    """

    __slots__ = ("blobs", "consumer", "envelope", "first_tag", "redelivered")

    def __init__(
        self, consumer: Consumer, first_tag: int, envelope: Envelope, redelivered: bool, blobs: Sequence[bytes]
    ) -> None:
        self.consumer = consumer
        self.first_tag = first_tag
        self.envelope = envelope
        self.redelivered = redelivered
        self.blobs = blobs


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
