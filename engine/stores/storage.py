"""The services that a store uses: the broker's storage with its temp store, and the queue that owns the store.

The temp store has contents on disk until they are released or the broker stops: transient messages of deep queues, and
publishes that frontends park. Source: queues page E.1 (tempUsage), E.5, G.E E15, E16, E30.
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from ...settings.slotted import slotted
from ..durability import Durability
from ..messages.message import Envelope, Message
from .memory_budget import MemoryBudget
from .paged_run import IN_JOURNAL, Location
from .tail import Pager, Unreadable

if TYPE_CHECKING:
    from .topic_log import MemoryLog, TopicLog


class TempStore(Protocol):
    """Files for contents that do not survive the process. `unspool` reads files, which may take longer than a turn."""

    #: Maximum octets; 0: limited by the disk only. It may change at any time.
    limit: int
    #: Called, within a turn, with `used` after each change.
    on_change: Callable[[int], object]
    #: The last write failed; a later one may succeed.
    has_failed: bool

    @property
    def used(self) -> int:
        """Octets that were spooled and not released."""

    def spool(self, contents: Sequence[bytes]) -> Location | None:
        """Store contents consecutively. None: the limit is reached, or a disk failed."""

    def unspool(self, location: Location, size: int) -> bytes:
        """Read `size` octets from a location. Raises: Unreadable."""

    def release(self, location: Location, size: int) -> None:
        """Free octets that are no longer needed: parts of any size, but each octet only once."""

    def close(self) -> None:
        """Free everything. No method may be called afterwards."""


class NoTempStore:
    """The temp store of a broker without a disk. It stores nothing."""

    def __init__(self) -> None:
        self.limit = self.used = 0
        self.has_failed = False
        self.on_change: Callable[[int], object] = lambda used: None

    def spool(self, contents: Sequence[bytes]) -> Location | None:
        return None

    def unspool(self, location: Location, size: int) -> bytes:
        raise AssertionError

    def release(self, location: Location, size: int) -> None:
        """Called only for locations in a store that was closed."""

    def close(self) -> None:
        pass


@slotted
class Storage:
    """The storage services of one broker. `pager`, `durability` and `open_log` are set with a journal.

    `on_unreadable`: called before `Unreadable` is raised, so that not only the reading connection learns of it.
    """

    pager: Pager | None = None
    durability: Durability | None = None
    memory: MemoryBudget = field(default_factory=MemoryBudget)
    on_unreadable: Callable[[Unreadable], object] = lambda error: None
    open_temp: Callable[[], TempStore] = NoTempStore
    open_log: "Callable[[], TopicLog] | None" = None
    _log: "TopicLog | None" = None
    _memory_log: "MemoryLog | None" = None
    _temp: TempStore | None = None
    _temp_limit: int = 0
    _on_temp_change: Callable[[int], object] = lambda used: None

    @property
    def is_ailing(self) -> bool:
        """Whether the last write to a disk failed and may succeed later."""
        durability = self.durability
        return self.temp.has_failed or (durability is not None and durability.is_behind and not durability.is_lost)

    @property
    def log(self) -> "TopicLog":
        """The log of logged topics: that of the journal, or the memory log."""
        if self._log is None:
            self._log = self.memory_log if self.open_log is None else self.open_log()
        return self._log

    @property
    def memory_log(self) -> "MemoryLog":
        """The log of a broker without a journal, made on first use."""
        if self._memory_log is None:
            from .topic_log import MemoryLog  # loaded only for capturing queues

            self._memory_log = MemoryLog()
        return self._memory_log

    @property
    def temp(self) -> TempStore:
        """The temp store, made by `open_temp` on first use."""
        temp = self._temp
        if temp is None:
            temp = self._temp = self.open_temp()
            temp.limit, temp.on_change = self._temp_limit, self._on_temp_change
        return temp

    def watch_temp(self, limit: int, on_change: Callable[[int], object]) -> None:
        """Set the limit of the temp store in octets (0: none), and the callback for its use in octets."""
        self._temp_limit, self._on_temp_change = limit, on_change
        if self._temp is not None:
            self._temp.limit, self._temp.on_change = limit, on_change
            on_change(self._temp.used)

    def close(self) -> None:
        """Close the temp store of a broker that has stopped."""
        temp, self._temp, self.open_temp = self._temp, None, NoTempStore
        if temp is not None:
            temp.close()


class StoreOwner(Protocol):
    """The part of a queue that its store uses."""

    @property
    def storage(self) -> Storage:
        """The broker's storage; always the same object."""

    def stores(self, envelope: Envelope) -> bool:
        """Whether messages with this envelope survive a restart in this queue."""

    def message_for(self, id_: int, content: bytes, envelope: Envelope) -> Message:
        """Make a message of the queue, with its message group."""

    def paged_out(self, count: int, octets: int, octets_paged: int, *, are_stored: bool) -> None:
        """Called when messages left memory, or (numbers below 0) came back. `octets`: those of their contents.

        `octets_paged`: `paged_run.octets_paged`. Only a metered store calls it (`TailedStore.limit_memory`).
        """

    def could_not_page(self) -> None:
        """Called when messages could not be paged out. After a fault of the disk the queue calls `page_again` later."""

    def loaded(self, messages: list[Message], attempts: int) -> None:
        """Called when messages came back from the tail. `attempts`: the failed attempts of each, which are not in the
        contents.
        """


class _NoOwner:
    """The owner of a store whose queue was deleted: it does nothing."""

    storage = Storage()

    def stores(self, envelope: Envelope) -> bool:
        return False

    def message_for(self, id_: int, content: bytes, envelope: Envelope) -> Message:
        return Message(id_, content, envelope)

    def paged_out(self, count: int, octets: int, octets_paged: int, *, are_stored: bool) -> None:
        return

    def could_not_page(self) -> None:
        return

    def loaded(self, messages: list[Message], attempts: int) -> None:
        return


#: Replaces a deleted queue as owner, to break the cycle of references (`Store.leave_owner`).
NO_OWNER: StoreOwner = _NoOwner()


def can_page_out(owner: StoreOwner, message: Message) -> bool:
    """Whether the content may be dropped from memory, because the journal has this message of the queue."""
    pager, durability = owner.storage.pager, owner.storage.durability
    if pager is None or (durability is not None and durability.is_behind):
        return False
    return owner.stores(message.envelope) and pager.has(message.id)


def share_of_log(owner: StoreOwner) -> int | None:
    """The octets that a `Log` may have in memory; its windows may have as much. None: it cannot page out now."""
    pager, durability = owner.storage.pager, owner.storage.durability
    if pager is None or (durability is not None and durability.is_behind) or not owner.stores(IN_JOURNAL):
        return None
    return pager.budget() // 2
