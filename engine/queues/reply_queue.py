"""Direct reply-to: a queue behind each consumer of `amq.rabbitmq.reply-to`, that only its address leads to.

It is there as long as its consumer and is in no list of queues; messages for it take the way of all others, so that
order, flow and counters are theirs. Source: behaviour page 3.10.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ..delivery.consumer import Consumer
from ..exchanges.exchange import Exchange
from ..messages.content import REPLY_TO_ME
from ..rules.queue_rules import NO_RULES
from .parts import ExclusiveOwner
from .queue import Queue
from .surroundings import Surroundings

#: What clients consume from, and put into their requests' reply_to.
REPLY_TO = REPLY_TO_ME.decode()
#: What addresses begin with.
REPLY_PREFIX = REPLY_TO + "."


class ReplyQueue(Queue):
    """`name` is the address. Not exclusive by the book: everybody may publish, nobody else can consume.

    `on_unused` is called once, when its consumer is gone: the queue is to be deleted.
    """

    is_limited: ClassVar[bool] = False

    __slots__ = ("_on_unused",)

    def __init__(
        self,
        surroundings: Surroundings[Any],
        address: str,
        owner: ExclusiveOwner,
        on_unused: "Callable[[ReplyQueue], object]",
    ) -> None:
        super().__init__(
            surroundings,
            address,
            durable=False,
            owner=owner,
            auto_delete=False,
            arguments={},
            rules=NO_RULES,
            address=address,
        )
        self._on_unused = on_unused

    def remove_consumers(self, leaving: Sequence[Consumer]) -> None:
        """The address dies with its only one; replies under way to it are dropped."""
        super().remove_consumers(leaving)
        self._on_unused(self)


def is_reply_address(exchange: Exchange, routing_key: str) -> bool:
    """Whether messages go to a consumer of replies, which comes and goes without the topology changing."""
    return not exchange.name and routing_key.startswith(REPLY_PREFIX)
