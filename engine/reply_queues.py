"""The queues of direct replies in one virtual host. Source: behaviour page 3.10."""

from .clients.client import Client
from .context import HostContext
from .errors import QueueNotFound
from .queues.kinds import REPLY, REPLY_PREFIX, REPLY_TO
from .queues.queue import Queue


class ReplyQueues(dict[str, Queue]):
    """The reply queues by address. Every client may publish to them; they are in no list of queues."""

    def __init__(self, context: HostContext) -> None:
        super().__init__()
        self._context = context

    def add(self, address: str, owner: Client) -> Queue:
        """Make the queue of direct replies to `address`, which exists as long as its consumer.

        Only `owner` can consume from it.
        """
        queue = self[address] = Queue(self._context, address, kind=REPLY, owner=owner)
        return queue

    def has(self, name: str) -> bool:
        """Whether `name` is that of a reply queue, or `REPLY_TO`. Raises: QueueNotFound: the reply queue is gone."""
        if name in self or name == REPLY_TO:
            return True
        if name.startswith(REPLY_PREFIX):
            raise QueueNotFound(name=name, vhost=self._context.name)
        return False

    def remove(self, queue: Queue) -> int:
        """Remove the queue of a consumer that ended, with its replies. Returns the number of ready messages."""
        queue.begin_delete()
        del self[queue.name]
        count = queue.end()
        self._context.broker.counters.add(queue.counters)
        return count
