"""Acknowledgement of messages without holding them: by bookmark or by filter. Source: queues page A.6."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import islice

from ...expressions.language import Expression
from ...settings.leases import STRICT
from ..clock import MS
from ..delivery.consumer import Consumer, holder_of
from ..delivery.filters import MessageSubject
from ..errors import BadRequest
from ..messages.lease_headers import ORIGIN
from ..messages.message import Message
from ..queues.queue import Queue
from .deferring import DeferringCore
from .ending import FORCED_EXPIRE, TAKEN_OVER, LeasedCore
from .state import bookmark_of

ACKNOWLEDGE, CANCEL, EXPIRE = "", "cancel", "expire"
OPTIONS = (ACKNOWLEDGE, CANCEL, EXPIRE)
#: Messages that one step looks at.
SLICE = 500
#: Bookmarks in one request, at most.
BOOKMARKS_MAX = 10_000
#: The highest id that a bookmark may have.
ID_MAX = 2**62


@dataclass(slots=True)
class Discarded:
    """The numbers of a request. `matches`: messages found; `deleted`: those of them that are gone; `deferred`: messages
    that will be acknowledged when they come.
    """

    matches: int = 0
    deleted: int = 0
    deferred: int = 0


def leases_of(queue: Queue, count: int) -> list[dict[str, object]]:
    """Up to `count` live leases of a leased queue, as operators see them, the first to end first."""
    assert isinstance(queue, LeasedCore)
    clock = queue.context.broker.clock
    now_ns = clock.monotonic_ns()
    found: list[dict[str, object]] = []
    for lease, until_ns in islice(queue.book.leases.by_end(), count):
        holder = holder_of(lease)
        found.append(
            {
                "bookmark": bookmark_of(lease.id),
                "connection": holder.session.client.name,
                "consumer": holder.tag if isinstance(holder, Consumer) else None,
                "deliveries": lease.deliveries,
                "cancels": queue.book.cancels.get(lease.id, 0),
                "ends_in_ms": None if not until_ns else max(0, (until_ns - now_ns) // MS),
            }
        )
    return found


def ids_of(bookmarks: str) -> list[int]:
    """The message ids in a comma-separated list of bookmarks; such messages may not exist yet. Raises: BadRequest."""
    found: list[int] = []
    for bookmark in bookmarks.split(","):
        parts = bookmark.strip().split("|")
        if len(parts) != 3 or parts[2] or not all(part.isascii() and part.isdigit() for part in parts[:2]):
            raise BadRequest(f"{bookmark.strip()[:80]!r} is no bookmark")
        id_ = int(parts[1][:30])
        if int(parts[0][:30]) != ORIGIN or not 0 < id_ <= ID_MAX:
            raise BadRequest(f"{bookmark.strip()[:80]!r} is no bookmark of this broker")
        found.append(id_)
    if len(found) > BOOKMARKS_MAX:
        raise BadRequest(f"more than {BOOKMARKS_MAX} bookmarks")
    return found


def renew_leases(queue: Queue, bookmarks: str) -> int:
    """Renew the live leases of messages with these bookmarks. Returns how many. Raises: BadRequest."""
    assert isinstance(queue, LeasedCore)
    leases, now_ns = queue.book.leases, queue.context.broker.clock.monotonic_ns()
    renewed = [leases.renew(leases.by_id[id_], now_ns) for id_ in {*ids_of(bookmarks)} & leases.by_id.keys()]
    queue.arm_leases()
    return len(renewed)


def discard_ids(queue: DeferringCore, ids: Sequence[int], option: str, own: object = None) -> Discarded:
    """Discard messages with these ids that are in the queue, ready or leased.

    `own`: the requesting client, if it named itself. Acknowledgements of messages that may still come are deferred
    (queues page C.6).
    """
    done = Discarded()
    leases = queue.book.leases.by_id
    leased = [leases[id_] for id_ in dict.fromkeys(ids) if id_ in leases]
    rest = [id_ for id_ in dict.fromkeys(ids) if id_ not in leases]
    _discard_leased(queue, leased, option, done, own)
    if option == CANCEL:  # the rest is not leased
        return done
    found = _discard_ready(queue, queue.positions_of(rest), option, done)
    if option == ACKNOWLEDGE and len(found) < len(rest):
        done.deferred = queue.defer_acks(id_ for id_ in rest if id_ not in found)
    return done


def discard_matching(
    queue: LeasedCore, expression: Expression, option: str, own: object = None
) -> Generator[None, None, Discarded]:
    """Discard, in steps, all messages that are active now and match a filter. `own`: as in `discard_ids`. Returns
    `Discarded`."""
    done, after, until_id = Discarded(), 0, queue.last_id
    if queue.active is not None:  # the request does not concern messages that become active by it
        queue.active.refill(queue.store)
        until_id = min(until_id, queue.active.end)
    leases = list(queue.book.leases.by_id.values())
    leased = [message for message in leases if expression.matches(MessageSubject(message))]
    _discard_leased(queue, leased, option, done, own)
    while option != CANCEL and not queue.deleted:
        seen = queue.scan_active(after, SLICE)
        if seen.missing:
            queue.store.load_at(seen.found[-1][0] if seen.found else after, SLICE)
            seen = queue.scan_active(after, SLICE)
        found = [
            position
            for position, message in seen.found
            if message.id <= until_id and expression.matches(MessageSubject(message))
        ]
        _discard_ready(queue, found, option, done)
        queue.context.broker.effort.spent += len(seen.found)
        if len(seen.found) < SLICE and not seen.missing:
            break
        after = seen.found[-1][0] if seen.found else after
        yield
    return done


def _discard_leased(queue: LeasedCore, leases: Sequence[Message], option: str, done: Discarded, own: object) -> None:
    """Discard leased messages; with strict leasing only those that the client `own` holds."""
    if queue.leased.settings.leasing == STRICT:
        leases = [lease for lease in leases if holder_of(lease).session.client is own]
    if not leases:
        return
    done.matches += len(leases)
    if option == CANCEL:
        queue.break_leases(leases, TAKEN_OVER, is_cancel=True)
        return
    messages = queue.taken_over(leases)
    done.deleted += len(messages)
    _remove(queue, messages, option)


def _discard_ready(queue: LeasedCore, positions: Sequence[int], option: str, done: Discarded) -> set[int]:
    """Discard ready messages at these positions. Returns the ids of those that were there."""
    if not positions:
        return set()
    taken = queue.store.take_at(positions)
    queue.events.octets_changed(taken.recounted)
    done.matches += len(taken.messages)
    done.deleted += len(taken.messages)
    _remove(queue, taken.messages, option)
    return {message.id for message in taken.messages}


def _remove(queue: LeasedCore, messages: list[Message], option: str) -> None:
    if not messages:
        return
    if option == EXPIRE:
        queue.expire_for(messages, (FORCED_EXPIRE,))
    else:
        queue.gone(messages)
    queue.mark()
