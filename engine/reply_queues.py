"""The queues behind consumers of direct replies, of one virtual host. Source: behaviour page 3.10."""

from .clients.client import Client
from .context import HostContext
from .errors import QueueNotFound
from .queues.kinds import REPLY, REPLY_PREFIX, REPLY_TO
from .queues.queue import Queue
from .rules.queue_rules import NO_RULES


class ReplyQueues(dict[str, Queue]):
    """By their addresses. Everybody may publish there; none is in a list of queues."""

    __slots__ = ("_context",)

    def __init__(self, context: HostContext) -> None:
        super().__init__()
        self._context = context

    def add(self, address: str, owner: Client) -> Queue:
        """Direct replies to `address` go to this queue until it loses its consumer.

        Not exclusive by the book: everybody may publish there, and no other client can consume.
        """
        queue = self[address] = REPLY.make(
            self._context,
            address,
            kind=REPLY,
            durable=False,
            owner=owner,
            auto_delete=False,
            arguments={},
            rules=NO_RULES,
            address=address,
        )
        return queue

    def has(self, name: str) -> bool:
        """Whether somebody waits for direct replies there. The name that stands for one's own is always right.

        Raises: QueueNotFound for an address where nobody does.
        """
        if name in self or name == REPLY_TO:
            return True
        if name.startswith(REPLY_PREFIX):
            raise QueueNotFound(name=name, vhost=self._context.name)
        return False

    def remove(self, queue: Queue) -> int:
        """Its consumer is gone; replies on their way are, too. Returns how many were ready."""
        queue.begin_delete()
        del self[queue.name]
        count = queue.end()
        self._context.broker.counters.add(queue.counters)
        return count
