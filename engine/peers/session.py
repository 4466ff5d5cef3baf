"""A session: one numbering of deliveries, with prefetch, confirms and a transaction.

What AMQP 0-9-1 calls a channel is one session to the engine. Everything that settles goes through `_take` (tags ->
messages) and `_settle` or `_return` (messages -> their queues), in runs.
Source: behaviour page 2.7, 2.12 to 2.15.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice, repeat, takewhile
from typing import TYPE_CHECKING

from ..delivery import rota
from ..delivery.consumer import Consumer, Holder, by_consumer, by_holder, holder_of
from ..errors import (
    ConfirmAfterTx,
    ConsumerTagInUse,
    EngineError,
    NotTransactional,
    ReplyConsumerAcknowledges,
    ReplyConsumerMissing,
    ReplyConsumerTaken,
    ResourceLocked,
    TxAfterConfirm,
    UnackedMaxReached,
    UnknownDeliveryTag,
)
from ..events import EventKind
from ..messages.content import REPLY_TO_ME, Framing, decode_properties
from ..messages.deaths import REJECTED
from ..messages.field_table import FieldTable
from ..messages.message import Envelope, Message
from ..publishing import arrival
from ..publishing.choosing import choose
from ..publishing.marked import prepared
from ..publishing.publish import nowhere_to_go
from ..queues.queue_types import check_consume, check_get, check_reject
from ..users.permissions import WRITE
from .commit import Commit, Returned
from .confirms import Confirms
from .effects import Delivered
from .outstanding import Outstanding
from .permission_checks import require_topic
from .transaction import Publication, Transaction

if TYPE_CHECKING:
    from ..publishing.route import Route
    from ..queues.queue import Queue
    from .client import Client

#: How a peer gave a delivery back, beside `REJECTED`.
NACKED = "nacked"
DELIVERY_OVERHEAD = 64  # octets on the wire beside the content, roughly


class SessionFailed:
    """An effect: the broker ended a session; what it held is given back."""

    __slots__ = ("error", "session")

    def __init__(self, session: "Session", error: EngineError) -> None:
        self.session = session
        self.error = error


class Session:
    """Made by `Client.open_session`."""

    __slots__ = (
        "_portion",
        "_round",
        "client",
        "committing",
        "confirms",
        "consumers",
        "flowing",
        "is_full",
        "next_tag",
        "number",
        "outstanding",
        "prefetch",
        "prefetch_total",
        "queues",
        "replies",
        "transaction",
        "unacked",
        "unacked_by_consumers",
    )

    def __init__(self, client: "Client", number: int) -> None:
        self.client = client
        self.number = number
        self.consumers: dict[str, Consumer] = {}  # whose turn comes later stands further behind (`mark_queues`)
        self.unacked: dict[int, Message] = {}  # tags rise, so the dict is in order of delivery
        self.outstanding = Outstanding()
        self.queues: dict[Queue, None] = {}  # of which deliveries may be out
        self.unacked_by_consumers = 0
        self.next_tag = 1
        self.prefetch = 0  # for consumers to come
        self.prefetch_total = 0  # over all consumers
        self.flowing = True
        self.is_full = False  # a delivery was wanted while there was no room for it
        self._round = self._portion = 0
        self.replies: Consumer | None = None  # of direct replies
        self.confirms: Confirms | None = None
        self.transaction: Transaction | None = None
        self.committing: Commit | None = None

    # -- publishing -------------------------------------------------------------------------------------------------

    def publish(self, route: "Route", envelope: Envelope, blobs: Sequence[bytes], *, mandatory: bool) -> list[Returned]:
        """Publish a run. Returns what must go back to the publisher: nothing unless `mandatory`.

        In a transaction nothing happens before the commit but the choice of the queues. Marked messages may be
        refused each for itself: whoever wants to know which one publishes them one by one.
        Raises: ReplyConsumerMissing, InvalidCopies, TopicRefused (a key of CC or BCC; that of the route was checked),
            TransactionTooLarge.
        """
        if envelope.facts.is_marked:
            if len(blobs) > 1:
                each = [self.publish(route, envelope, (blob,), mandatory=mandatory) for blob in blobs]
                return [back for some in each for back in some]
            envelope, blob = prepared(envelope, blobs[0], self.reply_address)
            blobs = (blob,)
            for key in envelope.copies:
                require_topic(self.client, WRITE, route.exchange, key)
        if self.transaction is not None:
            limit = self.client.broker.options.transaction_size_max
            for names, run in choose(route, envelope, blobs, self.client.vhost):
                self.transaction.add(Publication(route, names, envelope, run, mandatory), limit=limit)
            return []
        vhost = self.client.vhost
        unroutable, refused = arrival.publish(vhost, route, envelope, blobs)
        durability = vhost.broker.durability
        barrier = 0 if durability is None else durability.take_barrier()
        if self.confirms is not None:
            self.confirms.add(len(blobs), refused, barrier)
        if unroutable:
            if mandatory:
                return [(envelope, unroutable)]
            nowhere_to_go(vhost, envelope, unroutable)
        return []

    @property
    def is_transactional(self) -> bool:
        """Whether what it publishes waits for a commit."""
        return self.transaction is not None

    @property
    def reply_address(self) -> str | None:
        """Where direct replies to it go; None: it has no consumer for them."""
        return None if self.replies is None else self.replies.queue.name

    def select_confirms(self) -> None:
        """Confirm publishes from now on; asking again changes nothing. Raises: ConfirmAfterTx."""
        if self.transaction is not None:
            raise ConfirmAfterTx
        if self.confirms is None:
            self.confirms = Confirms()

    def check_reply_to(self, framing: Framing, blob: bytes) -> None:
        """Refuse a message that asks for direct replies of a session which has no consumer for them.

        Raises: ReplyConsumerMissing.
        """
        if self.replies is None and decode_properties(framing.split(blob)[0]).get("reply_to") == REPLY_TO_ME:
            raise ReplyConsumerMissing

    # -- consuming --------------------------------------------------------------------------------------------------

    def consume(self, queue: "Queue", tag: str, *, no_ack: bool, exclusive: bool, arguments: FieldTable) -> Consumer:
        """Subscribe; the first delivery comes with the end of the turn, so that the frontend can answer first.

        Raises: ConsumerTagInUse, ResourceLocked, ExclusiveConsumerRefused, ConsumersMaxReached,
            GlobalPrefetchNotSupported, NoAckNotSupported, PrefetchMissing.
        """
        self.check_access(queue)
        self.check_tag(tag)
        check_consume(queue, no_ack=no_ack, prefetch=self.prefetch, prefetch_total=self.prefetch_total)
        consumer = Consumer(
            queue, self, tag, no_ack=no_ack, exclusive=exclusive, prefetch=self.prefetch, arguments=arguments
        )
        queue.add_consumer(consumer)
        self.consumers[tag] = consumer
        if not no_ack:
            self._note_holder(consumer)
        return consumer

    def check_tag(self, tag: str) -> None:
        """Refuse a consumer tag that is in use here; RabbitMQ does it before it looks at anything else.

        Raises: ConsumerTagInUse.
        """
        if tag in self.consumers:
            raise ConsumerTagInUse(tag=tag)

    def consume_replies(self, tag: str, address: str, *, no_ack: bool) -> Consumer:
        """Subscribe to direct replies, which are sent to the queue name `address` that nobody can guess.

        Raises: ConsumerTagInUse, ReplyConsumerAcknowledges, ReplyConsumerTaken.
        """
        if self.replies is None or tag != self.replies.tag:
            self.check_tag(tag)
        if not no_ack:
            raise ReplyConsumerAcknowledges
        if self.replies is not None:
            raise ReplyConsumerTaken
        queue = self.client.vhost.add_reply_queue(address, self.client)
        consumer = Consumer(queue, self, tag, no_ack=True, exclusive=False, prefetch=0, arguments={})
        queue.add_consumer(consumer)
        self.consumers[tag] = self.replies = consumer
        return consumer

    def cancel(self, tag: str) -> bool:
        """End a subscription; its unacked deliveries stay with the session. False when there is no such tag."""
        if tag not in self.consumers:
            return False
        self._cancel_these((tag,))
        return True

    def _cancel_these(self, tags: Iterable[str]) -> None:
        by_queue: dict[Queue, list[Consumer]] = {}
        for tag in tags:
            consumer = self.consumers.pop(tag)
            by_queue.setdefault(consumer.queue, []).append(consumer)
        for queue, consumers in by_queue.items():
            if self.replies in consumers:
                self.replies = None
            queue.remove_consumers(consumers)
            for consumer in consumers:
                if not consumer.no_ack:
                    self.client.broker.acknowledgements.consumer_left()

    def get(self, queue: "Queue", *, no_ack: bool) -> tuple[int, Message, bool, int] | None:
        """One message now, whatever the prefetch: (tag, message, redelivered, ready messages left) or None.

        Raises: ResourceLocked, StreamOperationNotSupported, GetBesideActiveConsumerRefused, UnackedMaxReached.
        """
        self.check_access(queue)
        check_get(queue)
        if not no_ack and self.room() <= 0:
            raise UnackedMaxReached(name=queue.name, limit=self.client.broker.options.unacked_per_session_max)
        self.client.broker.dispatch_now(queue)
        message = queue.pop()
        if message is None:
            return None
        tag = self.next_tag
        self.next_tag = tag + 1
        redelivered = message.deliveries > 0
        message.deliveries += 1
        queue.counters.delivered += 1
        if self.client.broker.listeners:
            self.client.broker.emit(EventKind.DELIVERED, queue, (message,), client=self.client, session=self)
        if no_ack:
            queue.acknowledged([message])
        else:
            holder = Holder(queue, self, counts_against_prefetch=False)
            holder.unacked = 1
            message.holder = holder
            queue.unacked += 1
            self.unacked[tag] = message
            self._note_holder(holder)
        return tag, message, redelivered, queue.ready_count

    def _note_holder(self, holder: Holder) -> None:
        """Deliveries of its queue may be out here from now on."""
        self.client.broker.acknowledgements.watch(holder)
        self.queues[holder.queue] = None
        holder.queue.sessions[self] = None

    def room(self) -> int:
        """How many more deliveries may be unsettled; acknowledgements count when they are committed."""
        room = self.client.broker.options.unacked_per_session_max - len(self.unacked)
        if self.transaction is not None:
            room -= len(self.transaction.tags)
        if room <= 0:
            self.is_full = True
        return room

    def check_access(self, queue: "Queue") -> None:
        """Raises: ResourceLocked when the queue is exclusive to another client."""
        if queue.owner is not None and queue.owner is not self.client:
            raise ResourceLocked(name=queue.name, vhost=queue.vhost.name)

    def limit(self, count: int, *, total: bool) -> None:
        """Prefetch: for each consumer to come, or (`total`) shared by all consumers from now on. 0 = unlimited.

        The former ends the latter, as in RabbitMQ: only a limit that is shared later stands beside it.
        """
        if total and self.client.broker.options.has_shared_prefetch:
            self.prefetch_total = count
            self.mark_queues()
        else:
            self.prefetch = count
            if self.prefetch_total:
                self.prefetch_total = 0
                self.mark_queues()

    def set_flowing(self, flowing: bool) -> None:
        """The peer wants deliveries, or none for now."""
        self.flowing = flowing
        if flowing:
            self.mark_queues()

    def has_shared_room(self, consumer: Consumer) -> bool:
        """Whether a consumer that does not acknowledge may have something: while the others have all that the session
        may have out it waits as they do, as in RabbitMQ. Direct replies never wait."""
        return not 0 < self.prefetch_total <= self.unacked_by_consumers or consumer is self.replies

    def portion(self) -> int:
        """Of what the consumers may still have, how much one queue gets in this round of turns; at least 1."""
        turns = self.client.broker.turns
        if self._round != turns.round:
            self._round = turns.round
            self._portion = max(1, (self.prefetch_total - self.unacked_by_consumers) // turns.round_width)
        return self._portion

    def mark_queues(self) -> bool:
        """Look again, at the end of the turn, at all queues that this session consumes from. False: nothing is there.

        Their consumers share what the session, or its client, may have, and so they have turns: the first of those that
        can have something is the last of all the next time.
        """
        is_any = False
        first = None
        self.client.broker.spread += len(self.consumers) // rota.LOOKS
        for consumer in self.consumers.values():
            if consumer.queue.has_ready:
                is_any = True
                self.client.broker.mark(consumer.queue)
                if first is None and consumer.credit() > 0:
                    first = consumer
        if first is not None:
            self.consumers[first.tag] = self.consumers.pop(first.tag)
        return is_any

    def deliver_new(
        self, consumer: Consumer, ids: Sequence[int], envelope: Envelope, blobs: Sequence[bytes], octets: int
    ) -> None:
        """Hand over messages that were never in the ready list, `octets` in all. The hot path of an idle queue."""
        count = len(blobs)
        tag = self.next_tag
        self.next_tag = tag + count
        queue = consumer.queue
        queue.counters.delivered += count
        if consumer.no_ack:
            queue.counters.acknowledged += count
        else:
            # No loop: the constructor and both zips run in C (0.25 us a message instead of 0.45).
            self.unacked.update(
                zip(
                    range(tag, tag + count),
                    map(Message, ids, blobs, repeat(envelope), repeat(consumer), repeat(1)),
                )
            )
            consumer.unacked += count
            self.unacked_by_consumers += count
            queue.unacked += count
        self.client.put(Delivered(consumer, tag, envelope, False, blobs), octets + count * DELIVERY_OVERHEAD)
        if queue.broker.listeners:
            client = self.client
            more = {"consumer": consumer.tag, "client": client, "session": self, "blobs": blobs}
            queue.broker.emit_run(EventKind.DELIVERED, queue, ids, envelope, **more)
            if consumer.no_ack:
                queue.broker.emit_run(EventKind.ACKED, queue, ids, envelope, consumer=consumer.tag, client=client)

    def deliver_ready(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        """Hand over messages from the ready list, as runs of one envelope and redelivered flag."""
        queue = consumer.queue
        count = len(messages)
        queue.broker.spread += count
        tag = self.next_tag
        first_tag = tag
        envelope = messages[0].envelope
        redelivered = messages[0].deliveries > 0
        run: list[bytes] = []
        put = self.client.put
        for message in messages:
            deliveries = message.deliveries
            if message.envelope is not envelope or (deliveries > 0) is not redelivered:
                put(Delivered(consumer, tag, envelope, redelivered, run), _octets(run))
                tag += len(run)
                run = []
                envelope = message.envelope
                redelivered = deliveries > 0
            run.append(message.blob)
            message.deliveries = deliveries + 1
            message.holder = consumer
        put(Delivered(consumer, tag, envelope, redelivered, run), _octets(run))
        self.next_tag = first_tag + count
        queue.counters.delivered += count
        if queue.broker.listeners:
            client = self.client
            queue.broker.emit(EventKind.DELIVERED, queue, messages, consumer=consumer.tag, client=client, session=self)
        if consumer.no_ack:
            queue.acknowledged(messages)
        else:
            self.unacked.update(zip(range(first_tag, first_tag + count), messages))
            consumer.unacked += count
            self.unacked_by_consumers += count
            queue.unacked += count

    # -- settling ---------------------------------------------------------------------------------------------------

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        """Settle the delivery `tag`, or all up to it (0 with `multiple`: all).

        Raises: UnknownDeliveryTag, when the tag was never sent or is settled; nothing is settled then.
        """
        self._acked(self._take(tag, multiple))

    def ack_each(self, tags: Sequence[int]) -> None:
        """Settle single deliveries: the acks of one read. What stands before an unknown tag is settled.

        Raises: UnknownDeliveryTag.
        """
        if self.transaction is not None:
            for tag in tags:
                self.ack(tag)
            return
        pop = self.unacked.pop
        settled: list[Message] = []
        tag = 0
        try:
            for tag in tags:
                settled.append(pop(tag))
        except KeyError:
            raise UnknownDeliveryTag(tag=tag) from None
        finally:
            self.settle(settled)

    def reject(self, tag: int, *, multiple: bool = False, requeue: bool, why: str = NACKED) -> None:
        """Give deliveries back: to their places in the queue, or (`requeue` false) away.

        Raises: UnknownDeliveryTag, StreamOperationNotSupported.

        `why`: nacked or rejected; operators can say that one of them is no failed attempt (ruling 8).
        """
        messages = self._take(tag, multiple)
        check_reject(messages)
        if self.transaction is not None:
            self.transaction.rejected.append((messages, requeue, why))
        else:
            self.give_back(messages, requeue=requeue, why=why)

    def recover(self) -> None:
        """Requeue everything unacknowledged; deliveries come anew, with new tags, at the end of the turn."""
        messages = list(self.unacked.values())
        self.unacked.clear()
        self._give_back(messages, why="recovered", counted=False)

    def _take(self, tag: int, multiple: bool) -> list[Message]:
        """The outstanding messages that a tag names; they are outstanding no more. O(those), and no loop in Python."""
        unacked = self.unacked
        if multiple and tag == 0:
            tags = list(unacked)
        elif tag not in unacked:
            raise UnknownDeliveryTag(tag=tag)
        elif multiple:
            tags = list(islice(unacked, tag - next(iter(unacked)) + 1))
            if tags[-1] != tag:  # some between them are settled
                tags = list(takewhile(tag.__ge__, unacked))
        else:
            tags = [tag]
        taken = list(map(unacked.pop, tags))
        if self.transaction is not None:
            self.transaction.tags.update(zip(tags, taken))
        return taken

    def _acked(self, messages: list[Message]) -> None:
        if self.transaction is not None:
            self.transaction.acked += messages
        else:
            self.settle(messages)

    def settle(self, messages: list[Message]) -> None:
        """Acknowledged: gone for good."""
        for holder, run in by_holder(messages):
            self._release(holder, len(run))
            queue = holder.queue
            if not queue.deleted:
                queue.acknowledged(run)

    def give_back(self, messages: list[Message], *, requeue: bool, why: str) -> None:
        if requeue:
            options = self.client.broker.options
            counted = options.nack_counts if why == NACKED else options.reject_counts
            self._give_back(messages, why=why, counted=counted)
            return
        for run in by_consumer(messages):
            for holder, part in by_holder(run):
                self._release(holder, len(part))
                queue = holder.queue
                if not queue.deleted:
                    queue.kill_or_keep(part, reason=REJECTED)

    def _give_back(self, messages: list[Message], *, why: str, counted: bool) -> None:
        """Requeue, consumer by consumer: those who wait are offered what one gave back before the next one's is there.

        So which of them gets what is as in RabbitMQ.
        """
        runs = by_consumer(messages)
        for run in runs:
            holder = holder_of(run[0])
            self._return(run, why=why, counted=counted, delayed=True)
            if run is not runs[-1]:
                self.client.broker.dispatch_now(holder.queue)

    def _return(self, messages: list[Message], *, why: str, counted: bool, delayed: bool) -> None:
        by_queue: dict[Queue, list[Message]] = {}
        for holder, run in by_holder(messages):
            self._release(holder, len(run))
            by_queue.setdefault(holder.queue, []).extend(run)
        for queue, returned in by_queue.items():
            queue.requeue(returned, why=why, counted=counted, delayed=delayed)

    def _release(self, holder: Holder, count: int) -> None:
        """`count` deliveries of a holder are no longer out: credit is free, queues may go on."""
        queue = holder.queue
        queue.unacked -= count
        holder.unacked -= count
        if holder.counts_against_prefetch:
            self.unacked_by_consumers -= count
        if self.prefetch_total or self.is_full:
            self.is_full = False
            self.mark_queues()
        elif queue.ready or queue.tail is not None:
            queue.broker.mark(queue)

    # -- transactions -----------------------------------------------------------------------------------------------

    def select_transactions(self) -> None:
        """Gather publishes and acknowledgements until commit. Raises: TxAfterConfirm."""
        if self.confirms is not None:
            raise TxAfterConfirm
        if self.transaction is None:
            self.transaction = Transaction()

    def commit(self) -> Commit:
        """Apply all of it: at once, or, if it is too much for a turn, at the ends of turns until `is_done`.

        The client is flushed then. Until then the session must not be asked for anything else.
        Raises: NotTransactional.
        """
        transaction = self.transaction
        if transaction is None:
            raise NotTransactional
        self.transaction = Transaction()
        self.outstanding.clear()
        commit = Commit(self, transaction)
        self.client.broker.apply(commit)
        if not commit.is_done:
            self.committing = commit
        return commit

    def committed(self) -> None:
        """The commit that was under way is done."""
        self.committing = None
        if self not in self.client.sessions:
            self._leave_queues()

    def roll_back(self) -> None:
        """Forget the publishes; what was acknowledged is outstanding again. Raises: NotTransactional."""
        transaction = self.transaction
        if transaction is None:
            raise NotTransactional
        self.transaction = Transaction()
        self.outstanding.clear()
        if transaction.tags:
            self.unacked = dict(sorted([*self.unacked.items(), *transaction.tags.items()]))

    # -- the end ----------------------------------------------------------------------------------------------------

    def close(self, *, failed: bool = False) -> None:
        """Requeue what is unacknowledged, then end the subscriptions. Uncommitted work is dropped.

        `failed`: the peer did not ask for it (error, loss): its deliveries count as attempts (address-settings 7.1).
        """
        self.flowing = False  # nothing more for its consumers, also from what it gives back itself
        if self.transaction is not None:
            self.roll_back()
            self.transaction = None
        self._cancel_last_consumers()
        messages = list(self.unacked.values())
        self.unacked.clear()
        delayed = failed and self.client.broker.options.delay_on_connection_loss
        self._return(messages, why="lost" if failed else "closed", counted=failed, delayed=delayed)
        self._cancel_these(list(self.consumers))
        if self.committing is None:
            self._leave_queues()
        self.client.sessions.pop(self, None)

    def _leave_queues(self) -> None:
        """Nothing of theirs is out here any more."""
        for queue in self.queues:
            del queue.sessions[self]
        self.queues.clear()

    def _cancel_last_consumers(self) -> None:
        """Auto-delete queues that nobody else consumes from go with what is out, before that could come back."""
        counts = Counter(consumer.queue for consumer in self.consumers.values() if consumer.queue.auto_delete)
        going = {queue for queue, count in counts.items() if count == len(queue.consumers)}
        self._cancel_these([tag for tag, consumer in self.consumers.items() if consumer.queue in going])

    def fail(self, error: EngineError) -> None:
        """The broker ends the session; its frontend learns why with the next flush."""
        self.close(failed=True)
        self.client.put(SessionFailed(self, error), 0)

    def forget_queue(self, queue: "Queue") -> None:
        """The queue is gone; what is out of it is settled into nothing."""
        del self.queues[queue]
        self.outstanding.forget(queue)

    def consumer_cancelled(self, consumer: Consumer) -> None:
        """The broker ended a subscription: forget it."""
        if self.consumers.pop(consumer.tag, None) is not None and not consumer.no_ack:
            self.client.broker.acknowledgements.consumer_left()


def _octets(blobs: Sequence[bytes]) -> int:
    return sum(map(len, blobs)) + len(blobs) * DELIVERY_OVERHEAD
