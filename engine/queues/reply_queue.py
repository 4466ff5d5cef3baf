"""Direct reply-to: a queue behind each consumer of `amq.rabbitmq.reply-to`, that only its address leads to.

It is there as long as its consumer and is in no list of queues; messages for it take the way of all others, so that
order, flow and counters are theirs. Source: behaviour page 3.10.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..delivery.consumer import Consumer
from ..events import EventKind
from ..exchanges.exchange import Exchange
from ..messages.content import REPLY_TO_ME
from ..rules.queue_rules import NO_RULES
from .queue import Queue

if TYPE_CHECKING:
    from ..peers.client import Client
    from ..virtual_host import VirtualHost

#: What clients consume from, and put into their requests' reply_to.
REPLY_TO = REPLY_TO_ME.decode()
#: What addresses begin with.
REPLY_PREFIX = REPLY_TO + "."


class ReplyQueue(Queue):
    """`name` is the address. Not exclusive by the book: everybody may publish, nobody else can consume."""

    __slots__ = ()

    def __init__(self, vhost: "VirtualHost", address: str, owner: "Client") -> None:
        super().__init__(
            vhost,
            address,
            durable=False,
            owner=owner,
            auto_delete=False,
            arguments={},
            rules=NO_RULES,
            address=address,
        )

    def remove_consumers(self, consumers: Sequence[Consumer]) -> None:
        """The address dies with its only one; replies that were on their way are gone."""
        super().remove_consumers(consumers)
        self.deleted = True
        del self.vhost.reply_queues[self.name]
        self.forget_deadlines()
        paged = self.drop_paged(EventKind.DELETED)
        gone = self.take_ready()
        self.broker.memory.forget(self)
        self.counters.deleted += len(gone) + paged
        if self.broker.listeners:
            self.broker.emit(EventKind.DELETED, self, list(gone))
        self.broker.counters.add(self.counters)
        self.broker.free(gone)


def is_reply_address(exchange: Exchange, routing_key: str) -> bool:
    """Whether messages go to a consumer of replies, which comes and goes without the topology changing."""
    return not exchange.name and routing_key.startswith(REPLY_PREFIX)
