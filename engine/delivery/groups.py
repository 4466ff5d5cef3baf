"""Message groups: messages with the same group id go to the same consumer, in order.

A group belongs to the consumer that got its first message, until that one leaves, a rebalance, or a message that ends
the group. Messages of a group whose consumer has no credit wait; those behind them go on.
Source: address-settings page 3.4.
"""

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..messages.field_table import Field
from ..messages.message import Message
from ..queues import deep
from ..queues.limits import expire
from . import rota
from .consumer import Consumer
from .group_id import GroupedMessage

if TYPE_CHECKING:
    from ..queues.queue import Queue

#: Messages of groups whose consumers are busy that one dispatch looks past (about 5 ms).
PASSED_MAX = 20_000


class Groups:
    """Which consumer has which group. Made when the first message of a group arrives."""

    __slots__ = ("_consumers", "_is_paused")

    def __init__(self) -> None:
        self._consumers: dict[str, Consumer] = {}
        self._is_paused = False

    def consumer_of(self, group: str) -> Consumer | None:
        """Who has the group; None: nobody."""
        return self._consumers.get(group)

    def consumer_joined(self, queue: "Queue") -> None:
        """Groups are dealt anew where the queue's rules say so, at once or when nothing is out any more."""
        if queue.rules.group_rebalance and len(queue.consumers) > 1:
            self._consumers.clear()
            self._is_paused = queue.rules.group_rebalance_pause_dispatch

    def consumers_left(self, consumers: Iterable[Consumer]) -> None:
        """Their groups are free."""
        gone = set(consumers)
        self._consumers = {group: one for group, one in self._consumers.items() if one not in gone}

    def dispatch(self, queue: "Queue") -> None:
        """Hand out ready messages, each to the consumer of its group. O(delivered + passed)."""
        if self._is_paused and queue.unacked:
            return
        self._is_paused = False
        ready = queue.ready
        passed: deque[Message] = deque()
        while ready and len(passed) < PASSED_MAX:
            if queue.expiring:
                expire(queue)
                if not ready:
                    break
            if not rota.has_waiting(queue):
                break
            message = ready.popleft()
            consumer = self._taker(queue, message)
            if consumer is None:
                passed.append(message)
            else:
                consumer.session.deliver_ready(consumer, [message])
                if rota.gives_way(queue, consumer):
                    break
        while passed:
            ready.appendleft(passed.pop())
        if queue.tail is not None:
            deep.feed(queue)

    def _taker(self, queue: "Queue", message: Message) -> Consumer | None:
        """Who may have the message now; a group without a consumer goes to the next in the rota."""
        if not isinstance(message, GroupedMessage):
            eligible = rota.eligible(queue, 1)
            return eligible[0] if eligible else None
        consumer = self._consumers.get(message.group)
        if consumer is None:
            eligible = rota.eligible(queue, 1)
            if not eligible:
                return None
            consumer = eligible[0]
            if not message.ends:
                self._consumers[message.group] = consumer
            _tell_first(queue, message)
        elif consumer.credit() <= 0:
            return None
        elif message.ends:
            del self._consumers[message.group]
        return consumer


def _tell_first(queue: "Queue", message: Message) -> None:
    """The first message of a group for a consumer says so, where the queue's rules name a header for it."""
    key = queue.rules.group_first_key
    if key is not None:
        queue.add_headers(message, {key: Field("t", True)})
