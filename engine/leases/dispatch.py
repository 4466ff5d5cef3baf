"""The dispatch of a leased queue: leases and barriers to consumers, and copies to browsing ones.

If a consumer has a filter, the next message is the first one that a free consumer takes. Among such consumers the
fairness model chooses. Messages are found as in other queues (`queues/searching.py`).
Source: queues page A.4, A.7, A.9.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ..delivery.consumer import Consumer, holder_of
from ..delivery.consumer_list import RUN_MAX
from ..delivery.filter_groups import FilterTest
from ..errors import InvalidArgument
from ..messages.field_table import INTEGER_TAGS, FieldTable
from ..messages.message import UNLIMITED, Message
from ..queues import consumers
from ..queues.classic import balance_memory
from ..queues.parts import Dispatch
from ..queues.queue import Queue
from ..queues.searching import CATCH_UP_STEPS, groups_behind
from ..queues.selection import FOUND_MAX, SEARCH_EFFORT, Selection
from ..rules.arguments import REPLACE, Reason
from . import deferring, rebuilding
from .by_site import Free, activate, dispatch_by_site, pop_at, pop_first
from .ending import TIME_LIMIT, UNSUBSCRIBED, break_leases, expire_for, expire_ready
from .granting import begin, drop_expired, grant, presented, runs_of
from .headers import browse_entries, lease_entries
from .owner_groups import OwnerGroups
from .past_holder import NOTHING, unleased_copy
from .replay_rules import REPLAY_ARGUMENTS
from .replaying import move_to_end, read_more, replay_for, show_replays
from .state import Browse, Leases, LeasesPart, bookmark_of

if TYPE_CHECKING:
    from ...expressions.language import Expression

#: Messages that one turn shows to one browsing consumer.
BROWSE_SLICE = 300
#: Units of effort to show one message, in addition to the scan; this includes later garbage collection.
SHOWING_EFFORT = 4

#: Arguments of consumers.
BACKLOG, TOP_N, BROWSE, RENEWAL = "x-max-backlog", "x-top-n", "x-browse", "x-lease-auto-renew"


@dataclass(slots=True, frozen=True)
class ConsumerRequest:
    """The arguments of one consumer, except those of replays.

    `backlog`: maximum of leases; 0: only barriers; None: its prefetch decides. `browses`: it gets copies of messages,
    without leases; of `top_n` messages (None: of all). `renews`: its leases are renewed while its connection is alive.
    """

    backlog: int | None
    top_n: int | None
    browses: bool
    renews: bool


def dispatch(leases: Leases, *, expires: bool = True) -> None:
    """Lease ready messages to consumers with room, and show messages to browsers and replays.

    Messages behind a barrier wait until the barrier is released. The turn's effort ends the dispatch early.
    O(delivered x consumers). `expires`: expire due messages first.
    """
    queue = leases.queue
    if queue.freeze_count or queue.deleted:
        return
    store, pageable, turn = queue.store, queue.pageable, queue.context.broker.turn
    if leases.deferred is not None:
        deferring.settle_entered(leases)
    if leases.browsing:
        _show_to_browsers(leases)
    if leases.replaying:
        show_replays(leases)
    if store.expiring and expires:
        expire_ready(leases, queue.context.broker.clock.monotonic_ns())
        is_done = queue.expire()
        queue.arm_expiry()
        if not is_done:
            return
    if queue.selection is not None:
        _dispatch_selected(leases, queue.selection)
        return
    while True:
        if (
            pageable is not None
            and not store.ready
            and store.has_tail
            and leases.room() > 0
            and leases.consumer_list.has_credit()
        ):
            pageable.load()
        if leases.deferred is not None:  # acknowledgements of messages that this dispatch made active
            deferring.settle_entered(leases)
        if not store.ready:
            break
        count = min(len(store.ready), leases.room(), RUN_MAX)
        if leases.deferred is not None and leases.active is not None:
            count = min(count, leases.active.count - len(leases.book.leases))
        if leases.rules.barrier is not None:
            count = _before_barrier(leases, count)
            if count < 0:
                if not _release_barrier(leases):
                    break
                continue
        if count <= 0 or not _hand_out(leases, count):
            break
        if turn.effort >= turn.effort_max:
            queue.mark()  # the rest is for the next turn
            break
    balance_memory(queue)


def _dispatch_selected(leases: Leases, selection: Selection) -> None:
    """Dispatch in a queue with a filtering consumer, or whose messages have owners, and release barriers."""
    queue, owners = leases.queue, leases.owners
    dispatch_once = _dispatch_found if owners is None else partial(dispatch_by_site, owners=owners)
    dispatch_once(leases, selection)
    while _barrier_is_first(leases) and _release_barrier(leases):
        dispatch_once(leases, selection)
    queue.enforce_quota()


def _hand_out(leases: Leases, count: int) -> bool:
    """Lease up to `count` messages in one deal, as the clients have room. Returns whether a consumer was free."""
    store = leases.queue.consumable
    dealt = leases.consumer_list.deal(count)
    if not dealt:
        return False
    if len(dealt) > 1 and dealt[0] is dealt[-1] and dealt.count(dealt[0]) == len(dealt):
        grant(leases, dealt[0], drop_expired(leases, store.take(len(dealt), dealt[0].client.outbox_room())))
        return True
    room = min(consumer.client.outbox_room() for consumer in set(dealt))
    while len(dealt) > 1 and store.head_octets(len(dealt)) > room:
        del dealt[len(dealt) // 2 :]
    messages = store.take(len(dealt), UNLIMITED)
    for consumer, run in runs_of(dealt, messages):
        grant(leases, consumer, drop_expired(leases, run))
    return True


# -- to filtering consumers -------------------------------------------------------------------------------------------


def _dispatch_found(leases: Leases, selection: Selection) -> None:
    """Lease found messages and search for more, while consumers have credit and the turn has time."""
    queue, search = leases.queue, selection.search
    store, turn = queue.store, queue.context.broker.turn
    search.is_waiting = False
    until = min(turn.effort_max, turn.effort + SEARCH_EFFORT)
    steps = CATCH_UP_STEPS
    while leases.room() > 0:
        free = _free(leases, selection)
        if not free or not search.examine_returned(store, until):
            break
        lagging = groups_behind(free)
        if lagging and steps and search.advance(store, lagging, FOUND_MAX, until):
            steps -= 1
            continue
        if _hand_out_found(leases, free):
            if turn.effort < until:
                continue
            break
        if turn.effort >= until or not search.advance(store, list(free), FOUND_MAX, until):
            break
    search.continue_later(queue, until)


def _free(leases: Leases, selection: Selection) -> Free:
    """Consumers with room for a message, by group, in the order of their subscriptions."""
    free: Free = {}
    for consumer in leases.consumer_list.free():
        free.setdefault(selection.groups.of(consumer), []).append(consumer)
    return free


def _hand_out_found(leases: Leases, free: Free) -> bool:
    """Lease the first message found for any of these groups. Returns False if none may go now."""
    queue, store, gate = leases.queue, leases.queue.consumable, leases.gate_position()
    position = min((group.found[0].position for group in free if group.found), default=None)
    if position is None or (gate is not None and position >= gate):
        return False
    if not activate(leases, position):
        return False
    # Not counted earlier: a dispatch that hands nothing out must be able to continue its search.
    queue.context.broker.turn.effort += len(free)
    takers = [group for group in free if group.found and group.found[0].position == position]
    for group in takers:
        del group.found[0]
    messages = store.take_at([position]).messages
    if not messages:
        return True  # it has left the queue since it was found
    now_ns = queue.context.broker.clock.monotonic_ns()
    if 0 < messages[0].expires_ns < now_ns:
        expire_for(leases, messages, (TIME_LIMIT,))
        return True
    consumers = sorted((one for group in takers for one in free[group]), key=queue.consumer_list.consumers.index)
    grant(leases, leases.consumer_list.choose(consumers), messages)
    return True


# -- barriers ---------------------------------------------------------------------------------------------------------


def _barrier_is_first(leases: Leases) -> bool:
    """Whether the first ready message is a barrier."""
    return leases.rules.barrier is not None and bool(leases.queue.store.ready) and _before_barrier(leases, 1) < 0


def _before_barrier(leases: Leases, count: int) -> int:
    """The number of messages before the first barrier, at most `count`; -1: the first message is a barrier."""
    gate = leases.gate_position()
    if gate is None:
        return count
    for at, (position, _) in enumerate(leases.queue.store.scan(0, max(count, 1)).found):
        if position >= gate:
            return at or -1
    return count


def _release_barrier(leases: Leases) -> bool:
    """Give the barrier at the head to the subscribers whose filters take it, and remove it.

    It waits while there are leases or slots, or no subscribers. Returns whether it was removed.
    """
    queue, takers = leases.queue, _subscribers(leases)
    if len(leases.book) or not takers:
        return False
    (message,) = queue.consumable.take(1, UNLIMITED)
    test = FilterTest(message, queue.context.broker)
    takers = [one for one in takers if one.filter is None or test.is_taken_by(one.filter)]
    message.deliveries += 1
    entries = lease_entries(leases.topic_of(message.envelope), bookmark_of(message.id), 1, 0, None, is_barrier=True)
    shown = unleased_copy(message, entries)
    for consumer in takers:
        queue.events.delivered((message,), consumer.session, consumer=consumer, no_ack=True)
        consumer.session.deliver_copies(
            consumer,
            [Message(NOTHING, shown.content, shown.envelope)],
            leases.past_holder_of(consumer.session),
            redelivered=message.id < queue.events.redelivered_below,
        )
    leases.count_acked([message])
    return True


def _subscribers(leases: Leases) -> list[Consumer]:
    """The consumers at served sites that neither browse nor replay: they may get barriers."""
    subscribed = (one for one in leases.consumer_list.consumers if leases.is_served(leases.site_at(one)))
    return [one for one in subscribed if one not in leases.browsing and one not in leases.replaying]


# -- browsing ---------------------------------------------------------------------------------------------------------


def _show_to_browsers(leases: Leases) -> None:
    """Show one more slice of messages to each browsing consumer with room. Cancel consumers that have seen all."""
    queue = leases.queue
    broker = queue.context.broker
    turn = broker.turn
    for consumer, browse in list(leases.browsing.items()):
        if turn.effort >= turn.effort_max:
            queue.mark()  # the rest is for the next turn
            break
        leases.browsing[consumer] = leases.browsing.pop(consumer)
        if consumer.client.paused or not consumer.session.flowing:
            continue
        seen = leases.scan_active(browse.after, BROWSE_SLICE)
        turn.effort += len(seen.found)
        now_ns = broker.clock.monotonic_ns()
        copies: list[Message] = []
        for position, message in seen.found:
            if browse.left <= 0:
                break
            browse.after = position
            is_shown = message.id <= browse.until_id and not 0 < message.expires_ns <= now_ns
            if is_shown and (consumer.filter is None or FilterTest(message, broker).is_taken_by(consumer.filter)):
                browse.left -= 1
                entries = browse_entries(leases.topic_of(message.envelope), bookmark_of(message.id))
                copies.append(unleased_copy(message, entries))
        turn.effort += SHOWING_EFFORT * len(copies)
        if copies:
            consumer.session.deliver_copies(consumer, copies, leases.past_holder_of(consumer.session))
        if seen.missing and browse.left > 0:
            broker.scheduler.load_later(queue)
        elif len(seen.found) < BROWSE_SLICE or browse.left <= 0:
            consumers.cancel(queue, [consumer])
        else:
            queue.mark()


# -- the part of the queue -------------------------------------------------------------------------------------------


class LeasedDispatch(LeasesPart, Dispatch):
    """Leases messages to consumers by the fairness model; shows copies to browsing and replaying ones."""

    def joining(self, queue: Queue, consumer: Consumer) -> None:
        """Read the arguments; prepare a browse or a replay. Raises: InvalidArgument, and the errors of `replay_for`."""
        leases = self.leases
        request = request_of(consumer.arguments, name=queue.name, vhost=queue.vhost_name)
        _check_renewal(queue, consumer, request)
        _give_backlog(leases, consumer, request)
        if leases.owners is not None and queue.selection is None:
            selection = queue.selection = Selection(queue.context.broker)
            selection.use_groups(OwnerGroups(queue.context.broker, leases.owners))
        asked = request.backlog if request.backlog is not None else consumer.session.prefetch_wanted
        if request.browses:
            queue.consumer_list.check_join(consumer, queue=queue.name, vhost=queue.vhost_name)
            leases.browsing[consumer] = Browse(
                leases.last_id, queue.ready_count if request.top_n is None else request.top_n
            )
            queue.mark()
        elif (replay := replay_for(leases, consumer, asked)) is not None:
            queue.consumer_list.check_join(consumer, queue=queue.name, vhost=queue.vhost_name)
            leases.replaying[consumer] = replay
            queue.mark()

    def joined(self, queue: Queue, consumer: Consumer) -> None:
        request = request_of(consumer.arguments, name=queue.name, vhost=queue.vhost_name)
        leases = self.leases
        is_unleased = request.browses or request.backlog == 0 or consumer in leases.replaying
        is_present = leases.is_present(consumer)
        leases.consumer_list.joined(consumer, is_unleased=is_unleased, is_present=is_present, renews=request.renews)

    def removes_messages(self, queue: Queue, consumer: Consumer) -> bool:
        return consumer not in self.leases.browsing and consumer not in self.leases.replaying

    def replace(
        self,
        queue: Queue,
        consumer: Consumer,
        arguments: FieldTable,
        filter_: "Expression | None",
        *,
        no_ack: bool,
        exclusive: bool,
    ) -> None:
        """Replace filter, backlog, priority and renewal; the consumer's leases continue. Raises: InvalidArgument."""
        leases = self.leases
        request = request_of(arguments, name=queue.name, vhost=queue.vhost_name)
        reads_only = request.browses or consumer in leases.browsing or consumer in leases.replaying
        reads_only = reads_only or not REPLAY_ARGUMENTS.isdisjoint(arguments)
        if reads_only or (no_ack, exclusive) != (consumer.no_ack, consumer.exclusive):
            reason = Reason("text", f"{BROWSE}, replay, no_ack and exclusive cannot be replaced")
            raise InvalidArgument(key=REPLACE, name=queue.name, vhost=queue.vhost_name, reason=reason)
        _check_renewal(queue, consumer, request)
        if queue.selection is not None:
            consumers.deselect(queue, queue.selection, [consumer])
        consumer.change(arguments, filter_)
        _give_backlog(leases, consumer, request)
        self.joined(queue, consumer)
        consumers.select(queue, consumer)
        queue.mark()

    def left(self, queue: Queue, leaving: Sequence[Consumer]) -> None:
        """End the leases, browses and replays of leaving consumers; tags stay valid (queues page A.2; conflict K5)."""
        leases = self.leases
        for consumer in leaving:
            leases.browsing.pop(consumer, None)
            if (replay := leases.replaying.pop(consumer, None)) is not None:
                queue.context.broker.deadlines.cancel(replay.deadline)
        leases.consumer_list.overdue.difference_update(leaving)
        if not queue.deleted and any(consumer.unacked for consumer in leaving):
            gone = set(leaving)
            break_leases(leases, [lease for lease in leases.book if lease.holder in gone], UNSUBSCRIBED)

    def offer(self, queue: Queue, message: Message) -> bool:
        return False

    def dispatch(self, queue: Queue) -> None:
        dispatch(self.leases)

    def pop(self, queue: Queue) -> Message | None:
        """The message for a basic.get; None: nothing is ready, the backlog is full, a barrier comes first, the queue is
        frozen, or the client's site is absent.

        A barrier waits for the messages before it, and then goes to the consumers that may get it; if there are none,
        to a get.
        """
        leases, store, broker = self.leases, queue.consumable, queue.context.broker
        sites = broker.sites
        queue.note_use()
        if (leases.owners is None and leases.room() <= 0) or queue.freeze_count:
            return None
        if sites.now and sites.now not in sites.groups:
            return None
        if leases.deferred is not None:
            deferring.settle_entered(leases)
        if store.expiring:
            expire_ready(leases, broker.clock.monotonic_ns())
            while not queue.expire(is_whole=True):
                pass
            queue.arm_expiry()
        if queue.pageable is not None and not store.ready and store.has_tail:
            queue.pageable.load()
        if not store.ready:
            return None
        if _barrier_is_first(leases) and (len(leases.book) or _subscribers(leases)):
            return None
        if leases.owners is not None:
            return pop_at(leases, leases.owners, sites.now) if sites.now else pop_first(leases, leases.owners)
        return store.take(1, UNLIMITED)[0]

    def presented(self, queue: Queue, message: Message) -> Message:
        return presented(self.leases, message)

    def got(self, queue: Queue, message: Message) -> None:
        """Begin a lease; with at-most-once, the message is gone."""
        begin(self.leases, [message], holder_of(message).session)

    def has_ready(self, queue: Queue) -> bool:
        """Also true while a consumer browses or replays."""
        return len(queue.store) > 0 or bool(self.leases.browsing) or bool(self.leases.replaying)

    def ready_count(self, queue: Queue) -> int:
        return self.leases.ready_count()

    def wants_load(self, queue: Queue) -> bool:
        if queue.deleted:
            return False
        if queue.selection is not None and queue.selection.search.is_waiting:
            return True
        leases = self.leases
        if leases.rebuild is not None:
            return True
        if leases.replaying and any(replay.wants_load for replay in leases.replaying.values()):
            return True
        return bool(leases.browsing) or _wants_more(queue)

    def load(self, queue: Queue) -> None:
        """Make one step of a rebuild, a search or a replay. Without these, read for browsers and into memory."""
        leases = self.leases
        if leases.rebuild is not None:
            rebuilding.step(leases, leases.rebuild)
            return
        if queue.selection is not None and queue.selection.search.is_waiting:
            if queue.pageable is not None:
                queue.selection.search.load(queue.pageable)
            queue.mark()
            return
        for consumer, replay in leases.replaying.items():
            if replay.wants_load:
                move_to_end(leases, consumer)
                read_more(leases, replay)
                queue.mark()
                return
        for browse in leases.browsing.values():
            queue.store.load_at(browse.after, BROWSE_SLICE)
            queue.mark()
        if queue.pageable is not None and _wants_more(queue):
            queue.pageable.load()


def _wants_more(queue: Queue) -> bool:
    """Whether memory has fewer messages than consumers may take soon."""
    pageable = queue.pageable
    return pageable is not None and pageable.is_deep and pageable.wants_more(is_straight=False, is_waiting=False)


def _check_renewal(queue: Queue, consumer: Consumer, request: ConsumerRequest) -> None:
    if request.renews and consumer.client.liveness is None:
        reason = Reason("text", "the connection has no heartbeats")
        raise InvalidArgument(key=RENEWAL, name=queue.name, vhost=queue.vhost_name, reason=reason)


def _give_backlog(leases: Leases, consumer: Consumer, request: ConsumerRequest) -> None:
    limit, requested = leases.rules.settings.max_per_subscription_backlog, request.backlog
    if requested is None:
        session = consumer.session
        requested = session.prefetch_wanted if session.prefetch_wanted is not None else 1
        requested = requested or limit
    consumer.prefetch = min(limit, requested) or limit


def request_of(arguments: FieldTable, *, name: str, vhost: str) -> ConsumerRequest:
    """Read the arguments, except those of replays. Raises: InvalidArgument."""
    where = {"name": name, "vhost": vhost}
    _boolean(arguments, REPLACE, where)  # only checked here; `clients/subscriptions.py` acts on it
    browses = _boolean(arguments, BROWSE, where)
    top_n = _natural(arguments, TOP_N, where)
    if top_n is not None and not browses:
        raise InvalidArgument(key=TOP_N, **where, reason=Reason("text", f"expected {BROWSE} beside it"))
    return ConsumerRequest(_natural(arguments, BACKLOG, where), top_n, browses, _boolean(arguments, RENEWAL, where))


def _boolean(arguments: FieldTable, key: str, where: dict[str, str]) -> bool:
    field = arguments.get(key)
    if field is None:
        return False
    if field.tag != "t":
        raise InvalidArgument(key=key, **where, reason=Reason("unacceptable", field.type_name))
    return bool(field.value)


def _natural(arguments: FieldTable, key: str, where: dict[str, str]) -> int | None:
    """Read an argument that is an integer from 0 on; None: it is missing."""
    field = arguments.get(key)
    if field is None:
        return None
    if field.tag not in INTEGER_TAGS or not isinstance(field.value, int):
        raise InvalidArgument(key=key, **where, reason=Reason("type", field.type_name))
    if field.value < 0:
        raise InvalidArgument(key=key, **where, reason=Reason("tuple", "value_negative", field.value))
    return field.value
