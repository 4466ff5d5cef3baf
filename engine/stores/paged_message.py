"""A message whose content may be left to the journal: the object stays, its blob is read back when it is looked at.

`blob` is the one place where that happens, so that nobody ever sees a message without its content. The envelope stays
in memory: to ask for priority or persistence reads no file. Source: queues page, F.2 (TargetEntry).
"""

from typing import Protocol

from ..messages.message import Envelope, Message
from .surroundings import Owner

#: The key of a message that nobody has asked yet.
UNKNOWN = object()


class Home(Protocol):
    """The ready list that such a message is in, or was in."""

    def fetch(self, message: "PagedMessage") -> bytes:
        """Its content, from the journal. Raises: Unreadable."""


class PagedMessage(Message):
    """`key`: its last value's, None: it has none. `is_original`: the journal's content is this one.

    `is_listed`: it is in `home`.
    """

    __slots__ = ("_body_octets", "_content", "home", "is_listed", "is_original", "key", "octets")

    def __init__(self, id_: int, blob: bytes, envelope: Envelope, home: Home) -> None:
        super().__init__(id_, blob, envelope)
        self._body_octets = 0
        self.home = home
        self.is_listed = False
        self.is_original = True
        self.key: object = UNKNOWN

    @property
    def blob(self) -> bytes:
        """See `Message`. Raises: Unreadable."""
        content = self._content
        return self.home.fetch(self) if content is None else content

    @blob.setter
    def blob(self, blob: bytes) -> None:
        self._content: bytes | None = blob
        self.octets = len(blob)  # as they count, wherever they are
        self.is_original = False

    @property
    def is_left(self) -> bool:
        """Whether only the journal has its content."""
        return self._content is None

    @property
    def body_octets(self) -> int:
        """Of its body, wherever it is."""
        return self._body_octets if self._content is None else self.envelope.framing.body_size(self._content)

    def leave(self) -> None:
        """The journal has it as it is: nobody else needs to."""
        self._body_octets = self.body_octets
        self._content = None
        self.envelope = self.envelope.stored()

    def recall(self, blob: bytes) -> None:
        """The journal gave its content back."""
        self._content = blob

    def become(self, other: Message) -> None:
        """Be another message, at this one's place."""
        self.id, self.envelope = other.id, other.envelope
        self.expires_ns, self.deliveries, self.uncounted = other.expires_ns, other.deliveries, other.uncounted
        if isinstance(other, PagedMessage):
            self._content, self._body_octets, self.octets = other._content, other._body_octets, other.octets
            self.is_original, self.key = other.is_original, other.key
        else:
            self.blob, self.key = other.blob, UNKNOWN

    def copy(self) -> "PagedMessage":
        """The same content and envelope, left or not."""
        copy = PagedMessage(self.id, b"", self.envelope, self.home)
        copy.become(self)
        return copy


def octets_of(message: Message) -> int:
    """Of its blob, as limits count them. Reads nothing back."""
    return message.octets if isinstance(message, PagedMessage) else len(message.blob)


def body_size(message: Message) -> int:
    """Octets of a message's body: what limits count. Reads nothing back."""
    if isinstance(message, PagedMessage):
        return message.body_octets
    return message.envelope.framing.body_size(message.blob)


def can_leave(queue: Owner, message: Message) -> bool:
    """Whether the journal has a message of this queue, as far as the queue knows."""
    pager, durability = queue.storage.pager, queue.storage.durability
    if pager is None or (durability is not None and durability.is_behind):
        return False
    return queue.stores(message.envelope) and pager.has(message.id)
