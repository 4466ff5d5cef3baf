"""A session: one sequence of delivery tags, with prefetch, confirms and a transaction.

A channel of AMQP 0-9-1 is one session of the engine. `Unacked` has the messages of delivery tags; `settling.py` settles
them in their queues, in runs.
Source: behaviour page 2.7, 2.12 to 2.15.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from ..delivery.consumer import Consumer, Holder
from ..delivery.effects import DELIVERY_OVERHEAD, Delivered, SessionFailed, by_redelivered
from ..errors import (
    ConfirmAfterTx,
    EngineError,
    NotTransactional,
    StreamOperationNotSupported,
    TxAfterConfirm,
    UnackedMaxReached,
    UnknownDeliveryTag,
)
from ..flow.usage import FullLimit
from ..messages.field_table import FieldTable
from ..messages.message import UNLIMITED, Envelope, Envelopes, Message, content_of, envelope_of
from ..publishing import arrival
from ..publishing.marked import prepared
from ..publishing.publish import count_by_exchange, publish_among, publish_mixed, publish_unroutable
from ..publishing.route import Route, choose
from ..queues.queue import Queue
from ..queues.refusals import check_get, check_reject
from ..users.permissions import WRITE
from .authorization import require_topic
from .confirms import Confirms
from .publish_with_room import PartlyPublished, contents_within, full_limit_for_commit, route_with_room
from .session_counts import PastSessions, SessionCounts
from .settling import (
    NACKED,
    REQUEUE_SLICE,
    requeue_by_consumer,
    requeue_in_slices,
    requeue_run,
    return_deliveries,
    settle,
)
from .subscriptions import Subscriptions
from .transaction import Commit, Publication, Returned, Transaction
from .unacked import Unacked, UnackedIndex

if TYPE_CHECKING:
    from .client import Client


class Session(SessionCounts):
    """One session, made by `Client.open_session`. `unacked`: unacknowledged deliveries, by tag."""

    __slots__ = ("_portion", "_round", "client", "committing", "confirms", "consumers", "flowing", "is_full",
                 "next_tag", "number", "prefetch", "prefetch_total", "prefetch_wanted", "subscriptions", "transaction",
                 "unacked", "unacked_by_consumers", "unacked_index")  # fmt: skip

    def __init__(self, client: "Client", number: int) -> None:
        super().__init__()
        self.client = client
        self.number = number
        self.next_tag = 1
        self.unacked = Unacked()
        self.unacked_by_consumers = 0
        self.subscriptions = Subscriptions(client)
        self.consumers = self.subscriptions.by_tag
        self.unacked_index = UnackedIndex()
        self.prefetch = 0  # for later consumers
        self.prefetch_total = 0  # shared by all consumers
        self.prefetch_wanted: int | None = None  # as `prefetch`, for leased queues; None: the client set none
        self.flowing = True
        self.is_full = False  # `unacked_room` found no room
        self._round = self._portion = 0
        self.confirms: Confirms | None = None
        self.transaction: Transaction | None = None
        self.committing: Commit | None = None

    # -- publishing -------------------------------------------------------------------------------------------------

    def publish(
        self, route: Route, envelope: Envelope, contents: Sequence[bytes], *, mandatory: bool
    ) -> list[Returned]:
        """Publish a run. Returns the messages to return to the publisher: none unless `mandatory`.

        In a transaction nothing is published before the commit; only the queues are chosen now. A message with marks
        (`PropertySummary`) may raise an error; of several, those before it are published, and their returns are lost:
        publish these one by one.
        Raises: ReplyConsumerMissing, InvalidCopies, TopicRefused (a key of CC or BCC; that of the route was checked),
            TransactionTooLarge.
        """
        if envelope.summary.is_marked:
            if len(contents) > 1:
                returned: list[Returned] = []
                for content in contents:
                    returned += self.publish(route, envelope, (content,), mandatory=mandatory)
                return returned
            envelope, contents = self._prepared(route, envelope, contents[0])
        if self.transaction is not None:
            limit = self.client.broker.options.transaction_size_max
            for names, run in choose(route, envelope, contents, self.client.host):
                self.transaction.add(Publication(route, names, envelope, run, mandatory), limit=limit)
            return []
        return self._publish(route, envelope, contents, mandatory=mandatory)

    def _prepared(self, route: Route, envelope: Envelope, content: bytes) -> tuple[Envelope, Sequence[bytes]]:
        envelope, content = prepared(envelope, content, self.subscriptions.reply_address)
        for key in envelope.copies:
            require_topic(self.client, WRITE, route.exchange, key)
        return envelope, (content,)

    def _publish(
        self, route: Route, envelope: Envelope, contents: Sequence[bytes], *, mandatory: bool
    ) -> list[Returned]:
        host = self.client.host
        broker = host.broker
        turn, sizes = broker.turn, broker.sizes
        before = turn.records
        self.published += len(contents)
        if sizes is not None:
            sizes.add(envelope, contents)
        unroutable, refused = arrival.publish(host, route, envelope, contents)
        if self.confirms is not None:
            self.confirms.add(len(contents), refused, broker.sync_lsn() if turn.records != before else 0)
        return self.return_or_drop(envelope, unroutable, mandatory=mandatory) if unroutable else []

    def return_or_drop(self, envelope: Envelope, contents: Sequence[bytes], *, mandatory: bool) -> list[Returned]:
        """Return messages that no queue took, if they are `mandatory`. Else they are counted as dropped, and published
        to the dead-letter address of their address, if it has one (`publish_unroutable`).
        """
        client = self.client
        if mandatory:
            client.broker.activity.returned += len(contents)
            self.returned += len(contents)
            return [(envelope, contents)]
        client.broker.activity.dropped += len(contents)
        self.dropped += len(contents)
        publish_unroutable(client.host, envelope, contents, client.site)
        return []

    def publish_with_room(
        self,
        route: Route,
        envelope: Envelope,
        contents: Sequence[bytes],
        *,
        mandatory: bool,
        octets_max: int = UNLIMITED,
        messages_max: int = UNLIMITED,
    ) -> PartlyPublished:
        """Publish the first messages of a run, as many as have room; of those with marks at most one.

        The route must be metered (`is_metered`). `octets_max`, `messages_max`: further limits on the messages published
        now. A transaction gathers the whole run, and its commit needs the room (`full_limit_for_commit`). Raises: as
        `publish`.
        """
        if self.transaction is not None:
            return PartlyPublished(len(contents), self.publish(route, envelope, contents, mandatory=mandatory), None)
        if envelope.summary.is_marked:
            contents = contents[:1]
            envelope, contents = self._prepared(route, envelope, contents[0])
        allowed = contents_within(contents, octets_max, messages_max)
        chosen, count, full = route_with_room(route, envelope, allowed or contents[:1], self.client)
        if not count or not allowed:
            if chosen is not route:
                self.client.host.router.give_turns_back(route.exchange, envelope.keys, chosen.queues or ())
            return PartlyPublished(0, [], full)
        return PartlyPublished(count, self._publish(chosen, envelope, contents[:count], mandatory=mandatory), full)

    def full_limit_for_commit(self) -> FullLimit | None:
        """The limit or alarm for which a commit has to wait now; None: there is room."""
        transaction, flow = self.transaction, self.client.broker.flow
        if transaction is None or not (flow.is_on or flow.raised is not None):
            return None
        return full_limit_for_commit(transaction, self.client)

    def count_unpublished(self, count: int, *, refused: bool) -> None:
        """Count publishes that are not published: as expired, and confirm them, or as `refused`, and nack them. They
        are the next publishes of the session.
        """
        if self.confirms is not None:
            self.confirms.add(count, range(count) if refused else ())
        counters = self.client.broker.counters
        if refused:
            counters.dropped += count
        else:
            counters.expired += count

    def publish_mixed(self, queues: Sequence[Queue], envelopes: Sequence[Envelope], contents: Sequence[bytes]) -> None:
        """Publish a mixed run outside of a transaction: each message to the queue at its index, in order.

        The messages must be plain, and the route of each must lead to its one queue (`Route.only_queue`). The journal
        must not have failed.
        """
        host = self.client.host
        broker = host.broker
        turn, sizes = broker.turn, broker.sizes
        before = turn.records
        self.published += len(contents)
        if sizes is not None:
            sizes.add(envelopes[0], contents)
        count_by_exchange(host, envelopes)
        first = queues[0]
        if queues.count(first) == len(queues):
            refused = publish_mixed(host, first, envelopes, contents)
        else:
            refused = publish_among(host, queues, envelopes, contents)
        if self.confirms is not None:
            self.confirms.add(len(contents), refused, broker.sync_lsn() if turn.records != before else 0)

    def select_confirms(self) -> None:
        """Confirm later publishes. Idempotent. Raises: ConfirmAfterTx."""
        if self.transaction is not None:
            raise ConfirmAfterTx
        if self.confirms is None:
            self.confirms = Confirms()

    # -- consuming --------------------------------------------------------------------------------------------------

    def consume(self, queue: Queue, tag: str, *, no_ack: bool, exclusive: bool, arguments: FieldTable) -> Consumer:
        """Subscribe. Deliveries begin at the end of the turn, after the frontend's answer.

        Raises: ConsumerTagInUse, ResourceLocked, ExclusiveConsumerRefused, ConsumersMaxReached,
            GlobalPrefetchNotSupported, NoAckNotSupported, PrefetchMissing.
        """
        return self.subscriptions.add(self, queue, tag, no_ack=no_ack, exclusive=exclusive, arguments=arguments)

    def consume_replies(self, tag: str, address: str, *, no_ack: bool) -> Consumer:
        """Subscribe to direct replies. `address`: the name of their queue, which other clients cannot guess.

        Raises: ConsumerTagInUse, ReplyConsumerAcknowledges, ReplyConsumerTaken.
        """
        return self.subscriptions.add_replies(self, tag, address, no_ack=no_ack)

    def cancel(self, tag: str) -> bool:
        """End a subscription; its unacked deliveries stay with the session. False when there is no such tag."""
        if tag not in self.consumers:
            return False
        self.subscriptions.cancel((tag,))
        return True

    def get(self, queue: Queue, *, no_ack: bool) -> tuple[int, Message, bool, int] | None:
        """Get one message, regardless of the prefetch: (tag, message, redelivered, ready messages left) or None.

        Raises: ResourceLocked, StreamOperationNotSupported, GetBesideActiveConsumerRefused, UnackedMaxReached.
        """
        self.subscriptions.check_access(queue)
        check_get(queue)
        if not no_ack and self.unacked_room() <= 0:
            raise UnackedMaxReached(name=queue.name, limit=self.client.broker.options.unacked_per_session_max)
        self.client.broker.scheduler.dispatch_now(queue)
        sites = self.client.broker.sites
        if sites.own:
            with sites.at(self.client.site or ""):  # "": an operator has no site, and becomes no owner
                message = queue.pop()
        else:
            message = queue.pop()
        if message is None:
            queue.counters.get_empty += 1
            self.get_empty += 1
            return None
        tag = self.next_tag
        self.next_tag = tag + 1
        redelivered = message.deliveries > 0 or message.id < queue.events.redelivered_below
        queue.counters.redelivered += redelivered
        self.redelivered += redelivered
        self.got += 1
        message.deliveries += 1
        queue.events.delivered((message,), self, consumer=None, no_ack=no_ack)
        if no_ack:
            self.no_ack += 1
            self.got_no_ack += 1
            presented = queue.delivery.presented(queue, message)
            queue.acknowledged([message])
        else:
            holder = Holder(queue, self, counts_against_prefetch=False)
            holder.unacked = 1
            message.holder = holder
            presented = queue.delivery.presented(queue, message)
            self.unacked[tag] = message
            self.subscriptions.note_holder(holder)
            queue.delivery.got(queue, message)
        return tag, presented, redelivered, queue.ready_count

    def unacked_room(self) -> int:
        """How many more deliveries the broker's limit of unacknowledged ones allows. Those that an open transaction
        settled count until the commit.
        """
        room = self.client.broker.options.unacked_per_session_max - len(self.unacked)
        if self.transaction is not None:
            room -= len(self.transaction.tags)
        if room <= 0:
            self.is_full = True
        return room

    def set_prefetch(self, count: int, *, total: bool) -> None:
        """Set the prefetch of each later consumer, or (`total`) the limit that all consumers share. 0: unlimited.

        Without the broker's option `has_shared_prefetch`, `total` is ignored. As in RabbitMQ, a prefetch for
        consumers removes the shared limit; a shared limit removes no prefetch.
        """
        if total and self.client.broker.options.has_shared_prefetch:
            self.prefetch_total = count
            self.subscriptions.mark_queues()
        else:
            self.prefetch = self.prefetch_wanted = count
            if self.prefetch_total:
                self.prefetch_total = 0
                self.subscriptions.mark_queues()

    def set_flowing(self, flowing: bool) -> None:
        """Resume or stop deliveries, as the client asks."""
        self.flowing = flowing
        if flowing:
            self.subscriptions.mark_queues()

    def has_shared_room(self, consumer: Consumer) -> bool:
        """Whether a no-ack consumer may get messages. While the shared prefetch limit is used up, it waits like the
        others, as in RabbitMQ. Direct replies never wait for it.
        """
        return not 0 < self.prefetch_total <= self.unacked_by_consumers or consumer is self.subscriptions.replies

    def prefetch_portion(self) -> int:
        """The part of the shared prefetch limit that one queue gets in this round of dispatches; at least 1."""
        scheduler = self.client.broker.scheduler
        if self._round != scheduler.round:
            self._round = scheduler.round
            self._portion = max(1, (self.prefetch_total - self.unacked_by_consumers) // scheduler.round_width)
        return self._portion

    # -- deliveries, in runs ---------------------------------------------------------------------------------------

    def deliver_new(
        self, consumer: Consumer, ids: Sequence[int], envelopes: Envelopes, contents: Sequence[bytes], octets: int
    ) -> None:
        """Deliver new messages that were never in a store. `octets`: of all contents. The hot path of an idle queue."""
        count = len(contents)
        tag = self.next_tag
        self.next_tag = tag + count
        events = consumer.queue.events
        is_mixed = type(envelopes) is not Envelope
        run: Any = envelopes
        if not consumer.no_ack or (is_mixed and events.has_listeners):
            # No loop: the constructor, `map` and `zip` run in C (0.25 us a message instead of 0.45).
            each: Iterable[Any] = run if is_mixed else repeat(run)
            made: Iterable[Message] = map(Message, ids, contents, each, repeat(consumer), repeat(1))
            if is_mixed:
                run = made = list(made)
            if not consumer.no_ack:
                self._note_unacked(consumer, tag, count, made)
        if consumer.no_ack:
            self.no_ack += count
        self.client.put(Delivered(consumer, tag, envelopes, False, contents), octets + count * DELIVERY_OVERHEAD)
        events.delivered_run(consumer, self, ids, run, contents)

    def deliver_ready(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        """Deliver ready messages in runs; all messages of a run have the same redelivered flag. No-ack: acknowledges
        them, too.
        """
        effects = []
        for redelivered, run in by_redelivered(messages, consumer.queue.events.redelivered_below):
            envelopes = list(map(envelope_of, run))
            first = envelopes[0]
            is_shared = first is envelopes[-1] and envelopes.count(first) == len(run)
            shared = first if is_shared else envelopes
            effects.append(Delivered(consumer, 0, shared, redelivered, list(map(content_of, run))))
        self.deliver(consumer, messages, effects)
        if consumer.no_ack:
            consumer.queue.acknowledged(messages)

    def deliver(self, consumer: Consumer, messages: Sequence[Message], effects: Sequence[Delivered]) -> None:
        """Deliver messages. `effects`: the same messages in order, as runs. No-ack: the caller settles them next."""
        queue, first_tag = consumer.queue, self.next_tag
        count = self._send(effects)
        self.client.broker.turn.effort += count
        redelivered = sum(len(effect.contents) for effect in effects if effect.redelivered)
        if redelivered:
            queue.counters.redelivered += redelivered
            self.redelivered += redelivered
            for message in messages:
                message.deliveries += 1
                message.holder = consumer
        else:
            for message in messages:
                message.deliveries = 1
                message.holder = consumer
        queue.events.delivered(messages, self, consumer=consumer, no_ack=consumer.no_ack)
        if consumer.no_ack:
            self.no_ack += count
        else:
            self._note_unacked(consumer, first_tag, count, messages)

    def deliver_copies(
        self, consumer: Consumer, messages: Sequence[Message], past: Holder, *, redelivered: bool = False
    ) -> None:
        """Deliver copies that need no settlement. `past`: their holder, which ignores acknowledgements."""
        broker = self.client.broker
        durability = broker.storage.durability
        if durability is not None and durability.delays_deliveries and (sync_lsn := durability.sync_lsn_of_all()):
            self.client.send_after(sync_lsn, self.number)
        tag = self.next_tag
        envelopes, contents = list(map(envelope_of, messages)), list(map(content_of, messages))
        self._send((Delivered(consumer, tag, envelopes, redelivered, contents),))
        if not consumer.no_ack:
            for message in messages:
                message.holder = past
                message.content = b""  # only the tag is needed
            self.unacked.update(zip(range(tag, self.next_tag), messages))

    def _send(self, effects: Sequence[Delivered]) -> int:
        """Number deliveries, and put them into the client's outbox. Returns their number."""
        first_tag = tag = self.next_tag
        for effect in effects:
            contents = effect.contents
            count = len(contents)
            effect.first_tag = tag
            tag += count
            self.client.put(effect, sum(map(len, contents)) + count * effect.overhead)
        self.next_tag = tag
        return tag - first_tag

    def _note_unacked(self, consumer: Consumer, first_tag: int, count: int, messages: Iterable[Message]) -> None:
        """Count deliveries as unacknowledged: they use up credit until they are settled."""
        self.unacked.update(zip(range(first_tag, first_tag + count), messages))
        consumer.unacked += count
        self.unacked_by_consumers += count

    # -- settling ---------------------------------------------------------------------------------------------------

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        """Settle the delivery `tag`, or all up to it (0 with `multiple`: all); in a transaction at the commit.

        Raises: UnknownDeliveryTag: the tag was never sent or is settled; nothing is settled then.
        """
        transaction = self.transaction
        if transaction is None:
            settle(self.unacked.take(tag, multiple=multiple, uncommitted=None))
        else:
            transaction.acked += self.unacked.take(tag, multiple=multiple, uncommitted=transaction.tags)

    def ack_up_to(self, tags: Sequence[int]) -> None:
        """Settle the deliveries up to each of these tags, which rise: the multiple acks of one read. In a transaction
        at the commit.

        Raises: UnknownDeliveryTag: tags before the unknown one are settled.
        """
        if all(map(self.unacked.__contains__, tags)):
            self.ack(tags[-1], multiple=True)
        else:
            for tag in tags:
                self.ack(tag, multiple=True)

    def ack_each(self, tags: Sequence[int]) -> None:
        """Settle the deliveries of these tags: the single acks of one read. In a transaction at the commit.

        Raises: UnknownDeliveryTag: tags before the unknown one are settled.
        """
        if self.transaction is not None:
            for tag in tags:
                self.ack(tag)
            return
        settled: list[Message] = []
        try:
            settled.extend(map(self.unacked.pop, tags))  # has the messages before a failing tag
        except KeyError:
            raise UnknownDeliveryTag(tag=tags[len(settled)]) from None
        finally:
            settle(settled)

    def reject(self, tag: int, *, multiple: bool = False, requeue: bool, why: str = NACKED) -> None:
        """Requeue deliveries, or (`requeue` false) drop or dead-letter them; while their dead-letter address is full,
        requeue. In a transaction at the commit.

        `why`: nacked or rejected. Options `nack_counts` and `reject_counts` say whether a requeue counts as a failed
        attempt (ruling 8).
        Raises: UnknownDeliveryTag, StreamOperationNotSupported.
        """
        transaction = self.transaction
        taken: dict[int, Message] = {} if transaction is None else transaction.tags
        messages = self.unacked.take(tag, multiple=multiple, uncommitted=taken)
        try:
            check_reject(messages)
        except StreamOperationNotSupported:
            if transaction is None:
                self.unacked.put_back(taken)  # those of other queues are requeued when the session ends
            raise
        if transaction is not None:
            transaction.rejected.append((messages, requeue, why))
        else:
            return_deliveries(messages, requeue=requeue, why=why, broker=self.client.broker)

    def recover(self) -> None:
        """Requeue all unacknowledged messages. Their next deliveries, perhaps delayed, have new tags."""
        requeue_by_consumer(self.unacked.take_all(), why="recovered", counted=False, broker=self.client.broker)

    def release(self, holder: Holder, queue: Queue, count: int) -> None:
        """Count deliveries of a holder as settled. Their credit is free, so queues may dispatch again."""
        if holder.is_past:
            holder.settled(count)
            return
        queue.events.settled(count)
        holder.unacked -= count
        if holder.counts_against_prefetch:
            self.unacked_by_consumers -= count
        if self.prefetch_total or self.is_full:
            self.is_full = False
            self.subscriptions.mark_queues()
        elif queue.store.ready or queue.store.has_tail:
            queue.mark()

    # -- transactions -----------------------------------------------------------------------------------------------

    def select_transactions(self) -> None:
        """Collect publishes and acknowledgements until commit. Raises: TxAfterConfirm."""
        if self.confirms is not None:
            raise TxAfterConfirm
        if self.transaction is None:
            self.transaction = Transaction()

    def commit(self) -> Commit:
        """Apply the transaction. A large one is applied in slices at the ends of turns, until `Commit.is_done`.

        The client is flushed when the commit is done. Until then no other method of the session may be called.
        Raises: NotTransactional.
        """
        transaction = self.transaction
        if transaction is None:
            raise NotTransactional
        self.transaction = Transaction()
        self.unacked_index.clear()
        commit = Commit(self, transaction)
        self.client.broker.commits.apply(commit)
        if not commit.is_done:
            self.committing = commit
        return commit

    def committed(self) -> None:
        """Note that the commit in progress is done."""
        self.committing = None
        if self not in self.client.sessions:
            self.subscriptions.leave_queues(self)
        for past in self._pasts:
            past.add_later(self)

    def roll_back(self) -> None:
        """Drop the transaction's publishes and acknowledgements. Raises: NotTransactional."""
        transaction = self.transaction
        if transaction is None:
            raise NotTransactional
        self.transaction = Transaction()
        self.unacked_index.clear()
        if transaction.tags:
            self.unacked.put_back(transaction.tags)

    @property
    def _pasts(self) -> tuple[PastSessions, ...]:
        """The sums of closed sessions: of the broker, and of its virtual host."""
        return (self.client.broker.past_sessions, self.client.host.past_sessions)

    # -- the end ----------------------------------------------------------------------------------------------------

    def close(self, *, failed: bool = False) -> None:
        """Requeue unacknowledged messages and end the subscriptions. Uncommitted work is dropped.

        Some consumers end first (`Subscriptions.cancel_first`). Many messages are requeued in slices, which go on
        afterwards, unless a commit is under way or a queue keeps acknowledged messages.

        `failed`: an error or a lost connection ends it, and its deliveries are failed attempts (address-settings 7.1),
        unless the broker is stopping.
        """
        failed = failed and not self.client.broker.is_stopping
        self.flowing = False  # its consumers must not get the requeued messages
        if self.transaction is not None:
            self.roll_back()
            self.transaction = None
        if self.consumers:
            self.subscriptions.cancel_first()
        with_redelivery_delay = failed and self.client.broker.options.delay_on_connection_loss
        why = "lost" if failed else "closed"
        steps = None
        has_copies = any(queue.keeps_acked for queue in self.subscriptions.queues)
        if len(self.unacked) > REQUEUE_SLICE and self.committing is None and not has_copies:
            steps = requeue_in_slices(self, why=why, counted=failed, with_redelivery_delay=with_redelivery_delay)
            next(steps)
        elif self.unacked:
            requeue_run(self.unacked.take_all(), why=why, counted=failed, with_redelivery_delay=with_redelivery_delay)
        if self.consumers:
            self.subscriptions.cancel(list(self.consumers))
        if steps is not None:
            self.client.broker.background.run(steps)
        elif self.committing is None:
            self.subscriptions.leave_queues(self)
        activity = self.client.broker.activity
        if self.client.sessions.pop(self, self) is None:  # the first time
            activity.channels_closed += 1
            for past in self._pasts:
                past.add(self, delivered=self.delivered, confirmed=self.confirmed, is_over=self.committing is None)
            if self.confirms is not None:
                activity.confirmable += self.confirms.published
                activity.confirmed += self.confirms.acknowledged

    @property
    def delivered(self) -> int:
        """The number of deliveries to consumers and gets."""
        return self.next_tag - 1

    @property
    def confirmed(self) -> int:
        """The number of publishes answered with an ack."""
        return 0 if self.confirms is None else self.confirms.acknowledged

    def fail(self, error: EngineError) -> None:
        """Close the session because of an error. The frontend gets the error with the next flush."""
        self.close(failed=True)
        self.client.put(SessionFailed(self, error), 0)

    def unacked_of(self, queue: Queue) -> list[Message]:
        """The deliveries of a queue that are unacknowledged, or whose settlement is not committed; unordered."""
        uncommitted = {} if self.transaction is None else self.transaction.tags
        committing = () if self.committing is None else self.committing.unsettled()
        return self.unacked_index.of(queue, self.unacked, uncommitted, committing)

    def first_unacked_of(self, queue: Queue, count: int) -> list[Message]:
        """At most `count` of `unacked_of`, without those of a commit under way."""
        uncommitted = {} if self.transaction is None else self.transaction.tags
        return self.unacked_index.first(queue, count, self.unacked, uncommitted)

    def forget_queue(self, queue: Queue) -> None:
        """Forget a deleted queue. Later acknowledgements of its deliveries have no effect."""
        del self.subscriptions.queues[queue]
        self.unacked_index.forget(queue)
