"""Putting mixed runs into the queues of their routes."""

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter

from ..context import HostContext
from ..messages.event import emit_mixed
from ..messages.message import Envelope
from ..queues.queue import Queue
from .publish_events import MixedPublishedEvent

_EXCHANGE = attrgetter("exchange")


def publish_mixed(
    host: HostContext, queue: Queue, envelopes: Sequence[Envelope], contents: Sequence[bytes]
) -> Sequence[int]:
    """Give a mixed run its ids, and put it into the one queue that all its messages are routed to.

    Only for plain messages (`Envelope.is_plain`) to addresses without rules, while the journal has not failed.
    Returns: the offsets of messages that the queue refused.
    """
    broker = host.broker
    count = len(contents)
    first_id = broker.next_id
    broker.next_id = first_id + count
    broker.counters.published += count
    broker.counters.routed += count
    if broker.listeners:
        ids = range(first_id, first_id + count)
        emit_mixed(broker.listeners, MixedPublishedEvent(host.name, "", ids, envelopes, contents, queue))
    return queue.enqueue_mixed(first_id, envelopes, contents)


def count_by_exchange(host: HostContext, envelopes: Sequence[Envelope]) -> None:
    """Count a mixed run at its exchanges, each message with one queue; called once for all its queues."""
    names = set(map(_EXCHANGE, envelopes))
    counts = {names.pop(): len(envelopes)} if len(names) == 1 else Counter(map(_EXCHANGE, envelopes))
    for name, count in counts.items():
        exchange = host.exchanges.get(name)
        if exchange is not None:
            exchange.published_in += count
            exchange.published_out += count


def publish_among(
    host: HostContext, queues: Sequence[Queue], envelopes: Sequence[Envelope], contents: Sequence[bytes]
) -> Sequence[int]:
    """Publish a mixed run, each message to its queue in `queues`: queue by queue, in order within each.

    Returns: the offsets of messages that a queue refused, rising.
    """
    offsets_of: dict[Queue, list[int]] = {}
    for offset, queue in enumerate(queues):
        offsets_of.setdefault(queue, []).append(offset)
    refused: list[int] = []
    for queue, offsets in offsets_of.items():
        some = publish_mixed(host, queue, [envelopes[at] for at in offsets], [contents[at] for at in offsets])
        refused += [offsets[at] for at in some]
    refused.sort()
    return refused
