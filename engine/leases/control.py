"""The exchange `amps.control`: requests, sent as messages, to acknowledge messages without holding them.

Routing key `sow_delete`; headers `queue`, one of `bookmark` and `filter`, `options`. The sender needs the permission to
configure the queue. With strict leasing, `x-client`, the name of the sender's connection, adds the leases that this
connection holds. The answer goes to reply_to, as JSON. Source: queues page A.6.
"""

from collections.abc import Generator, Iterator, Mapping

from ...expressions.language import AMPS, ExpressionError, compiled
from ..context import HostContext
from ..errors import BadRequest
from ..messages.content import ContentError, PropertyValue, decode_properties
from ..messages.message import Envelope
from ..publishing.answering import answer_request
from ..publishing.service import Sender
from ..queues.queue import Queue
from ..users.permissions import CONFIGURE, QUEUE
from .deferring import DeferringCore
from .discarding import OPTIONS, Discarded, discard_ids, discard_matching, ids_of

EXCHANGE = "amps.control"
REQUEST = "sow_delete"


#: The steps of a request; they return its result.
Steps = Generator[None, None, Discarded]


class LeaseControl:
    """Serves the requests of one virtual host."""

    __slots__ = ("_context",)

    def __init__(self, context: HostContext) -> None:
        self._context = context

    def handle(self, sender: Sender, envelope: Envelope, content: bytes) -> None:
        """Serve a request now; if it takes several steps, in the background."""
        steps = self._serve(sender, envelope, content)
        for _ in steps:
            self._context.broker.background.run(steps)
            break

    def _serve(self, sender: Sender, envelope: Envelope, content: bytes) -> Iterator[None]:
        header = envelope.framing.split(content)[0]
        try:
            properties = decode_properties(header)
        except ContentError:
            properties = {}
        try:
            done = yield from self._done(sender, envelope, properties)
            answer: dict[str, object] = {
                "status": "success",
                "matches": done.matches,
                "topic_matches": done.matches,
                "records_deleted": done.deleted,
            }
            if done.deferred:
                answer["deferred"] = done.deferred
        except BadRequest as error:
            answer = {"status": "failure", "reason": str(error), "matches": 0, "topic_matches": 0, "records_deleted": 0}
        answer_request(self._context, properties, answer)

    def _done(self, sender: Sender, envelope: Envelope, properties: Mapping[str, PropertyValue]) -> Steps:
        if envelope.routing_key != REQUEST:
            raise BadRequest(f"the routing key is {REQUEST}")
        table = properties.get("headers")
        headers = {
            name: field.text
            for name, field in (table.items() if isinstance(table, dict) else ())
            if isinstance(field.value, bytes)
        }
        name = headers.get("queue", "")
        if not sender.user.may(CONFIGURE, QUEUE, name, self._context.name):
            raise BadRequest("you may not configure this queue")
        queue = self._context.queues.get(name)
        if queue is None or queue.rules.leased is None:
            raise BadRequest(f"no leased queue {name[:255]!r}")
        own = headers.get("x-client")
        if own is not None and (sender.client is None or not sender.client.is_called(own)):
            raise BadRequest(f"x-client: {own[:255]!r} is not the name of your connection")
        holder = None if own is None else sender.client
        bookmark, filter_text, option = headers.get("bookmark"), headers.get("filter"), headers.get("options", "")
        result = yield from discarding(queue, bookmark, filter_text, option, holder)
        return result


def discarding(
    queue: Queue, bookmarks: str | None, filter_text: str | None, option: str, holder: object = None
) -> Steps:
    """The steps of one request about a leased queue. Raises: BadRequest.

    `holder`: with strict leasing, the client whose leases are included.
    """
    assert isinstance(queue, DeferringCore)
    if (bookmarks is None) == (filter_text is None):
        raise BadRequest("a request has one of bookmark and filter")
    if option not in OPTIONS:
        raise BadRequest(f"{option[:80]!r}: options are empty, cancel or expire")
    if bookmarks is not None:
        return discard_ids(queue, ids_of(bookmarks), option, holder)
    try:
        expression = compiled(filter_text or "", AMPS)
    except ExpressionError as error:
        raise BadRequest(f"filter: {error}") from None
    done: Discarded = yield from discard_matching(queue, expression, option, holder)
    return done
