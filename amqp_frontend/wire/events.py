"""Events of the frame reader: one object for a run or a method, not for a frame.

`ids` of an event: class and method id, which a close names as its cause when the event is refused.
"""

from typing import ClassVar

from ...settings.slotted import slotted
from .channel_reader import ChannelReader
from .codec import Method, ids_of
from .publish_cache import PublishKind

NO_IDS = (0, 0)


@slotted
class HeaderReceived:
    """The peer speaks AMQP 0-9-1."""

    ids: ClassVar[tuple[int, int]] = NO_IDS


@slotted
class HeaderRejected:
    """The peer speaks another protocol: it gets the header of AMQP 0-9-1, and is disconnected. `octets`: its header."""

    octets: bytes = b""
    ids: ClassVar[tuple[int, int]] = NO_IDS


@slotted
class ConnectionMethod:
    """A method on channel 0 that is allowed in the connection's state."""

    method: Method

    @property
    def ids(self) -> tuple[int, int]:
        """Class and method id of the method."""
        return ids_of(self.method.index)


@slotted
class ChannelMethod:
    """A method on an open channel; `channel` is None for channel.open."""

    number: int
    channel: ChannelReader | None
    method: Method

    @property
    def ids(self) -> tuple[int, int]:
        """Class and method id of the method."""
        return ids_of(self.method.index)


@slotted
class PublishReceived:
    """A run of publishes on one channel with the same arguments and the same property summary.

    `kind`: of all of them. `contents`: content frames as they arrived. `oversized`: the body size of a message that was
    larger than allowed (its content is empty), else 0.
    """

    channel: ChannelReader
    kind: PublishKind
    contents: list[bytes]
    oversized: int = 0
    ids: ClassVar[tuple[int, int]] = (60, 40)


@slotted
class MixedReceived:
    """Consecutive publishes on one channel, of several kinds: `kinds` and `contents` have one entry for each.

    The session knows their kinds (`PublishKind.known_route`), and none is too large.
    """

    channel: ChannelReader
    kinds: list[PublishKind]
    contents: list[bytes]
    ids: ClassVar[tuple[int, int]] = PublishReceived.ids


@slotted
class AcksReceived:
    """A run of basic.ack on one channel: single `tags`, then the tags of acks with multiple (`up_to`, rising)."""

    channel: ChannelReader
    tags: list[int]
    up_to: list[int]
    ids: ClassVar[tuple[int, int]] = (60, 80)


ProtocolEvent = (
    HeaderReceived | HeaderRejected | ConnectionMethod | ChannelMethod | PublishReceived | MixedReceived | AcksReceived
)
