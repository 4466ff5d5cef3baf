"""The state that only a leased queue has.

A message of the queue is in one place: ready in the store, scheduled, or leased. A leased one is in the book, and in a
session under its delivery tag.
Source: queues page A.2, A.3, A.7.
"""

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from ...settings.slotted import slotted
from ..clock import MS
from ..delivery.consumer import Consumer, holder_of
from ..messages.message import UNLIMITED, Envelope, Message
from ..queues.queue import Queue
from ..stores.store import Scanned
from ..stores.tailed_store import TailedStore
from .book import LeaseBook
from .consumer_list import LeaseConsumers
from .deferred_acks import DeferredAcks
from .headers import ORIGIN, topic_entry
from .hosts import hosts_of
from .owners import Owners
from .past_holder import PastHolder
from .replay import Replay
from .replay_rules import Boundary
from .rules import LeasedRules, rules_in

if TYPE_CHECKING:
    from ..clients.session import Session
    from ..deadlines import Deadline

#: Maximum messages that a transfer makes active in one step.
EXTENDED = 1000


class Leases:
    """The state of one leased queue.

    `book`: its leases. `browsing`, `replaying`: the consumers that browse it, or replay its topics. `active`: the
    messages that may be leased; None: all. `deferred`: acknowledgements of messages that have not come, or are
    scheduled or not active; None: there are none. `rebuild`: the progress of a rebuild; None: the queue is complete.

    `last_id`: the highest id of a message so far. `recovered_point`: the recovery point that the queue was built from;
    empty: it is not built yet. `past`: session -> holder of its leases that have ended, and of its copies. `deadline`:
    of the next end of a lease or lifetime. `barriers`: their positions, rising; the barriers themselves may be gone.
    `hosts`: the sites that host the queue; None: all. `owners`: the sites that own its messages; None: they have no
    owners. `transfers`: the deadline of the next transfer.
    """

    def __init__(self, queue: Queue) -> None:
        consumer_list = queue.consumer_list
        assert isinstance(consumer_list, LeaseConsumers)
        self.queue = queue
        self.rules = rules_of(queue)
        self.consumer_list = consumer_list
        settings = self.rules.settings
        self.hosts = hosts_of(queue, settings.name, settings.replication)
        self.book = LeaseBook(0 if settings.lease_period_ms is None else settings.lease_period_ms * MS)
        self.browsing: dict[Consumer, Browse] = {}
        self.replaying: dict[Consumer, Replay] = {}
        self.last_id = 0
        self.recovered_point = ""
        self.rebuild: Rebuild | None = None
        self.deferred: DeferredAcks | None = None
        self.past: dict[Session, PastHolder] = {}
        self.deadline: Deadline | None = None
        self.barriers: list[int] = []
        depth = settings.target_queue_depth
        self.active = None if depth is None else ActiveSet(depth)
        sites = queue.context.broker.sites
        self.owners: Owners | None = None
        if self.hosts is not None and not self.hosts.is_of_one_site:
            self.owners = Owners(sites, settings.initial_owner)
        self.transfers: Deadline | None = None
        self.topic_entries: dict[tuple[str, str], bytes] = {}  # cached, for headers; by exchange and routing key

    # -- contents -----------------------------------------------------------------------------------------------------

    def refill_active(self) -> None:
        """Make the next messages active, if the queue has a target depth."""
        if self.active is not None and (store := self.queue.pageable) is not None:  # with ranks there is no depth
            self.active.refill(store)

    def note_barrier(self, position: int) -> None:
        insort(self.barriers, position)

    def gate_position(self) -> int | None:
        """The position of the first barrier, behind which all messages wait; None: there is no barrier."""
        barriers = self.barriers
        while barriers:
            seen = self.queue.store.scan(barriers[0] - 1, 1).found
            if seen and seen[0][0] == barriers[0]:
                return barriers[0]
            del barriers[0]
        return None

    def positions_of(self, ids: Sequence[int]) -> list[int]:
        """The positions of active ready messages with these ids. At some positions there may be no message."""
        store = self.queue.store
        if self.rules.is_ranked:
            wanted = set(ids)
            return [position for position, message in store.scan(0, len(store)).found if message.id in wanted]
        if self.active is None:
            return list(ids)
        self.refill_active()
        return [id_ for id_ in ids if id_ <= self.active.end]

    def scan_active(self, after: int, count: int) -> Scanned:
        """Like `Store.scan`, for active messages only."""
        store = self.queue.store
        if self.active is None:
            return store.scan(after, count)
        self.refill_active()
        end, seen = self.active.end, store.scan(after, count)
        found = [one for one in seen.found if one[0] <= end]
        return Scanned(found, seen.missing and (seen.found[-1][0] if seen.found else after) < end)

    def ready_count(self) -> int:
        """The number of active ready messages."""
        count = len(self.queue.store)
        if self.active is None:
            return count
        self.refill_active()
        return min(count, max(0, self.active.count - len(self.book.leases)))

    def room(self, site: str | None = None) -> int:
        """The number of further leases that the queue allows (MaxBacklog, TargetQueueDepth).

        `site`: for the backlog of a site; None: all sites have one backlog together.
        """
        settings = self.rules.settings
        if self.active is not None:
            self.refill_active()
        backlog = settings.max_backlog
        room = UNLIMITED if backlog is None else backlog - (len(self.book) if site is None else self._leased_at(site))
        depth = settings.target_queue_depth
        return room if depth is None else min(room, depth - len(self.book.leases))

    # -- sites --------------------------------------------------------------------------------------------------------

    def site_at(self, consumer: Consumer) -> str:
        return consumer.client.site or self.queue.context.broker.sites.own

    def is_present(self, consumer: Consumer) -> bool:
        """Whether the site of a consumer is present."""
        return self.site_at(consumer) in self.queue.context.broker.sites.groups

    def is_served(self, site: str) -> bool:
        """Whether a site is present and hosts the queue."""
        hosts = self.hosts
        return site in self.queue.context.broker.sites.groups and (hosts is None or hosts.has(site))

    def _leased_at(self, site: str) -> int:
        """The number of leases and slots of a site's clients. O(consumers); with leases of gets O(leases)."""
        consumers = self.consumer_list.consumers
        count = sum(one.unacked for one in consumers if self.site_at(one) == site)
        if len(self.book) > sum(one.unacked for one in consumers):
            others = (one for one in map(holder_of, self.book) if not isinstance(one, Consumer))
            count += sum(one.session.client.site == site for one in others)
        return count

    def id_at(self, position: int) -> int:
        """The id of the message at a position; 0: it is gone."""
        if not self.rules.is_ranked:
            return position
        seen = self.queue.store.scan(position - 1, 1).found
        return seen[0][1].id if seen and seen[0][0] == position else 0

    def record_sites(self) -> None:
        """Record in the journal the sites that got new numbers, before other records use these numbers."""
        if self.owners is not None and self.owners.is_changed:
            self.owners.is_changed = False
            self.queue.events.notes_changed()

    def lowest_id(self) -> int:
        """An id; no message of the queue has a lower one. O(leases + scheduled); with ranks O(messages)."""
        scheduled = (message.id for message in self.queue.scheduled)
        lowest = min(chain(self.book.leases.by_id, scheduled), default=self.last_id + 1)
        if self.rules.is_ranked:
            return min(chain((message.id for message in self.queue.store), (lowest,)))
        store = self.queue.pageable
        return min(chain(() if store is None else store.positions(0, 1), (lowest,)))

    def await_transfer(self, due_ns: int) -> None:
        """Dispatch at `due_ns` (monotonic), when a message has waited long enough for its own site; 0: none waits."""
        deadlines, armed = self.queue.context.broker.deadlines, self.transfers
        if due_ns and (armed is None or armed.action is None or due_ns < armed.due_ns):
            deadlines.cancel(armed)
            self.transfers = deadlines.set(due_ns, self.queue.mark)

    # -- messages leave -----------------------------------------------------------------------------------------------

    def count_acked(self, messages: Sequence[Message]) -> None:
        """Count messages as acknowledged, by their holders or by others."""
        if not messages:
            return
        queue = self.queue
        queue.events.acked(messages)
        self.note_gone(messages)
        if self.book.cancels:
            for message in messages:
                self.book.cancels.pop(message.id, None)
        if queue.throttle is not None:
            queue.throttle.drained(queue)

    def note_gone(self, messages: Sequence[Message]) -> None:
        """Note messages that are gone: forget their owners, and count them out of the active ones."""
        if self.owners is not None:
            self.owners.forget(message.id for message in messages)
        if self.active is not None:
            self.active.left(map(self.queue.store.position_of, messages))
            self.queue.mark()
        if not len(self.queue.store) and not len(self.book.leases):
            self.book.lifetimes.clear()  # those of messages that are gone
            self.book.leased_lifetimes.clear()

    # -- names --------------------------------------------------------------------------------------------------------

    def topic_of(self, envelope: Envelope) -> bytes:
        """The header entry with a message's topic; for publishes to the name of a queue with hosts, its target."""
        key = (envelope.exchange, envelope.routing_key)
        known = self.topic_entries.get(key)
        if known is None:
            if len(self.topic_entries) > 1000:
                self.topic_entries.clear()
            settings = self.rules.settings
            is_by_name = self.hosts is not None and key in (("", settings.name), ("", self.queue.name))
            topic = settings.default_publish_target if is_by_name else None
            known = self.topic_entries[key] = topic_entry(topic or self.queue.context.router.captures.topic_of(*key))
        return known

    def past_holder_of(self, session: "Session") -> PastHolder:
        """The holder of a session's leases that have ended, and of copies without a lease."""
        past = self.past.get(session)
        if past is None:
            past = self.past[session] = PastHolder(self.queue, session)
        return past


class LeasesPart:
    """A part of a leased queue, with the state that all its parts share."""

    def __init__(self, leases: Leases) -> None:
        self.leases = leases


def state_of(queue: Queue) -> Leases | None:
    """The leases of a queue; None: it is of another kind."""
    settlement = queue.settlement
    return settlement.leases if isinstance(settlement, LeasesPart) else None


def leases_of(queue: Queue) -> Leases:
    settlement = queue.settlement
    assert isinstance(settlement, LeasesPart)
    return settlement.leases


def rules_of(queue: Queue) -> LeasedRules:
    return rules_in(queue.rules)


def bookmark_of(id_: int) -> str:
    """The bookmark of a message (queues page C.3)."""
    return f"{ORIGIN}|{id_}|"


class ActiveSet:
    """The first messages of a queue, up to its target depth. Only these active messages can be leased.

    `end`: the position of the last active message. `count`: active ones, leased or ready. Positions of paged-out
    messages are known without reading them.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self.count = 0
        self.end = 0

    def refill(self, store: TailedStore) -> None:
        """Make the next messages active, up to the depth. O(newly active messages)."""
        if self.count >= self._depth:
            return
        positions = store.positions(self.end, self._depth - self.count)
        self.count += len(positions)
        if positions:
            self.end = positions[-1]

    def count_new(self, positions: Iterable[int]) -> None:
        """Count those of these messages that became ready among the active ones."""
        end = self.end
        self.count += sum(position <= end for position in positions)

    def extend(self, store: TailedStore, position: int) -> None:
        """Make all messages up to a position active, beyond the depth. O(newly active messages)."""
        while self.end < position:
            positions = [one for one in store.positions(self.end, EXTENDED) if one <= position]
            self.count += len(positions)
            if len(positions) < EXTENDED:
                self.end = position
            else:
                self.end = positions[-1]

    def left(self, positions: Iterable[int]) -> None:
        """Count out those of these gone messages that were active."""
        end = self.end
        self.count -= sum(position <= end for position in positions)


@slotted
class Browse:
    """The position of one consumer that browses the queue.

    `after`: position of the last shown message. `until_id`: highest id to show. `left`: messages still to show.
    """

    until_id: int
    left: int
    after: int = 0


class Rebuild:
    """The progress of a rebuild.

    Messages from `boundary` on with ids below `until_id` come into the queue, unless they were in it before. Positions
    are those of the log: `start` of the first read, `position` of the next one, `end` of the last.
    A queue that existed before needs a first pass (`collects_ids`), which collects the ids of all messages that were in
    it (`entered`). Then messages before the boundary are dropped. `has_begun`: the last pass has reached the boundary.
    """

    def __init__(self, boundary: Boundary, position: int, end: int, until_id: int, *, collects_ids: bool) -> None:
        self.boundary, self.position, self.start, self.end, self.until_id = boundary, position, position, end, until_id
        self.collects_ids = collects_ids
        self.has_begun = False
        self.entered = array("q")

    def was_here(self, id_: int) -> bool:
        """Whether a message was in the queue before."""
        at = bisect_left(self.entered, id_)
        return at < len(self.entered) and self.entered[at] == id_
