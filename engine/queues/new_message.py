"""Which kind of message a queue makes of an arrival: of a group, one whose content can be left, or neither."""

from typing import TYPE_CHECKING

from ..delivery.group_id import grouped
from ..messages.message import Envelope, Message
from ..stores.last_value import LastValueReady
from ..stores.paged_message import PagedMessage

if TYPE_CHECKING:
    from .queue import Queue


def message_for(queue: "Queue", id_: int, blob: bytes, envelope: Envelope) -> Message:
    """A message for a queue: of its group, where the queue heeds groups; one that can be left to the journal."""
    rules = queue.rules
    if envelope.facts.is_marked and rules.group_buckets != 0 and rules.last_value_key is None and not queue.keeps:
        message = grouped(id_, blob, envelope, rules.group_buckets)
        if message is not None:
            queue.has_groups()
            return message
    if isinstance(queue.ready, LastValueReady) and queue.broker.pager is not None:
        return PagedMessage(id_, blob, envelope, queue.ready)
    return Message(id_, blob, envelope)
