"""The consumers of a session, and the queues from which the session may have unacknowledged deliveries.

Source: behaviour page 2.7, 2.12, 3.10.
"""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..delivery import consumer_list
from ..delivery.consumer import Consumer, Holder
from ..errors import (
    ConsumerTagInUse,
    ReplyConsumerAcknowledges,
    ReplyConsumerMissing,
    ReplyConsumerTaken,
    ResourceLocked,
)
from ..messages.content import REPLY_TO_ME, Framing, decode_properties
from ..messages.field_table import FieldTable
from ..queues import consumers
from ..queues.queue import Queue
from ..queues.refusals import check_consume
from ..rules.arguments import CONSUMER_ARGUMENTS, CONSUMER_FILTERS, REPLACE, unknown_arguments

if TYPE_CHECKING:
    from ...expressions.language import Expression
    from .client import Client
    from .session import Session


class Subscriptions:
    """The consumers of one session. `by_tag`: in the order in which `mark_queues` serves them."""

    __slots__ = ("_client", "by_tag", "queues", "replies")

    def __init__(self, client: "Client") -> None:
        self._client = client
        self.by_tag: dict[str, Consumer] = {}
        self.queues: dict[Queue, None] = {}  # queues with deliveries that may be unacknowledged
        self.replies: Consumer | None = None  # the consumer of direct replies

    @property
    def reply_address(self) -> str | None:
        """The address of direct replies to the session; None: it has no consumer for them."""
        return None if self.replies is None else self.replies.queue.name

    def check_tag(self, tag: str, arguments: FieldTable | None = None) -> None:
        """Refuse a consumer tag that is in use in the session. As in RabbitMQ, call this before other checks.

        `arguments`: those of the new consumer. With x-replace it may replace a consumer if the queue's kind allows it.
        Raises: ConsumerTagInUse.
        """
        known = self.by_tag.get(tag)
        if known is not None and not (arguments and REPLACE in arguments and known.queue.kind.replaces_consumers):
            raise ConsumerTagInUse(tag=tag)

    def check_access(self, queue: Queue) -> None:
        """Raises: ResourceLocked when the queue is exclusive to another client."""
        if queue.owner is not None and queue.owner is not self._client:
            raise ResourceLocked(name=queue.name, vhost=queue.vhost_name)

    def check_reply_to(self, framing: Framing, content: bytes) -> None:
        """Refuse a message that asks for direct replies if the session has no consumer for them.

        Raises: ReplyConsumerMissing.
        """
        if self.replies is None and decode_properties(framing.split(content)[0]).get("reply_to") == REPLY_TO_ME:
            raise ReplyConsumerMissing

    def add(
        self, session: "Session", queue: Queue, tag: str, *, no_ack: bool, exclusive: bool, arguments: FieldTable
    ) -> Consumer:
        """Subscribe. Raises: as `Session.consume`."""
        self.check_access(queue)
        self.check_tag(tag, arguments)
        if (known := self.by_tag.get(tag)) is not None:
            if known.queue is not queue:
                raise ConsumerTagInUse(tag=tag)
            queue.delivery.replace(
                queue, known, arguments, self._filter_of(queue, arguments), no_ack=no_ack, exclusive=exclusive
            )
            return known
        prefetch = session.prefetch
        check_consume(queue, no_ack=no_ack, prefetch=prefetch, prefetch_total=session.prefetch_total)
        consumer = Consumer(
            queue,
            session,
            tag,
            no_ack=no_ack,
            exclusive=exclusive,
            prefetch=prefetch,
            arguments=arguments,
            filter_=self._filter_of(queue, arguments),
        )
        consumers.add(queue, consumer)
        self.by_tag[tag] = consumer
        if arguments and (unknown := unknown_arguments(arguments, CONSUMER_ARGUMENTS)):
            broker = self._client.broker
            broker.on_unknown_arguments("consumer of queue", queue.name, queue.vhost_name, unknown)
        if not no_ack:
            self.note_holder(consumer)
        return consumer

    def _filter_of(self, queue: Queue, arguments: FieldTable) -> "Expression | None":
        client = self._client
        if not client.broker.options.has_consumer_filters or not any(key in arguments for key in CONSUMER_FILTERS):
            return None
        from ..rules.consumer_filter import filter_of  # see `Consumer`

        client_values = {"CLIENT_NAME": client.name, "USER": client.user.name}
        return filter_of(arguments, client_values, name=queue.name, vhost=queue.vhost_name)

    def add_replies(self, session: "Session", tag: str, address: str, *, no_ack: bool) -> Consumer:
        """Subscribe to direct replies. Raises: as `Session.consume_replies`."""
        if self.replies is None or tag != self.replies.tag:
            self.check_tag(tag)
        if not no_ack:
            raise ReplyConsumerAcknowledges
        if self.replies is not None:
            raise ReplyConsumerTaken
        queue = self._client.vhost.reply_queues.add(address, self._client)
        consumer = Consumer(queue, session, tag, no_ack=True, exclusive=False, prefetch=0, arguments={})
        consumers.add(queue, consumer)
        self.by_tag[tag] = self.replies = consumer
        return consumer

    def note_holder(self, holder: Holder) -> None:
        """Record that the session may have unacknowledged deliveries of a holder's queue."""
        self._client.broker.acknowledgements.watch(holder)
        queue = holder.queue
        self.queues[queue] = None
        queue.note_session_with_unacked(holder.session)

    def mark_queues(self) -> bool:
        """Mark those queues of the session's consumers that have ready messages. Returns whether there is such a queue.

        Consumers share limits of the session and the client. Therefore the first consumer with credit goes to the end
        of `by_tag`.
        """
        has_any = False
        first = None
        self._client.broker.turn.effort += len(self.by_tag) // consumer_list.CHECKS_PER_EFFORT
        for consumer in self.by_tag.values():
            queue = consumer.queue
            if queue.has_ready:
                has_any = True
                queue.mark()
                if first is None and consumer.credit() > 0:
                    first = consumer
        if first is not None:
            self.by_tag[first.tag] = self.by_tag.pop(first.tag)
        return has_any

    # -- the end ------------------------------------------------------------------------------------------------------

    def cancel(self, tags: Iterable[str]) -> None:
        """End subscriptions; their unacked deliveries stay with the session."""
        by_queue: dict[Queue, list[Consumer]] = {}
        for tag in tags:
            consumer = self.by_tag.pop(tag)
            by_queue.setdefault(consumer.queue, []).append(consumer)
        for queue, leaving in by_queue.items():
            if self.replies in leaving:
                self.replies = None
            consumers.remove(queue, leaving)
            for consumer in leaving:
                if not consumer.no_ack:
                    self._client.broker.acknowledgements.consumer_left()

    def cancel_first(self) -> None:
        """Cancel the consumers that have to leave before deliveries are requeued.

        They are the last ones of auto-delete queues, which are deleted then, and those of rings: whoever takes over
        gets what it has room for, before anything is dropped (address-settings page 4.5, rule 4).
        """
        counts = Counter(queue for one in self.by_tag.values() if (queue := one.queue).auto_delete)
        queues = {queue for queue, count in counts.items() if count == len(queue.consumers)}
        queues |= {queue for one in self.by_tag.values() if (queue := one.queue).rules.ring_size is not None}
        self.cancel([tag for tag, consumer in self.by_tag.items() if consumer.queue in queues])

    def forget(self, consumer: Consumer) -> None:
        """Forget a consumer that the broker removed from its queue."""
        if self.replies is consumer:
            self.replies = None
        if self.by_tag.pop(consumer.tag, None) is not None and not consumer.no_ack:
            self._client.broker.acknowledgements.consumer_left()

    def leave_queues(self, session: "Session") -> None:
        """Tell the queues that all their deliveries to the session are settled."""
        for queue in self.queues:
            queue.left_by(session)
        self.queues.clear()
