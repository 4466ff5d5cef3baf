"""The log as a destination: messages of logged topics go there in addition to their queues.

The journal stores a message once for all its destinations. With this destination it also stores messages of logged
topics that no queue stores. Without a journal the sink keeps them in memory. The sink is in no list of queues.
Source: queues page C.1; docs/decisions/0012-log.md.
"""

from collections.abc import Sequence
from dataclasses import replace

from ..context import HostContext
from ..messages.message import Envelope
from .kinds import REPLY
from .queue import Queue

SINK = replace(REPLY, name="log", goes_with_consumers=False)


class LogSink(Queue):
    """The log destination of one virtual host. Listeners skip it by its name, which is empty, unlike any queue's."""

    def __init__(self, context: HostContext) -> None:
        super().__init__(context, "", kind=SINK, durable=True)

    def stores(self, envelope: Envelope) -> bool:
        return True  # in any delivery mode

    def enqueue(
        self, first_id: int, envelope: Envelope, contents: Sequence[bytes], due_ns: int | None = None
    ) -> Sequence[int]:
        """Note the run in the memory log. A journal needs no call: it listens to publishes."""
        context = self.context
        storage = context.broker.storage
        if storage.durability is None:
            wall_ms = context.broker.clock.wall_ms()
            storage.memory_log.note(context.name, self.name, first_id, envelope, contents, wall_ms)
        return ()

    def enqueue_mixed(self, first_id: int, envelopes: Sequence[Envelope], contents: Sequence[bytes]) -> Sequence[int]:
        return self.enqueue_stretches(first_id, envelopes, contents)
