"""What the frame reader tells the session: one object a run or a method, never one a frame."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engine import PropertyFacts
from .codec import Method

if TYPE_CHECKING:
    from ..engine import Commit
    from .channel import Channel


@dataclass(slots=True)
class HeaderReceived:
    """The peer speaks AMQP 0-9-1."""


@dataclass(slots=True)
class HeaderRejected:
    """The peer speaks something else: it gets our protocol header, and the end. `octets`: how it began."""

    octets: bytes = b""


@dataclass(slots=True)
class ConnectionMethod:
    """A method on channel 0 that fits the connection's state."""

    method: Method


@dataclass(slots=True)
class ChannelMethod:
    """A method on an open channel; `channel` is None for channel.open."""

    number: int
    channel: "Channel | None"
    method: Method


@dataclass(slots=True)
class PublishReceived:
    """A run of publishes on one channel with the same arguments and the same property facts.

    `method_frame`: the whole basic.publish frame. `blobs`: content frames as they came. `oversized`: the body size of a
    message that was too large to keep (its blob is empty), else 0.
    """

    channel: "Channel"
    method_frame: bytes
    facts: PropertyFacts
    blobs: list[bytes]
    oversized: int = 0


@dataclass(slots=True)
class AcksReceived:
    """A run of basic.ack on one channel: single tags, then perhaps one that means all up to it (`up_to`)."""

    channel: "Channel"
    tags: list[int]
    up_to: int | None


@dataclass(slots=True)
class CommitUnderWay:
    """A tx.commit that was too much for one turn; it is answered when the commit is done."""

    channel: "Channel"
    commit: "Commit"


ProtocolEvent = (
    HeaderReceived | HeaderRejected | ConnectionMethod | ChannelMethod | PublishReceived | AcksReceived | CommitUnderWay
)
