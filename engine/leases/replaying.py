"""Replay: consumers that read the log of a leased queue's topics, without removing messages.

Each reads from a position of its choice, as fast as its prefetch and its rate allow; acknowledgements give it room for
more and have no other effect. At the end of the log it waits for new messages; a consumer that asked for a part of the
log is cancelled after that part. The log is read between turns (`Scheduler.load`). Source: queues page A.8.
"""

from collections.abc import Sequence

from ..clock import MS
from ..delivery.consumer import Consumer
from ..delivery.filter_groups import FilterTest
from ..errors import NoAckNotSupported, PrefetchMissing
from ..messages.message import Message
from ..queues import consumers
from ..queues.queue import Queue
from ..stores.topic_log import LoggedMessage
from .capture import capture_of
from .headers import replay_entries
from .past_holder import unleased_copy
from .replay import Replay, ReplayHolder
from .replay_rules import REPLAY_ARGUMENTS, replay_rules
from .state import Leases, bookmark_of

#: Octets that one read brings into memory.
READ_OCTETS = 64 * 1024
#: Units of effort to read a message from the log, and to deliver it.
READING_EFFORT, SHOWING_EFFORT = 3, 5


def replay_for(leases: Leases, consumer: Consumer, prefetch: int | None) -> Replay | None:
    """The replay that a consumer asks for; None: none. Raises: InvalidArgument, NoAckNotSupported, PrefetchMissing."""
    if REPLAY_ARGUMENTS.isdisjoint(consumer.arguments):
        return None
    queue = leases.queue
    name, vhost, context = queue.name, queue.vhost_name, queue.context
    log = context.broker.storage.log
    rules = replay_rules(
        consumer.arguments,
        last_id=leases.last_id,
        next_id=log.next_id(),
        now_ms=context.broker.clock.wall_ms(),
        name=name,
        vhost=vhost,
    )
    if consumer.no_ack:
        raise NoAckNotSupported(name=name, vhost=vhost)
    if not prefetch:
        raise PrefetchMissing(name=name, vhost=vhost)
    return Replay(log, rules, ReplayHolder(queue, consumer.session, queue.mark), prefetch)


def read_more(leases: Leases, replay: Replay) -> None:
    """Read the next part of the log. Raises: Unreadable."""
    queue, first, capture = leases.queue, replay.rules.first, capture_of(leases.queue)
    context = queue.context

    def is_wanted(exchange: str, routing_key: str, queues: Sequence[str], id_: int) -> bool:
        return capture.is_in_log(queue, exchange, routing_key, queues, id_)

    page = replay.log.read(queue.vhost_name, replay.position, is_wanted, READ_OCTETS)
    replay.position = page.next_position
    context.broker.turn.effort += READING_EFFORT * len(page.found)
    for one in page.found:
        if not replay.has_begun:
            if first is not None and not first.is_before(one.message.id, one.wall_ms):
                continue
            replay.has_begun = True
        replay.waiting.append(one)


def show_replays(leases: Leases) -> None:
    """Deliver to each replay the messages that its prefetch, its rate and its client let through now. O(examined)."""
    queue = leases.queue
    turn = queue.context.broker.turn
    for consumer, replay in list(leases.replaying.items()):
        if turn.effort >= turn.effort_max:
            queue.mark()  # the rest is for the next turn
            break
        move_to_end(leases, consumer)
        replay.follow_log(leases.last_id)
        if consumer.client.paused or not consumer.session.flowing:
            continue
        if _deliver(leases, consumer, replay):
            continue
        if replay.wants_load:
            queue.context.broker.scheduler.load_later(queue)
        elif not replay.waiting and replay.position >= replay.target:
            now_ms = queue.context.broker.clock.wall_ms()
            if replay.is_over(now_ms):
                consumers.cancel(queue, [consumer])
            elif replay.rules.last is not None and replay.rules.last.wall_ms:
                _wake(queue, replay, (replay.rules.last.wall_ms + 1 - now_ms) * MS)


def _deliver(leases: Leases, consumer: Consumer, replay: Replay) -> bool:
    """Deliver messages that were read and may go now. Returns whether the replay is over; it is cancelled then."""
    queue, waiting, holder = leases.queue, replay.waiting, replay.holder
    context = queue.context
    now_ns = context.broker.clock.monotonic_ns()
    room = consumer.client.outbox_room()
    turn = context.broker.turn
    shown: list[Message] = []
    is_over = False
    while waiting and holder.unacked + len(shown) < replay.prefetch and room > 0:
        if turn.effort >= turn.effort_max:
            queue.mark()
            break
        one = waiting[0]
        if replay.is_after_end(one):
            is_over = True
            break
        if not _is_for(leases, consumer, one.message):
            waiting.popleft()
            continue
        due_ns = replay.due_ns(one)
        if due_ns > now_ns:
            _wake(queue, replay, due_ns - now_ns)
            break
        waiting.popleft()
        replay.note_delivery(one, now_ns)
        copy = _copy(leases, one)
        room -= len(copy.content)
        shown.append(copy)
        turn.effort += SHOWING_EFFORT
    if shown:
        holder.unacked += len(shown)
        consumer.session.deliver_copies(consumer, shown, holder)
    if is_over:
        consumers.cancel(queue, [consumer])
    return is_over


def move_to_end(leases: Leases, consumer: Consumer) -> None:
    """Move a replay behind the others, because it is served now."""
    leases.replaying[consumer] = leases.replaying.pop(consumer)


def _is_for(leases: Leases, consumer: Consumer, message: Message) -> bool:
    """Whether the filters of the queue and of the consumer take a message."""
    captures, filter_ = leases.rules.filter, consumer.filter
    if captures is None and filter_ is None:
        return True
    test = FilterTest(message, leases.queue.context.broker)
    return (captures is None or test.is_taken_by(captures)) and (filter_ is None or test.is_taken_by(filter_))


def _copy(leases: Leases, one: LoggedMessage) -> Message:
    """A copy of a logged message for delivery. An acknowledgement of it has no effect on the queue."""
    message = one.message
    topic = leases.topic_of(message.envelope)
    entries = replay_entries(topic, bookmark_of(message.id), message.id, one.wall_ms)
    return unleased_copy(message, entries)


def _wake(queue: Queue, replay: Replay, wait_ns: int) -> None:
    """Set a deadline to dispatch the queue again after `wait_ns`."""
    context = queue.context
    context.broker.deadlines.cancel(replay.deadline)
    replay.deadline = context.broker.deadlines.set(context.broker.clock.monotonic_ns() + wait_ns, queue.mark)
