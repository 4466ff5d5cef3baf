"""Replay: consumers that read the log of a leased queue's topics, without removing messages.

Each reads from a position of its choice, as fast as its prefetch and its rate allow; acknowledgements give it room for
more and have no other effect. At the end of the log it waits for new messages; a consumer that asked for a part of the
log is cancelled instead. The log is read between turns (`Broker.feed`). Source: queues page A.8.
"""

from collections.abc import Sequence

from ..clock import MS
from ..delivery.consumer import Consumer
from ..delivery.filter_groups import Asked
from ..errors import NoAckNotSupported, PrefetchMissing
from ..messages.lease_headers import replay_entries, with_entries
from ..messages.message import Message
from ..queues import consumers
from ..rules.replay_rules import REPLAY_ARGUMENTS, replay_rules
from ..stores.topic_log import LoggedMessage
from .ending import LeasedCore
from .past_leases import shown as only_shown
from .replay import Replay, ReplayHolder
from .state import bookmark_of

#: Octets that one read brings into memory.
READ_OCTETS = 64 * 1024
#: Units of `Effort` to read a message from the log, and to deliver it.
READING, SHOWING = 3, 5


def replay_for(queue: LeasedCore, consumer: Consumer, prefetch: int | None) -> Replay | None:
    """The replay that a consumer asks for; None: none. Raises: InvalidArgument, NoAckNotSupported, PrefetchMissing."""
    if REPLAY_ARGUMENTS.isdisjoint(consumer.arguments):
        return None
    name, vhost, context = queue.name, queue.vhost_name, queue.context
    log = context.broker.storage.log
    rules = replay_rules(
        consumer.arguments,
        last_id=queue.last_id,
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


def read_on(queue: LeasedCore, replay: Replay) -> None:
    """Read the next part of the log. Raises: Unreadable."""
    context, first = queue.context, replay.rules.first

    def is_wanted(exchange: str, routing_key: str, queues: Sequence[str], id_: int) -> bool:
        return context.router.captures.is_in_log(queue, exchange, routing_key, queues, id_)

    page = replay.log.read(queue.vhost_name, replay.position, is_wanted, READ_OCTETS)
    replay.position = page.next_position
    context.broker.effort.spent += READING * len(page.found)
    for one in page.found:
        if not replay.has_begun:
            if first is not None and not first.is_before(one.message.id, one.wall_ms):
                continue
            replay.has_begun = True
        replay.waiting.append(one)


def show_replays(queue: LeasedCore) -> None:
    """Deliver to each replay the messages that it has room for, in turns. O(messages looked at)."""
    effort = queue.context.broker.effort
    for consumer, replay in list(queue.replaying.items()):
        if effort.spent >= effort.turn_max:
            queue.mark()  # the rest is for the next turn
            break
        take_turn(queue, consumer)
        replay.look(queue.last_id)
        if consumer.client.paused or not consumer.session.flowing:
            continue
        if _show(queue, consumer, replay):
            continue
        if replay.is_hungry:
            queue.context.broker.scheduler.load_later(queue)
        elif not replay.waiting and replay.position >= replay.target:
            now_ms = queue.context.broker.clock.wall_ms()
            if replay.is_over(now_ms):
                _end(queue, consumer)
            elif replay.rules.last is not None and replay.rules.last.wall_ms:
                _wake(queue, replay, (replay.rules.last.wall_ms + 1 - now_ms) * MS)


def _show(queue: LeasedCore, consumer: Consumer, replay: Replay) -> bool:
    """Deliver messages that may go now. Returns whether that ended the replay."""
    context, waiting, holder = queue.context, replay.waiting, replay.holder
    now_ns = context.broker.clock.monotonic_ns()
    room = consumer.client.room()
    effort = context.broker.effort
    shown: list[Message] = []
    is_over = False
    while waiting and holder.unacked + len(shown) < replay.prefetch and room > 0:
        if effort.spent >= effort.turn_max:
            queue.mark()
            break
        one = waiting[0]
        if replay.is_behind_end(one):
            is_over = True
            break
        if not _is_for(queue, consumer, one.message):
            waiting.popleft()
            continue
        due_ns = replay.due_ns(one)
        if due_ns > now_ns:
            _wake(queue, replay, due_ns - now_ns)
            break
        waiting.popleft()
        replay.went(one, now_ns)
        copy = _copy(queue, one)
        room -= len(copy.content)
        shown.append(copy)
        effort.spent += SHOWING
    if shown:
        holder.unacked += len(shown)
        consumer.session.deliver_beside(consumer, shown, holder)
    if is_over:
        _end(queue, consumer)
    return is_over


def take_turn(queue: LeasedCore, consumer: Consumer) -> None:
    """Move a replay to the end of the line: it has its turn now."""
    queue.replaying[consumer] = queue.replaying.pop(consumer)


def _is_for(queue: LeasedCore, consumer: Consumer, message: Message) -> bool:
    """Whether the filters of the queue and of the consumer take a message."""
    captures, filter_ = queue.leased.filter, consumer.filter
    if captures is None and filter_ is None:
        return True
    asked = Asked(message, queue.context.broker.effort)
    return (captures is None or asked.is_taken_by(captures)) and (filter_ is None or asked.is_taken_by(filter_))


def _copy(queue: LeasedCore, one: LoggedMessage) -> Message:
    """A copy of a logged message for delivery. An acknowledgement of it has no effect on the queue."""
    message = one.message
    topic = queue.topic_of(message.envelope)
    entries = replay_entries(topic, bookmark_of(message.id), message.id, one.wall_ms)
    return only_shown(with_entries(message.envelope, message.content, entries), message.envelope.plain())


def _wake(queue: LeasedCore, replay: Replay, wait_ns: int) -> None:
    """Set a deadline to dispatch the queue again after `wait_ns`."""
    context = queue.context
    context.broker.deadlines.cancel(replay.deadline)
    replay.deadline = context.broker.deadlines.set(context.broker.clock.monotonic_ns() + wait_ns, queue.mark)


def _end(queue: LeasedCore, consumer: Consumer) -> None:
    """Cancel a consumer that has seen all that it asked for."""
    consumer.session.forget_consumer(consumer)
    consumers.remove(queue, [consumer])
    consumer.session.notify_cancelled(consumer)
