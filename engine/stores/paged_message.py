"""A message whose content may be paged out: the object stays in memory, and its content is read back on access.

An access to `content` reads it back if necessary, so that no code sees a message without content. Priority and
persistence are known without a file, because the envelope stays in memory. Source: queues page, F.2 (TargetEntry).
"""

from typing import TYPE_CHECKING

from ..messages.message import Envelope, Message
from .storage import StoreOwner

if TYPE_CHECKING:
    from .last_value_store import LastValueReady

#: The value by which last-value queues find messages. Hashable.
Key = object
#: The key of a message before it is read.
UNKNOWN = object()


class PagedMessage(Message):
    """A message whose content may be only in the journal.

    `key`: its key in a last-value queue; None: it has none. `is_original`: the journal has the same content.

    `home`: the list that reads its content. `is_listed`: it is in this list. `octets`: those of its content.
    """

    __slots__ = ("_body_octets", "_content", "home", "is_listed", "is_original", "key", "octets")

    def __init__(self, id_: int, content: bytes, envelope: Envelope, home: "LastValueReady") -> None:
        super().__init__(id_, content, envelope)
        self._body_octets = 0
        self.home = home
        self.is_listed = False
        self.is_original = True
        self.key: object = UNKNOWN

    @property
    def content(self) -> bytes:
        """The content, read back if necessary. Raises: Unreadable."""
        content = self._content
        return self.home.fetch(self) if content is None else content

    @content.setter
    def content(self, content: bytes) -> None:
        self._content: bytes | None = content
        self.octets = len(content)
        self.is_original = False

    @property
    def is_paged(self) -> bool:
        """Whether the content is only in the journal."""
        return self._content is None

    @property
    def body_octets(self) -> int:
        """Octets of the body."""
        return self._body_octets if self._content is None else self.envelope.framing.body_size(self._content)

    def page_out(self) -> None:
        """Drop the content from memory. The journal must have it."""
        self._body_octets = self.body_octets
        self._content = None
        self.envelope = self.envelope.stored()

    def recall(self, content: bytes) -> None:
        """Set the content that was read from the journal."""
        self._content = content

    def become(self, other: Message) -> None:
        """Take the state of another message, and keep the position in the queue."""
        self.id, self.envelope = other.id, other.envelope
        self.expires_ns, self.deliveries, self.uncounted = other.expires_ns, other.deliveries, other.uncounted
        if isinstance(other, PagedMessage):
            self._content, self._body_octets, self.octets = other._content, other._body_octets, other.octets
            self.is_original, self.key = other.is_original, other.key
        else:
            self.content, self.key = other.content, UNKNOWN

    def copy(self) -> "PagedMessage":
        """A copy, whose content is in memory if this one's is."""
        copy = PagedMessage(self.id, b"", self.envelope, self.home)
        copy.become(self)
        return copy


def octets_of(message: Message) -> int:
    """Octets of a message's content, for limits. Reads no file."""
    return message.octets if isinstance(message, PagedMessage) else len(message.content)


def body_size(message: Message) -> int:
    """Octets of a message's body, for limits. Reads no file."""
    if isinstance(message, PagedMessage):
        return message.body_octets
    return message.envelope.framing.body_size(message.content)


def can_page_out(queue: StoreOwner, message: Message) -> bool:
    """Whether the content may be dropped from memory, because the journal has this message of the queue."""
    pager, durability = queue.storage.pager, queue.storage.durability
    if pager is None or (durability is not None and durability.is_behind):
        return False
    return queue.stores(message.envelope) and pager.has(message.id)
