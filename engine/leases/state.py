"""The state of a leased queue beyond that of other queues: its book of leases, its barriers and its active messages.

A message is either ready in the store, or leased: in the book, and in a session under its delivery tag.
Source: queues page A.2, A.3.
"""

from bisect import insort
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..clock import MS
from ..deadlines import Deadline
from ..delivery.consumer import UNLIMITED, Consumer
from ..delivery.consumer_list import ConsumerList
from ..messages.lease_headers import ORIGIN, topic_entry
from ..messages.message import Envelope, Message
from ..queues.queue import Queue
from ..rules.leased_rules import LeasedRules
from ..stores.store import Scanned
from .active_set import ActiveSet
from .book import LeaseBook
from .browse import Browse
from .consumer_list import LeaseConsumers
from .deferred_acks import DeferredAcks
from .past_leases import PastHolder
from .rebuild import Rebuild
from .replay import Replay

if TYPE_CHECKING:
    from ..clients.session import Session


def bookmark_of(id_: int) -> str:
    """The bookmark of a message (queues page C.3)."""
    return f"{ORIGIN}|{id_}|"


class LeasedParts(Queue):
    """`leased`: its rules; `book`: its leases; `lease_consumers`: its consumers; `browsing`, `replaying`: those of them
    that browse it, and that replay its topics.
    """

    __slots__ = (
        "_barriers",
        "_deadline",
        "_past",
        "_topics",
        "active",
        "book",
        "browsing",
        "deferred",
        "last_id",
        "lease_consumers",
        "leased",
        "rebuild",
        "recovered_point",
        "replaying",
    )

    def __init__(self, *arguments: Any, **options: Any) -> None:
        rules = options["rules"]
        assert rules.leased is not None
        self.leased: LeasedRules = rules.leased
        super().__init__(*arguments, **options)
        period_ms = self.leased.settings.lease_period_ms
        self.book = LeaseBook(0 if period_ms is None else period_ms * MS)
        self.browsing: dict[Consumer, Browse] = {}
        self.replaying: dict[Consumer, Replay] = {}
        self.last_id = 0  # the highest id that came
        self.recovered_point = ""  # the recovery point that it was built from; empty: none yet
        self.rebuild: Rebuild | None = None  # while it is rebuilt from the log
        self.deferred: DeferredAcks | None = None  # None: none
        self._past: dict[Session, PastHolder] = {}
        self._deadline: Deadline | None = None
        self._barriers: list[int] = []  # positions, rising; the first may be gone
        depth = self.leased.settings.target_queue_depth
        self.active = None if depth is None else ActiveSet(depth)
        self._topics: dict[tuple[str, str], bytes] = {}  # entries of headers, by exchange and routing key

    def _make_consumer_list(self) -> ConsumerList:
        context = self.context
        self.lease_consumers = LeaseConsumers(self.rules, context.broker.effort, context.broker.scheduler.waiting_count)
        return self.lease_consumers

    @property
    def is_ranked(self) -> bool:
        """Whether its messages have ranks or may be barriers. Such a queue has all its messages in memory."""
        return self.leased.priority is not None or self.leased.barrier is not None

    # -- contents -----------------------------------------------------------------------------------------------------

    def note_barrier(self, position: int) -> None:
        """Note the position of a barrier."""
        insort(self._barriers, position)

    def gate_position(self) -> int | None:
        """The position of the first barrier, which no message behind it passes; None: there is none."""
        barriers = self._barriers
        while barriers:
            seen = self.store.scan(barriers[0] - 1, 1).found
            if seen and seen[0][0] == barriers[0]:
                return barriers[0]
            del barriers[0]
        return None

    def positions_of(self, ids: Sequence[int]) -> list[int]:
        """Positions of active ready messages with these ids; some of the positions may be empty."""
        if self.is_ranked:
            wanted = set(ids)
            return [position for position, message in self.store.scan(0, len(self.store)).found if message.id in wanted]
        if self.active is None:
            return list(ids)
        self.active.refill(self.store)
        return [id_ for id_ in ids if id_ <= self.active.end]

    def scan_active(self, after: int, count: int) -> Scanned:
        """As `Store.scan`, for active messages only."""
        if self.active is None:
            return self.store.scan(after, count)
        self.active.refill(self.store)
        end, seen = self.active.end, self.store.scan(after, count)
        found = [one for one in seen.found if one[0] <= end]
        return Scanned(found, seen.missing and (seen.found[-1][0] if seen.found else after) < end)

    def left_active(self, messages: Sequence[Message]) -> None:
        """Messages are gone from the queue, so that later ones may become active."""
        if self.active is not None:
            self.active.left(map(self.store.position_of, messages))
            self.mark()

    # -- a lease begins -----------------------------------------------------------------------------------------------

    def room(self) -> int:
        """How many more leases the queue allows (MaxBacklog, TargetQueueDepth). Only active messages are leased."""
        settings = self.leased.settings
        if self.active is not None:
            self.active.refill(self.store)
        room = UNLIMITED if settings.max_backlog is None else settings.max_backlog - len(self.book)
        depth = settings.target_queue_depth
        return room if depth is None else min(room, depth - len(self.book.leases))

    def topic_of(self, envelope: Envelope) -> bytes:
        """The entry of the header that names a message's topic."""
        key = (envelope.exchange, envelope.routing_key)
        known = self._topics.get(key)
        if known is None:
            if len(self._topics) > 1000:
                self._topics.clear()
            known = self._topics[key] = topic_entry(self.context.router.captures.topic_of(*key))
        return known

    def gone(self, messages: Sequence[Message]) -> None:
        """Count messages as acknowledged, by their holders or by others."""
        if not messages:
            return
        self.events.acked(messages)
        self.left_active(messages)
        if self.book.cancels:
            for message in messages:
                self.book.cancels.pop(message.id, None)
        if self.throttle is not None:
            self.throttle.drained(self)
