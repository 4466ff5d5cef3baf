"""Acknowledges, cancels or expires messages by bookmark or filter, for clients that do not hold them, and operators.

A message to the exchange `amps.control` is a request: routing key `sow_delete`; headers `queue`, one of `bookmark` and
`filter`, `options`. The sender needs the permission to configure the queue. With strict leasing, leased messages are
left out; the header `x-client`, the name of the sender's connection, includes those that the connection holds. The
answer goes to reply_to, as JSON.
Source: queues page A.6; docs/leases.md.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...expressions.language import AMPS, Expression, ExpressionError, compiled
from ...settings.leases.leased_settings import STRICT
from ..context import HostContext
from ..delivery.consumer import holder_of
from ..delivery.filters import MessageSubject
from ..errors import BadRequest
from ..messages.content import ContentError, PropertyValue, decode_properties
from ..messages.message import Envelope, Message
from ..publishing.arrival import answer_request
from ..publishing.service import Sender
from ..queues.queue import Queue
from ..users.permissions import CONFIGURE, QUEUE
from .deferring import check_room, defer_acks
from .ending import FORCED_EXPIRE, TAKEN_OVER, arm, break_leases, expire_for, take_over
from .headers import ORIGIN
from .state import Leases, leases_of, state_of

if TYPE_CHECKING:
    from ..clients.client import Client

EXCHANGE = "amps.control"
REQUEST = "sow_delete"
ACKNOWLEDGE, CANCEL, EXPIRE = "", "cancel", "expire"
OPTIONS = (ACKNOWLEDGE, CANCEL, EXPIRE)
#: Messages examined in one step.
DISCARD_SLICE = 500
#: Maximum bookmarks in one request.
BOOKMARKS_MAX = 10_000
#: The highest id that a bookmark may have.
ID_MAX = 2**62


@dataclass(slots=True)
class Discarded:
    """The result of one request, in messages. `matches`: found; `deleted`: found and removed; `deferred`: to be
    acknowledged when they come.
    """

    matches: int = 0
    deleted: int = 0
    deferred: int = 0


#: The steps of a request; they return its result.
Steps = Generator[None, None, Discarded]


def handle(context: HostContext, sender: Sender, envelope: Envelope, content: bytes) -> None:
    """Serve a request in a virtual host: its first step now, further ones in the background."""
    steps = _serve(context, sender, envelope, content)
    for _ in steps:
        context.broker.background.run(steps)
        break


def _serve(context: HostContext, sender: Sender, envelope: Envelope, content: bytes) -> Iterator[None]:
    try:
        properties = decode_properties(envelope.framing.split(content)[0])
    except ContentError:
        properties = {}
    try:
        done = yield from _discard(context, sender, envelope, properties)
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
    answer_request(context, properties, answer)


def _discard(
    context: HostContext, sender: Sender, envelope: Envelope, properties: Mapping[str, PropertyValue]
) -> Steps:
    if envelope.routing_key != REQUEST:
        raise BadRequest(f"the routing key is {REQUEST}")
    table = properties.get("headers")
    headers = {
        name: field.text
        for name, field in (table.items() if isinstance(table, dict) else ())
        if isinstance(field.value, bytes)
    }
    name = headers.get("queue", "")
    if not sender.user.may(CONFIGURE, QUEUE, name, context.name):
        raise BadRequest("you may not configure this queue")
    queue = context.queues.seen(name, sender.client)
    if queue is None or state_of(queue) is None:
        raise BadRequest(f"no leased queue {name[:255]!r}")
    named = headers.get("x-client")
    if named is not None and (sender.client is None or not sender.client.is_called(named)):
        raise BadRequest(f"x-client: {named[:255]!r} is not the name of your connection")
    own = None if named is None else sender.client
    bookmark, filter_text, option = headers.get("bookmark"), headers.get("filter"), headers.get("options", "")
    return (yield from discarding(queue, bookmark, filter_text, option, own))


def discarding(
    queue: Queue, bookmarks: str | None, filter_text: str | None, option: str, own: "Client | None" = None
) -> Steps:
    """The steps of one request about a leased queue. Raises: BadRequest.

    `own`: with strict leasing, the client whose leases are included.
    """
    leases = leases_of(queue)
    if (bookmarks is None) == (filter_text is None):
        raise BadRequest("a request has one of bookmark and filter")
    if option not in OPTIONS:
        raise BadRequest(f"{option[:80]!r}: options are empty, cancel or expire")
    if bookmarks is not None:
        return _discard_ids(leases, ids_of(bookmarks), option, own)
    try:
        expression = compiled(filter_text or "", AMPS)
    except ExpressionError as error:
        raise BadRequest(f"filter: {error}") from None
    return (yield from _discard_matching(leases, expression, option, own))


def ids_of(bookmarks: str) -> list[int]:
    """The message ids in a comma-separated list of bookmarks. The messages may not exist yet. Raises: BadRequest."""
    found: list[int] = []
    for bookmark in bookmarks.split(","):
        parts = bookmark.strip().split("|")
        if len(parts) != 3 or parts[2] or not all(part.isascii() and part.isdigit() for part in parts[:2]):
            raise BadRequest(f"{bookmark.strip()[:80]!r} is not a bookmark")
        id_ = int(parts[1][:30])
        if int(parts[0][:30]) != ORIGIN or not 0 < id_ <= ID_MAX:
            raise BadRequest(f"{bookmark.strip()[:80]!r} is not a bookmark of this broker")
        found.append(id_)
    if len(found) > BOOKMARKS_MAX:
        raise BadRequest(f"more than {BOOKMARKS_MAX} bookmarks")
    return found


def _discard_ids(leases: Leases, ids: Sequence[int], option: str, own: "Client | None") -> Discarded:
    """Discard messages with these ids that are active in the queue, ready or leased (`CANCEL`: only leased).

    `own`: see `_discard_leased`. Acknowledgements of other messages that may still come are deferred (queues page C.6).
    Raises: BadRequest: too many would be deferred; nothing is discarded.
    """
    done = Discarded()
    by_id = leases.book.leases.by_id
    leased = [by_id[id_] for id_ in dict.fromkeys(ids) if id_ in by_id]
    rest = [id_ for id_ in dict.fromkeys(ids) if id_ not in by_id]
    if option == ACKNOWLEDGE:
        check_room(leases, rest)  # before anything is discarded
    _discard_leased(leases, leased, option, done, own)
    if option == CANCEL:  # the rest is not leased
        return done
    found = _discard_ready(leases, leases.positions_of(rest), option, done)
    if option == ACKNOWLEDGE and len(found) < len(rest):
        done.deferred = defer_acks(leases, (id_ for id_ in rest if id_ not in found))
    return done


def _discard_matching(leases: Leases, expression: Expression, option: str, own: "Client | None") -> Steps:
    """Discard, in steps, all messages that are leased (`CANCEL`: only these) or active now and match a filter."""
    queue, done, after, until_id = leases.queue, Discarded(), 0, leases.last_id
    if leases.active is not None:  # not of messages that become active because of the request
        leases.refill_active()
        until_id = min(until_id, leases.active.end)
    leased = list(leases.book.leases.by_id.values())
    leased = [message for message in leased if expression.matches(MessageSubject(message))]
    _discard_leased(leases, leased, option, done, own)
    while option != CANCEL and not queue.deleted:
        seen = leases.scan_active(after, DISCARD_SLICE)
        if seen.missing:
            queue.store.load_at(seen.found[-1][0] if seen.found else after, DISCARD_SLICE)
            seen = leases.scan_active(after, DISCARD_SLICE)
        found = [
            position
            for position, message in seen.found
            if message.id <= until_id and expression.matches(MessageSubject(message))
        ]
        _discard_ready(leases, found, option, done)
        queue.context.broker.turn.effort += len(seen.found)
        if len(seen.found) < DISCARD_SLICE and not seen.missing:
            break
        after = seen.found[-1][0] if seen.found else after
        yield
    return done


def _discard_leased(
    leases: Leases, leased: Sequence[Message], option: str, done: Discarded, own: "Client | None"
) -> None:
    """Discard leased messages, or end their leases (`CANCEL`); with strict leasing only those that `own` holds."""
    if leases.rules.settings.leasing == STRICT:
        leased = [lease for lease in leased if holder_of(lease).session.client is own]
    if not leased:
        return
    done.matches += len(leased)
    if option == CANCEL:
        break_leases(leases, leased, TAKEN_OVER, is_cancel=True)
        return
    messages = take_over(leases, leased)
    done.deleted += len(messages)
    _remove(leases, messages, option)


def _discard_ready(leases: Leases, positions: Sequence[int], option: str, done: Discarded) -> set[int]:
    """Discard ready messages at these positions. Returns the ids of those that were there."""
    if not positions:
        return set()
    messages = leases.queue.consumable.take_at(positions).messages
    done.matches += len(messages)
    done.deleted += len(messages)
    _remove(leases, messages, option)
    return {message.id for message in messages}


def _remove(leases: Leases, messages: list[Message], option: str) -> None:
    if not messages:
        return
    if option == EXPIRE:
        expire_for(leases, messages, (FORCED_EXPIRE,))
    else:
        leases.count_acked(messages)
    leases.queue.mark()


def renew_leases(queue: Queue, bookmarks: str) -> int:
    """Renew the live leases of messages with these bookmarks. Returns the number of leases. Raises: BadRequest."""
    leases = leases_of(queue)
    table, now_ns = leases.book.leases, queue.context.broker.clock.monotonic_ns()
    ids = {*ids_of(bookmarks)} & table.by_id.keys()
    for id_ in ids:
        table.renew(table.by_id[id_], now_ns)
    arm(leases)
    return len(ids)
