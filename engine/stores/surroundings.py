"""What a store is lent by the broker, and what it asks of the queue whose messages it holds."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ..durability import Durability
from ..messages.message import Envelope, Message
from .memory_budget import MemoryBudget
from .tail import Pager, Unreadable
from .temp_store import NoTempStore, TempStore

if TYPE_CHECKING:
    from .topic_log import MemoryLog, TopicLog


class Storage:
    """The same for all stores of a broker, which sets `pager` and `durability` as a journal comes.

    `on_unreadable`: called when what was paged out or spooled could not be read, before `Unreadable` is raised: one
    connection may have asked, and the whole broker must know.
    """

    __slots__ = (
        "_log",
        "_memory_log",
        "_on_temp_change",
        "_temp",
        "_temp_limit",
        "durability",
        "memory",
        "on_unreadable",
        "open_log",
        "open_temp",
        "pager",
    )

    def __init__(self) -> None:
        self.pager: Pager | None = None
        self.durability: Durability | None = None
        self.memory = MemoryBudget()
        self.on_unreadable: Callable[[Unreadable], object] = lambda error: None
        self.open_temp: Callable[[], TempStore] = NoTempStore
        self.open_log: Callable[[], TopicLog] | None = None  # of a journal
        self._log: TopicLog | None = None
        self._memory_log: MemoryLog | None = None
        self._temp: TempStore | None = None
        self._temp_limit = 0
        self._on_temp_change: Callable[[int], object] = lambda used: None

    @property
    def is_ailing(self) -> bool:
        """Whether a disk took nothing when it was last asked, and may take it later."""
        durability = self.durability
        return self.temp.has_failed or (durability is not None and durability.is_behind and not durability.is_lost)

    @property
    def log(self) -> "TopicLog":
        """What leased queues are views of: the journal, or what is in memory."""
        if self._log is None:
            self._log = self.memory_log if self.open_log is None else self.open_log()
        return self._log

    @property
    def memory_log(self) -> "MemoryLog":
        """Where there is no journal; made when it is first asked for."""
        if self._memory_log is None:
            from .topic_log import MemoryLog  # a broker without leased queues need not have it

            self._memory_log = MemoryLog()
        return self._memory_log

    @property
    def temp(self) -> TempStore:
        """The temp store, which `open_temp` makes when it is first asked for."""
        temp = self._temp
        if temp is None:
            temp = self._temp = self.open_temp()
            temp.limit, temp.on_change = self._temp_limit, self._on_temp_change
        return temp

    def watch_temp(self, limit: int, on_change: Callable[[int], object]) -> None:
        """The temp store has this limit from now on (0: none); `on_change` is called with what is in it."""
        self._temp_limit, self._on_temp_change = limit, on_change
        if self._temp is not None:
            self._temp.limit, self._temp.on_change = limit, on_change
            on_change(self._temp.used)

    def close(self) -> None:
        """The broker has stopped: its temp store is gone."""
        temp, self._temp, self.open_temp = self._temp, None, NoTempStore
        if temp is not None:
            temp.close()


class Owner(Protocol):
    """The queue, as its store sees it."""

    @property
    def storage(self) -> Storage:
        """What the broker lends; always the same object."""

    def stores(self, envelope: Envelope) -> bool:
        """Whether messages of this kind survive a restart in this queue."""

    def message_for(self, id_: int, blob: bytes, envelope: Envelope) -> Message:
        """What the queue makes of an arrival: a message of a group, if it heeds groups. See `Store.new_message`."""

    def paged_out(self, count: int, octets: int, octets_paged: int, *, are_stored: bool) -> None:
        """So many messages left memory, where their blobs took so many octets; all below 0: they came back.

        `octets_paged`: see `paged_run.octets_paged`. Only a store that is metered says so (`Store.limit_memory`).
        """

    def could_not_page(self) -> None:
        """Messages stay in memory that were to leave it: if a disk is the reason, `Store.page_again` comes later."""

    def loaded(self, messages: list[Message], attempts: int) -> None:
        """These came back from the tail.

        `attempts`: how often each of them was tried; if it is more than 0, deliveries say so from now on
        (x-delivery-count). It is 0 for messages whose blob was kept as it was.
        """


class _Nobody:
    """Owns a store whose queue is gone, to which nothing comes any more."""

    storage = Storage()

    @staticmethod
    def stores(envelope: Envelope) -> bool:
        return False

    @staticmethod
    def message_for(id_: int, blob: bytes, envelope: Envelope) -> Message:
        return Message(id_, blob, envelope)

    @staticmethod
    def paged_out(count: int, octets: int, octets_paged: int, *, are_stored: bool) -> None:
        return

    @staticmethod
    def could_not_page() -> None:
        return

    @staticmethod
    def loaded(messages: list[Message], attempts: int) -> None:
        return


#: Takes the place of a queue that is gone, so that no cycle of references stays behind (see `Store.leave_owner`).
NOBODY: Owner = _Nobody()
