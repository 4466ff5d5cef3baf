"""The store of a last-value queue: of the messages with one key only the newest stays, in the position of the first.

The newest is the one that was published last, even if it came into the queue earlier. As in Artemis, it takes the
position of the old one within its level of priority, so that frequent changes do not delay the delivery of a key. The
message object, its envelope and the key are always in memory. Contents beyond the queue's share that the journal has
are dropped, and read back on access. Source: address-settings page 3.4, 5.8; queues page F.
"""

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice, takewhile
from operator import attrgetter

from ..messages.content import NATIVE
from ..messages.field_table import Field
from ..messages.levels import Levels
from ..messages.message import Envelope, Message, id_of, octets_of
from .levels import LeveledReady, ManyLevels
from .paged_run import messages_of
from .storage import NO_OWNER, StoreOwner, can_page_out
from .tailed_store import TailedStore

#: The value by which last-value queues find messages. Hashable.
Key = object
#: The key of a message before it is read.
UNKNOWN = object()
#: Maximum messages, and octets (or half of the budget), from the head that are read back with an accessed message.
AHEAD, AHEAD_OCTETS = 1000, 1024 * 1024
#: New messages between two reads of the share.
SHARE_EVERY = 1000

_first_id_of: Callable[[Message], int] = attrgetter("first_id")


def header_value(name: str) -> Callable[[Message], Key | None]:
    """A function from a message to its key: the value of the header `name`; None: no such header."""

    def value(message: Message) -> Key | None:
        field: Field | None = message.envelope.headers(message.content).get(name)
        return None if field is None else repr(field.comparable())

    return value


class PagedMessage(Message):
    """A message whose content may be only in the journal. An access reads it back if necessary, so that no code sees a
    message without content (queues page F.2, TargetEntry).

    `key`: its key in a last-value queue; None: it has none. `is_original`: the journal has the same content.
    `home`: the list that reads its content. `is_listed`: it is in this list.
    """

    __slots__ = ("_body_octets", "_content", "_octets", "home", "is_listed", "is_original", "key")

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
        self._octets = len(content)
        self.is_original = False

    @property
    def octets(self) -> int:
        return self._octets

    @property
    def is_paged(self) -> bool:
        """Whether the content is only in the journal."""
        return self._content is None

    @property
    def body_octets(self) -> int:
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
            self._content, self._body_octets, self._octets = other._content, other._body_octets, other._octets
            self.is_original, self.key = other.is_original, other.key
        else:
            self.content, self.key = other.content, UNKNOWN

    def copy(self) -> "PagedMessage":
        """A copy, whose content is in memory if this one's is."""
        copy = PagedMessage(self.id, b"", self.envelope, self.home)
        copy.become(self)
        return copy


class LastValueReady(LeveledReady):
    """The messages of a last-value queue. `paged_count`: the number of those whose content is only in the journal."""

    __slots__ = ("_by_key", "_key_of", "_owner", "_read_back", "_share", "_until_share_read", "memory_octets",
                 "paged_count")  # fmt: skip

    def __init__(self, owner: StoreOwner, levels: Levels, key_of: Callable[[Message], Key | None]) -> None:
        super().__init__(levels)
        self._owner = owner
        self._key_of = key_of
        self._by_key: dict[Key, Message] = {}
        self._share = 0
        self._until_share_read = 0
        self._read_back: OrderedDict[PagedMessage, None] = OrderedDict()  # listed messages, the oldest read first
        self.paged_count = 0
        self.memory_octets = 0  # octets of the contents of `PagedMessage` objects that are in memory

    def empty(self) -> "LastValueReady":
        return LastValueReady(self._owner, self.mapping, self._key_of)

    def leave_owner(self) -> None:
        self._owner = NO_OWNER

    def supersede(self, message: Message) -> tuple[Message | None, bool]:
        """Keep only the newer of a message and the listed one with the same key.

        Returns the older one, which is not listed now (None: no other message has the key), and whether the caller has
        to add the new message. O(level) if the two have different priorities.
        """
        key = self.key_of(message)
        listed = None if key is None else self._by_key.get(key)
        if listed is None:
            return None, True
        if listed.first_id > message.first_id:
            return message, False
        level = self._level_of(listed)
        if level is not self._level_of(message):
            level.remove(listed)
            self._removed(listed)
            return listed, True
        self.octets += message.body_octets - listed.body_octets
        self.content_octets += message.octets - listed.octets
        if isinstance(listed, PagedMessage):
            older: Message = listed.copy()
            self._unlist(listed)
            listed.become(message)
            listed.key = key
            self._list(listed)
            return older, False
        older = Message(listed.id, listed.content, listed.envelope)
        listed.id, listed.content, listed.envelope = message.id, message.content, message.envelope
        listed.expires_ns = message.expires_ns
        listed.deliveries, listed.uncounted = message.deliveries, message.uncounted
        return older, False

    def key_of(self, message: Message) -> Key | None:
        """The key of a message; None: it has none. Cached in messages whose content may be paged out."""
        if not isinstance(message, PagedMessage):
            return self._key_of(message)
        if message.key is UNKNOWN:
            message.key = self._key_of(message)
        return message.key

    def _added(self, message: Message) -> None:
        super()._added(message)
        key = self.key_of(message)
        if key is not None:
            self._by_key[key] = message
        if isinstance(message, PagedMessage):
            message.home = self
            self._list(message)

    def _removed(self, message: Message) -> None:
        super()._removed(message)
        key = self.key_of(message)
        if key is not None and self._by_key.get(key) is message:
            del self._by_key[key]
        if isinstance(message, PagedMessage):
            self._unlist(message)

    # -- contents -----------------------------------------------------------------------------------------------------

    def _list(self, message: PagedMessage) -> None:
        """Count a message that was added. Pages out its content if there is no room and the journal has it."""
        message.is_listed = True
        if message.is_paged:
            self.paged_count += 1
            return
        self._until_share_read -= 1
        if self._until_share_read < 0:
            self._until_share_read = SHARE_EVERY
            pager = self._owner.storage.pager
            self._share = 0 if pager is None else pager.budget() // 2  # contents that are read back have the other half
        if (
            self.memory_octets + message.octets > self._share
            and message.is_original
            and can_page_out(self._owner, message)
        ):
            message.page_out()
            self.paged_count += 1
        else:
            self.memory_octets += message.octets

    def _unlist(self, message: PagedMessage) -> None:
        message.is_listed = False
        self._read_back.pop(message, None)
        if message.is_paged:
            self.paged_count -= 1
        else:
            self.memory_octets -= message.octets

    def fetch(self, message: PagedMessage) -> bytes:
        """Read the contents of a message and of those at the head, which are delivered next. Raises: Unreadable.

        Contents that were read back before are dropped again if all together exceed the memory for the queue.
        """
        pager = self._owner.storage.pager
        assert pager is not None
        budget = pager.budget()
        octets = min(AHEAD_OCTETS, budget // 2)
        wanted = {message.id: message}
        for _, one in zip(range(AHEAD), takewhile(_is_paged, self)):
            assert isinstance(one, PagedMessage)
            octets -= one.octets
            if octets <= 0:
                break
            wanted[one.id] = one
        ids = sorted(wanted)
        for found in messages_of(ids, pager.load(ids)):
            one = wanted[found.id]
            one.recall(NATIVE.join(found.header, found.body))
            if one.is_listed:
                self.paged_count -= 1
                self.memory_octets += one.octets
                self._read_back[one] = None
        while self.memory_octets > budget and len(self._read_back) > len(ids):
            older, _ = self._read_back.popitem(last=False)
            if older.is_original and can_page_out(self._owner, older):
                older.page_out()
                self.paged_count += 1
                self.memory_octets -= older.octets
        return message.content


class LastValueStore(TailedStore):
    """A store without a tail, because all message objects are in memory.

    `key_of`: a function from a message to its key; messages without a key (None) are never replaced.
    """

    __slots__ = ()

    ready: LastValueReady

    def __init__(self, owner: StoreOwner, levels: Levels, key_of: Callable[[Message], Key | None]) -> None:
        super().__init__(owner, ManyLevels(LastValueReady(owner, levels, key_of)), counts_octets=True)
        self.share.may_page = False

    def leave_owner(self) -> None:
        super().leave_owner()
        self.ready.leave_owner()

    @property
    def is_deep(self) -> bool:
        return self.ready.paged_count > 0

    def new_message(self, id_: int, content: bytes, envelope: Envelope) -> Message:
        if self._storage.pager is None:
            return Message(id_, content, envelope)
        return PagedMessage(id_, content, envelope, self.ready)

    def append(self, message: Message) -> Message | None:
        return self._add(message, self.ready.append)

    def head_octets(self, count: int) -> int:
        return sum(map(octets_of, islice(self.ready, count)))

    def put_first(self, message: Message) -> Message | None:
        return self._add(message, super().put_first)

    def put_last(self, message: Message) -> Message | None:
        return self._add(message, super().put_last)

    def _add(self, message: Message, add: Callable[[Message], object]) -> Message | None:
        older, is_to_add = self._superseded(message)
        if is_to_add:
            add(message)
        return older

    def _superseded(self, message: Message) -> tuple[Message | None, bool]:
        older, is_to_add = self.ready.supersede(message)
        if older is not None and older is not message:
            self._mark_unsorted()  # the newer message takes the older one's position
        return older, is_to_add

    def put_back(self, messages: list[Message]) -> tuple[list[Message], int]:
        gone: list[Message] = []
        by_key: dict[Key, Message] = {}  # the requeued messages may include several values of one key
        fresh: list[Message] = []
        for message in sorted(messages, key=_first_id_of, reverse=True):
            key = self.ready.key_of(message)
            if key is not None and by_key.setdefault(key, message) is not message:
                gone.append(message)
                continue
            older, is_to_add = self._superseded(message)
            if older is not None:
                gone.append(older)
            if is_to_add:
                fresh.append(message)
        fresh.sort(key=id_of, reverse=True)
        self.ready.merge(fresh)
        return gone, 0


def _is_paged(message: Message) -> bool:
    return isinstance(message, PagedMessage) and message.is_paged
