"""A queue: ready messages in order of publishing, consumers in a rota, and the matching of the two.

Everything works on runs. A message's id is its place: a requeued message goes back where its id says. Messages that
a waiting consumer can take at once never enter the ready list.
Source: behaviour page 2.4, 2.7, 2.12, 4; performance page 4.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, repeat
from typing import TYPE_CHECKING

from ..settings import ResolvedSettings
from .consumer import Consumer
from .deadlines import Deadline
from .deaths import EXPIRED, MAXLEN
from .errors import ExclusiveConsumerRefused
from .events import Counters, EventKind
from .field_table import FieldTable
from .limits import MS, admit, arm, body_size, expire
from .message import Envelope, Message
from .ready import LeveledReady, Ready, merge_back
from .redelivery import Scheduled
from .returns import come_due, give_back
from .rules import NO_RULES, own_settings, rules_of, with_live

if TYPE_CHECKING:
    from .client import Client
    from .exchange import Binding
    from .virtual_host import VirtualHost

#: Of one turn at a rota no consumer takes more than this, so that shares stay even while sockets fill.
SHARE_MAX = 64


@dataclass(slots=True, frozen=True)
class QueueStatistics:
    """What is in a queue now, and what has happened to it (counters by event name)."""

    name: str
    ready: int
    unacked: int
    scheduled: int
    consumers: int
    counters: dict[str, int]


class Queue:
    """Source of the fields: queue.declare. `owner` is the client of an exclusive queue."""

    __slots__ = (
        "arguments",
        "auto_delete",
        "broker",
        "consumers",
        "counters",
        "deleted",
        "due_deadline",
        "durable",
        "exclusive",
        "expiring",
        "expiry_deadline",
        "had_consumers",
        "incoming",
        "name",
        "next_consumer",
        "own_settings",
        "owner",
        "ready",
        "rules",
        "scheduled",
        "unacked",
        "unused_deadline",
        "vhost",
    )

    def __init__(
        self,
        vhost: "VirtualHost",
        name: str,
        *,
        durable: bool,
        owner: "Client | None",
        auto_delete: bool,
        arguments: FieldTable,
    ) -> None:
        self.vhost = vhost
        self.broker = vhost.broker
        self.name = name
        self.durable = durable
        self.owner = owner
        self.exclusive = owner is not None
        self.auto_delete = auto_delete
        self.arguments = arguments
        self.own_settings = own_settings(arguments)
        self.rules = rules_of(arguments, self._resolved())
        self.ready = self._empty_ready()
        self.expiring = False  # has had messages that expire
        self.expiry_deadline: Deadline | None = None
        self.unused_deadline: Deadline | None = None
        self.scheduled = Scheduled()  # waiting for their time, neither ready nor out
        self.due_deadline: Deadline | None = None
        self.unacked = 0
        self.consumers: list[Consumer] = []
        self.next_consumer = 0  # where the rota goes on
        self.had_consumers = False
        self.deleted = False
        self.incoming: dict[Binding, None] = {}
        self.counters = Counters()

    def _resolved(self) -> ResolvedSettings:
        return self.broker.settings.resolve_queue(self.name, self.vhost.name, self.own_settings)

    def settings_changed(self) -> None:
        """The operator's settings are others now: what is live takes effect at the next return, death or arrival."""
        self.rules = with_live(self.rules, self._resolved())

    def _empty_ready(self) -> Ready:
        if self.rules.max_priority is None and self.rules.max_length_bytes is None:
            return deque()
        return LeveledReady(self.rules.max_priority or 0, body_size)

    def take_ready(self) -> Ready:
        """All ready messages, leaving none."""
        gone, self.ready = self.ready, self._empty_ready()
        return gone

    def statistics(self) -> QueueStatistics:
        """A snapshot."""
        return QueueStatistics(
            self.name,
            len(self.ready),
            self.unacked,
            len(self.scheduled),
            len(self.consumers),
            self.counters.as_dict(),
        )

    # -- in ---------------------------------------------------------------------------------------------------------

    def enqueue(self, first_id: int, envelope: Envelope, blobs: Sequence[bytes]) -> Sequence[int]:
        """Take a run of new messages: to waiting consumers at once, the rest to the ready list. O(run).

        Returns: the offsets of messages that a limit refused (behaviour page 3.3, reject-publish).
        """
        if self.rules is not NO_RULES or envelope.expiration_ms is not None:
            return admit(self, first_id, envelope, blobs)
        count = len(blobs)
        self.counters.enqueued += count
        if self.broker.listeners:
            self.broker.emit(EventKind.ENQUEUED, self, range(first_id, first_id + count))
        taken = 0
        if self.consumers and not self.ready:
            taken = self._hand_over(first_id, envelope, blobs)
            if taken == count:
                return ()
        rest = blobs[taken:] if taken else blobs
        self.ready.extend(map(Message, range(first_id + taken, first_id + count), rest, repeat(envelope)))
        return ()

    def take_in(self, message: Message) -> bool:
        """Count a new message in; True when a waiting consumer took it at once, so that no limit concerns it."""
        self.counters.enqueued += 1
        if self.broker.listeners:
            self.broker.emit(EventKind.ENQUEUED, self, (message.id,))
        if self.ready or not self.has_waiting_consumer:
            return False
        (consumer,) = self._eligible(1)
        consumer.session.deliver_ready(consumer, [message])
        return True

    @property
    def has_waiting_consumer(self) -> bool:
        """Whether a message could be delivered now."""
        return any(consumer.credit() > 0 for consumer in self.consumers)

    def _hand_over(self, first_id: int, envelope: Envelope, blobs: Sequence[bytes]) -> int:
        """Give new messages to consumers with credit, in rota order. Returns how many were taken."""
        consumers = self.consumers
        if len(consumers) == 1:
            return self._hand_to(consumers[0], first_id, envelope, blobs)
        count = len(blobs)
        taken = 0
        while taken < count:
            rest = blobs[taken:] if taken else blobs
            eligible = self._eligible(count - taken)
            width = len(eligible)
            if width == 0:
                break
            if width == 1:
                if eligible[0].session.prefetch_total:
                    rest = rest[:1]  # it shares its limit with consumers that are to have their turns
                taken += self._hand_to(eligible[0], first_id + taken, envelope, rest)
                continue
            share = self._share(eligible, len(rest), partial(_octets, rest))
            stop = taken + share * width
            ids = range(first_id, first_id + count)
            for index, consumer in enumerate(eligible, taken):
                run = blobs[index:stop:width]
                consumer.session.deliver_new(consumer, ids[index:stop:width], envelope, run, sum(map(len, run)))
            taken = stop
        return taken

    def _hand_to(self, consumer: Consumer, first_id: int, envelope: Envelope, blobs: Sequence[bytes]) -> int:
        """Give new messages to one consumer: as many as its credit and its client's room allow, at least one."""
        credit = consumer.credit()
        if credit <= 0:
            return 0
        if credit < len(blobs):
            blobs = blobs[:credit]
        octets = sum(map(len, blobs))
        client = consumer.client
        if octets > client.unsent_max - client.unsent and len(blobs) > 1:
            blobs = blobs[: client.affordable(blobs)]
            octets = sum(map(len, blobs))
        count = len(blobs)
        consumer.session.deliver_new(consumer, range(first_id, first_id + count), envelope, blobs, octets)
        return count

    def requeue(self, messages: list[Message], *, why: str, counted: bool = False, delayed: bool = False) -> None:
        """Put messages back to where they were, in order of their ids, and mark the queue for dispatch.

        `messages` need not be sorted; they must be out of this queue and unsettled. With rules, `counted` says whether
        the delivery was a failed attempt, and `delayed` whether a redelivery delay applies (address-settings 7.1).
        O(messages + those before them).
        """
        if self.deleted or not messages:
            return
        messages.sort(key=_id_of, reverse=True)
        for message in messages:
            message.holder = None
        if self.rules is not NO_RULES:
            give_back(self, messages, why=why, counted=counted, delayed=delayed)
        else:
            self.counters.requeued += len(messages)
            if self.broker.listeners:
                self.broker.emit(EventKind.REQUEUED, self, [message.id for message in reversed(messages)], why=why)
            self.merge(messages)
            self.broker.mark(self)
        if self.expiring:
            arm(self)

    def merge(self, messages: list[Message]) -> None:
        """Insert messages (ids falling) into the ready list at their places."""
        if isinstance(self.ready, LeveledReady):
            self.ready.merge(messages)
        else:
            merge_back(self.ready, messages)

    # -- out --------------------------------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Hand out ready messages while a consumer has credit. O(delivered)."""
        ready = self.ready
        while ready:
            if self.expiring:
                expire(self)
                if not ready:
                    break
            eligible = self._eligible(1 if self.expiring else len(ready))
            if not eligible:
                break
            width = len(eligible)
            first = eligible[0]
            if width == 1:
                limit = 1 if self.expiring else self._limit(first, len(ready))
                first.session.deliver_ready(first, _take(ready, limit, first.client.room()))
            else:
                share = self._share(eligible, len(ready), partial(_ready_octets, ready))
                block = [ready.popleft() for _ in range(share * width)]
                for index, consumer in enumerate(eligible):
                    consumer.session.deliver_ready(consumer, block[index::width])
        if self.expiring:
            arm(self)

    def pop(self) -> Message | None:
        """The next message for a get, or None."""
        self.touch()
        if self.expiring:
            expire(self)
        message = self.ready.popleft() if self.ready else None
        if self.expiring:
            arm(self)
        return message

    def _eligible(self, wanted: int) -> list[Consumer]:
        """Up to `wanted` consumers with credit, in rota order; moves the rota behind the last of them."""
        consumers = self.consumers
        count = len(consumers)
        start = self.next_consumer
        found: list[Consumer] = []
        for step in range(count):
            index = start + step
            if index >= count:
                index -= count
            consumer = consumers[index]
            if consumer.credit() > 0:
                found.append(consumer)
                self.next_consumer = index + 1 if index + 1 < count else 0
                if len(found) == wanted or consumer.session.prefetch_total:
                    break  # a limit shared by several consumers is looked at again after each delivery
        return found

    def _limit(self, consumer: Consumer, available: int) -> int:
        """How many messages the only eligible consumer may have before the rota is asked again."""
        if consumer.session.prefetch_total and len(self.consumers) > 1:
            return 1  # it shares its limit with consumers that are to have their turns
        return min(consumer.credit(), available)

    def _share(self, eligible: list[Consumer], available: int, octets_of: Callable[[int], int]) -> int:
        """How many whole rounds of the rota can be dealt at once: the same result as one message at a time.

        `octets_of(count)`: the size of the next `count` messages; no client may be given more than its room.
        """
        width = len(eligible)
        share = min(available // width, SHARE_MAX)
        if eligible[-1].session.prefetch_total:
            return 1  # `_eligible` stopped there: consumers behind it have their turns before the next round
        if share <= 1 or len({consumer.session for consumer in eligible}) < width:
            return 1  # consumers of one session: its deliveries are numbered in queue order
        share = max(1, min(share, min(consumer.credit() for consumer in eligible)))
        room = min(consumer.client.room() for consumer in eligible)
        octets = octets_of(share * width)
        return share if octets <= room else max(1, share * room // octets)

    # -- consumers --------------------------------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        """Join the end of the rota. Raises: ExclusiveConsumerRefused."""
        consumers = self.consumers
        if consumers and (consumer.exclusive or consumers[0].exclusive):
            raise ExclusiveConsumerRefused(name=self.name, vhost=self.vhost.name)
        # The rota is circular: its end is just before the one whose turn it is.
        consumers.insert(self.next_consumer, consumer)
        self.next_consumer = (self.next_consumer + 1) % len(consumers)
        self.had_consumers = True
        self.touch()
        if self.broker.listeners:
            self.broker.emit(EventKind.CONSUMER_ADDED, self, tag=consumer.tag)
        if self.ready:
            self.broker.mark(self)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Leave the rota; what it holds stays held. An auto-delete queue goes with its last consumer."""
        index = self.consumers.index(consumer)
        del self.consumers[index]
        if index < self.next_consumer:
            self.next_consumer -= 1
        if self.next_consumer >= len(self.consumers):
            self.next_consumer = 0
        if self.broker.listeners:
            self.broker.emit(EventKind.CONSUMER_REMOVED, self, tag=consumer.tag)
        if self.auto_delete and not self.consumers and not self.deleted:
            self.vhost.remove_queue(self)
        self.touch()

    # -- away -------------------------------------------------------------------------------------------------------

    def purge(self) -> int:
        """Drop all ready and scheduled messages; returns how many. The memory is given back in slices."""
        gone = self.take_ready()
        gone.extend(self.scheduled.take_all())
        self.await_due()
        self.counters.purged += len(gone)
        if gone and self.broker.listeners:
            self.broker.emit(EventKind.PURGED, self, [message.id for message in gone])
        count = len(gone)
        self.broker.free(gone)
        return count

    def kill(self, messages: list[Message], *, reason: str) -> None:
        """Messages that were out and must not come back."""
        self.lose(messages, reason)

    def lose(self, messages: list[Message], reason: str) -> None:
        """Messages came to a bad end: counted under their cause, and on their way to the dead-letter exchange if any.

        `reason`: rejected, expired, maxlen or delivery_limit. Source: rulings, "Events".
        """
        count = len(messages)
        target = self.dead_letter_target(reason)
        if reason == EXPIRED:
            kind = EventKind.EXPIRED
            self.counters.expired += count
        elif reason == MAXLEN and target is None:
            kind = EventKind.DROPPED
            self.counters.dropped += count
        else:
            kind = EventKind.DEAD_LETTERED if target is not None else EventKind.KILLED
            self.counters.killed += count
        if self.broker.listeners:
            detail = {} if target is None else {"to": target}
            self.broker.emit(kind, self, [message.id for message in messages], reason=reason, **detail)
        if target is not None:
            self.broker.bury(self, messages, reason)

    def dead_letter_target(self, reason: str) -> str | None:
        """Exchange or address that messages dead of `reason` go to. An exchange named by the client wins for all."""
        rules = self.rules
        if rules.dead_letter_exchange is not None:
            return rules.dead_letter_exchange
        if reason == EXPIRED:
            return rules.expiry_address
        return None if reason == MAXLEN else rules.dead_letter_address

    # -- time -------------------------------------------------------------------------------------------------------

    def expire_due(self) -> None:
        """A deadline: heads whose time is over go, the next ones are waited for."""
        if not self.deleted:
            expire(self)
            arm(self)

    def await_due(self) -> None:
        """See to it that the soonest of the scheduled messages comes due in time."""
        due_ns = self.scheduled.next_ns()
        deadline = self.due_deadline
        if deadline is not None and deadline.action is not None:
            if deadline.due_ns == due_ns:
                return
            self.broker.deadlines.cancel(deadline)
        self.due_deadline = None if due_ns is None else self.broker.deadlines.set(due_ns, self._come_due)

    def _come_due(self) -> None:
        if not self.deleted:
            come_due(self)

    def fire(self, id_: int) -> bool:
        """An operator wants a waiting message ready now. False when no such message waits."""
        return self.reschedule(id_, 0)

    def reschedule(self, id_: int, delay_ms: int) -> bool:
        """An operator wants a waiting message due so long from now. False when no such message waits."""
        message = self.scheduled.take(id_)
        if message is None:
            return False
        self.scheduled.add(self.broker.clock.monotonic_ns() + delay_ms * MS, message)
        if delay_ms == 0:
            come_due(self)
        self.await_due()
        return True

    def cancel_scheduled(self, id_: int) -> bool:
        """An operator takes a waiting message out for good. False when no such message waits."""
        message = self.scheduled.take(id_)
        if message is None:
            return False
        self.counters.cancelled += 1
        if self.broker.listeners:
            self.broker.emit(EventKind.CANCELLED, self, (id_,))
        self.await_due()
        return True

    def touch(self) -> None:
        """The queue is in use: its own expiry (x-expires) starts anew. Source: behaviour page 3.2."""
        expires_ms = self.rules.expires_ms
        if expires_ms is None:
            return
        deadlines = self.broker.deadlines
        deadlines.cancel(self.unused_deadline)
        self.unused_deadline = None
        if not self.consumers and not self.deleted:
            due_ns = self.broker.clock.monotonic_ns() + expires_ms * MS
            self.unused_deadline = deadlines.set(due_ns, self._unused)

    def _unused(self) -> None:
        if not self.deleted and not self.consumers:
            self.vhost.remove_queue(self)

    def forget_deadlines(self) -> None:
        """The queue is gone."""
        self.broker.deadlines.cancel(self.expiry_deadline)
        self.broker.deadlines.cancel(self.unused_deadline)
        self.broker.deadlines.cancel(self.due_deadline)


def _take(ready: Ready, limit: int, room: int) -> list[Message]:
    """Up to `limit` messages from the head, stopping once `room` octets are used; at least one."""
    popleft = ready.popleft
    if limit <= 1:
        return [popleft()]
    taken: list[Message] = []
    append = taken.append
    for _ in range(limit):
        message = popleft()
        append(message)
        room -= len(message.blob)
        if room <= 0:
            break
    return taken


def _octets(blobs: Sequence[bytes], count: int) -> int:
    return sum(map(len, blobs[:count]))


def _ready_octets(ready: Ready, count: int) -> int:
    return sum(len(message.blob) for message in islice(ready, count))


def _id_of(message: Message) -> int:
    return message.id
