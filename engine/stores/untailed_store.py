"""The common base of stores whose messages consumers read without taking them out. They have no tail.

They page out their oldest messages by themselves as they grow, and are not part of the common memory budget.
"""

from collections.abc import Iterable, Sequence

from ..messages.message import Envelope, Message
from .memory_cap import UNLIMITED, MemoryCap
from .paged_run import Part
from .storage import NOBODY, Owner
from .store import HandOver


class UntailedStore:
    """The methods of `Store` that do nothing in these stores."""

    __slots__ = ("_owner", "cap", "expiring", "may_page", "quota")

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self.quota = 0
        self.cap: MemoryCap | None = None
        self.expiring = False
        self.may_page = False

    @property
    def first_offset(self) -> int | None:
        return None

    def paged_sizes(self, parts: Iterable[Part | Message]) -> Iterable[tuple[int, int, bool]]:
        """See `Store`. Not used by meters."""
        return ()

    def leave_owner(self) -> None:
        self._owner = NOBODY

    def allow_paging(self, allowed: bool) -> None:
        pass

    def expect_expiry(self) -> None:
        self.expiring = True

    def new_message(self, id_: int, content: bytes, envelope: Envelope) -> Message:
        return Message(id_, content, envelope)

    def restore_run(
        self,
        first_id: int,
        sizes: Sequence[int],
        expires: Sequence[int] | None = None,
        *,
        level: int = 0,
        deliveries: int = 0,
    ) -> None:
        """See `Store`. These stores are restored by their own methods."""
        raise AssertionError

    def page_out(self, octets: int, count_max: int = UNLIMITED) -> int:
        return 0

    def page_again(self) -> bool:
        return False

    def limit_memory(self, cap: MemoryCap | None, *, is_metered: bool) -> None:
        pass

    def settle_quota(self) -> bool:
        return False

    def is_low(self) -> bool:
        return False

    def wants_more(self, straight: bool, waiting: bool) -> bool:
        """See `Store`. These stores load messages into the windows of consumers."""
        return False

    def load(self, wanted: int = 1, wanted_octets: int = 1) -> None:
        pass

    def load_straight(self, count: int, octets: int, hand_over: HandOver) -> None:
        pass

    @property
    def counts_octets(self) -> bool | None:
        return None

    @property
    def level_max(self) -> int:
        return 0


class Scanning:
    """The reader of all scans. Without credit, its window is the first to be dropped."""

    __slots__ = ()

    def credit(self) -> int:
        return 0


SCANNING = Scanning()
