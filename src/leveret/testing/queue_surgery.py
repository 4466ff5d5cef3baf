"""Messages taken out of the middle of a queue, which no client can ask for."""

from ..engine import Message, Queue
from ..engine.queues import deep
from ..engine.stores.kept_log import KeptLog
from ..engine.stores.kept_ready import KeptReady


def load_all(queue: Queue) -> None:
    """Bring what only the journal holds into memory."""
    while queue.tail is not None:
        deep.load(queue)
    if isinstance(queue.ready, KeptLog):
        queue.ready.load_all()


def take_ready(queue: Queue, gone: list[Message]) -> None:
    """Take messages out of the ready list; the rest stays as it is."""
    if not gone:
        return
    if isinstance(queue.ready, KeptReady):
        for message in gone:
            queue.ready.take(message.id)
    else:
        ids = {message.id for message in gone}
        kept = [message for message in queue.take_ready() if message.id not in ids]
        queue.merge(sorted(kept, key=lambda message: message.id, reverse=True))
    queue.purge_these(gone)
