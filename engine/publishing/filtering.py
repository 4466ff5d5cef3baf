"""The filters of queues and diverts, applied to a message. Source: address-settings page 1.1, 3.7."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...settings import Divert
from ..exchanges.routed import Routed
from ..messages.message import Envelope, Message
from ..queues.queue import Queue

if TYPE_CHECKING:
    from ..delivery.filters import MessageSubject


class FilteredOut:
    """The queues whose filters do not take a message. The message is read once for all filters.

    The effort of the filters is added to `routed.cost`.
    """

    __slots__ = ("_message", "_routed", "_subject")

    def __init__(self, message: Message, routed: Routed) -> None:
        self._message = message
        self._routed = routed
        self._subject: MessageSubject | None = None

    def __contains__(self, queue: object) -> bool:
        if not isinstance(queue, Queue) or queue.rules.filter is None:
            return False
        if self._subject is None:
            from ..delivery.filters import MessageSubject  # loads the filter language, which few brokers need

            self._subject = MessageSubject(self._message)
        self._routed.cost += 1
        return not queue.rules.filter.matches(self._subject)


def matching_diverts(diverts: tuple[Divert, ...], envelope: Envelope, content: bytes) -> Sequence[Divert]:
    """The diverts that take a message; only the exclusive ones, if any is exclusive."""
    if any(one.filter for one in diverts):
        from ..delivery.filters import MessageSubject  # loads the filter language, which few brokers need
        from ..rules.consumer_filter import selector

        subject = MessageSubject(Message(0, content, envelope))
        diverts = tuple(one for one in diverts if not one.filter or selector(one.filter).matches(subject))
    return [one for one in diverts if one.is_exclusive] or diverts
