"""Commands that show messages in place: browse a queue, search all of them, list scheduled messages.

Source: management page 16.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from ..console.dispatcher import Http, Level
from ..engine import MS, Consumer, ContentError, Field, Message, Queue, decode_properties, holder_of, scheduled
from .command import command
from .command_error import CommandError
from .event_log import Entry
from .kinds import NAME, NUMBER, AsUser, Milliseconds, Name, OnlyVhost, QueueName, VhostName, Word
from .message_selection import Filter, Takes, selection_of
from .messages import Encoding, Truncate, check_encoding, shown_message
from .operator import Operator, refusals, until_idle
from .slices import READY, SCHEDULED, STATES, Seen, slices_of
from .steps import Steps

if TYPE_CHECKING:
    from ..journal import JournalStories

#: Messages shown by default, at most, and converted to rows in one step.
BROWSED, BROWSED_MAX, BROWSED_AT_ONCE = 50, 500, 20
#: Messages that a filter tests in one step, and in one request.
LOOKED_AT_ONCE, LOOKED_MAX = 100, 20_000
#: Limits of a search: messages found by default and at most, messages tested, milliseconds, octets of bodies shown.
FOUND, FOUND_MAX, SEARCHED_MAX, SEARCHED_MS, SHOWN_OCTETS = 50, 200, 500_000, 20_000, 200
#: Limits of a search in kept events: messages whose events are shown, events of each, and events tested in one step.
STORIES_MAX, STORY_EVENTS_MAX, EVENTS_A_STEP = 20, 100, 500
#: Newest segments of the journal that a search reads.
SEGMENTS_MAX = 4
LISTED, LISTED_MAX = 1000, 5000


ScheduledId = Annotated[int, NUMBER, "the message's id in `scheduled list`"]


@command("browse", http=Http("POST", "leveret/queues/V/Q/browse", Level.VHOST))
def browse(
    at: Operator,
    queue: QueueName,
    *,
    count: int = BROWSED,
    after: int = 0,
    state: Word = READY,
    given: Filter,
    encoding: Encoding = "auto",
    truncate: Truncate | None = None,
    vhost: VhostName = "/",
    as_user: AsUser | None = None,
) -> Steps:
    """Look at the messages of a queue and change nothing.

    count: at most this many (default 50), and no more than management-browse-page-size
    after: those behind this position (default 0: from the head)
    state: ready (the default), unacked or scheduled

    Nothing is taken, marked or counted, and no order changes; what is on disk is read for it. The answer has `items`,
    each with its `position`; `next`, the position to go on from, null at the end; `total`; with a filter `looked_at`.
    """
    if state not in STATES:
        raise CommandError(f"browse: state must be {', '.join(STATES[:-1])} or {STATES[-1]}, not {state!r}")
    check_encoding(encoding)
    takes = selection_of("browse", given)
    with at.client(vhost, as_user) as (client, host):
        found = host.queues.for_consumer(queue, client)
        yield from until_idle(host, queue)
        settings = at.broker.context.settings.resolve(found.address, vhost)
        page_size, shown_max = settings.management_browse_page_size, settings.management_message_attribute_size_limit
        most = BROWSED_MAX if page_size < 0 else min(page_size, BROWSED_MAX)
        count = min(count, most)
        rows: list[dict[str, Any]] = []
        looked_at, more = 0, False
        slices = slices_of(found, state, after, LOOKED_AT_ONCE if takes else BROWSED_AT_ONCE)
        for slice_ in slices if count else ():
            for seen in slice_:
                after = seen.position
                looked_at += 1
                if takes is None or takes(seen.message):
                    row = _row(at, seen, truncate, encoding)
                    rows.append(row if shown_max < 0 else {**row, "properties": cut(row["properties"], shown_max)})
                    if len(rows) == count:
                        break
            more = len(rows) == count or looked_at >= LOOKED_MAX
            if more:
                break
            yield
        total = {READY: found.ready_count, SCHEDULED: len(found.scheduled)}.get(state, found.unacked)
        answer = {"items": rows, "next": after if more else None, "total": total}
        return answer if takes is None else {**answer, "looked_at": looked_at}


def _row(at: Operator, seen: Seen, truncate: int | None, encoding: str = "auto") -> dict[str, Any]:
    """A message in JSON, with the consumer that has it unacknowledged, or the time when it is due."""
    message = seen.message
    row = shown_message(seen.position, message, truncate, encoding)
    row["id"] = message.id
    if seen.due_ns:
        clock = at.broker.context.clock
        row["due_ms"] = clock.wall_ms() + (seen.due_ns - clock.monotonic_ns()) // MS
    if message.holder is not None:
        holder = holder_of(message)
        tag = holder.tag if isinstance(holder, Consumer) else None
        session = holder.session
        place = {"connection": session.client.name, "connection_name": session.client.given_name}
        row["holder"] = {**place, "channel": session.number, "consumer": tag}
    return row


# -- search ---------------------------------------------------------------------------------------------------------


@command("search")
def search(
    at: Operator,
    *,
    message_id: str | None = None,
    correlation_id: str | None = None,
    id: int | None = None,
    given: Filter,
    queue: Name | None = None,
    journal: bool = False,
    count: int = FOUND,
    vhost: OnlyVhost | None = None,
    as_user: AsUser | None = None,
) -> Steps:
    """Find messages in all queues that the user may read, and in the events that are kept.

    message_id: the property of that name
    correlation_id: the property of that name
    id: the broker's own id, as `browse` and `events` show it
    queue: only in this queue
    journal: true: what the journal's newest segments tell, too (default false)
    count: at most this many (default 50, at most 200)
    """
    takes = selection_of("search", given, message_id=message_id, correlation_id=correlation_id)
    if takes is None and id is None:
        raise CommandError("search: expected id, message-id, correlation-id, routing-key, header, text or filter")
    user = None if as_user is None else at.user(as_user)
    looked = _Search(at, takes, id, min(count, FOUND_MAX))
    for one in _queues_of(at, vhost, queue):
        if user is not None and not user.may("read", "queue", one.name, one.vhost_name):
            looked.not_permitted += 1
            continue
        yield from looked.search(one)
        if looked.stopped:
            break
    stories: list[dict[str, Any]] = []
    from_journal: dict[str, Any] | None = None
    if user is None or user.permissions is None or "monitoring" in user.tags or user.is_administrator:
        stories = yield from _stories(at, given, message_id, correlation_id, id)
        if journal and at.stories is not None:
            from_journal = yield from _from_journal(at, at.stories, takes, id)
    events = {"stories": stories, "events_since_ms": at.events.since_ms}
    return {**looked.answer(), **events, "journal": from_journal}


@command("where", http=Http("GET", "leveret/where/MESSAGE-ID", Level.ANY), reads=True)
def where(
    at: Operator,
    message_id: Annotated[str, NAME, "the property of that name, or the correlation id"],
    *,
    vhost: OnlyVhost | None = None,
    as_user: AsUser | None = None,
) -> Steps:
    """Show where a message is: its queue, its state, and the client that has it."""
    rows: list[dict[str, Any]] = []
    for given in ({"message_id": message_id}, {"correlation_id": message_id}):
        found = yield from search(at, given=Filter(), vhost=vhost, as_user=as_user, **given)
        for one in found["items"]:
            holder = one.get("holder", {})
            rows.append(
                {
                    "queue": one["queue"],
                    "vhost": one["vhost"],
                    "state": one["state"],
                    "client": holder.get("connection_name") or holder.get("connection"),
                    "consumer": holder.get("consumer"),
                    "due_ms": one.get("due_ms"),
                    "exchange": one["exchange"],
                    "routing_key": one["routing_key"],
                    "position": one["position"],
                }
            )
        if rows:
            break
    return rows


def _from_journal(
    at: Operator, make: "Callable[..., JournalStories]", takes: Takes | None, wanted_id: int | None
) -> Steps:
    """Events from the newest segments of the journal, for at most `SEARCHED_MS`."""
    clock = at.broker.context.clock
    until_ns = clock.monotonic_ns() + SEARCHED_MS * MS
    limits = {"stories_max": STORIES_MAX, "events_max": STORY_EVENTS_MAX, "segments_max": SEGMENTS_MAX}
    read = make(takes, wanted_id, **limits)
    for _ in read.steps():
        if clock.monotonic_ns() >= until_ns:
            read.ended = f"it took {SEARCHED_MS // 1000} s"
            break
        yield
    stories = [{"message": id_, "events": events} for id_, events in read.found.items() if events]
    return {"stories": stories, "records": read.records, "from_ms": read.from_ms, "stopped": read.ended}


def _stories(
    at: Operator, given: Filter, message_id: str | None, correlation_id: str | None, wanted_id: int | None
) -> Steps:
    """Events of messages that were published while events were kept, selected by their headers."""
    log = at.events
    ids: dict[int, dict[str, Any]] = {} if wanted_id is None else {wanted_id: {"message": wanted_id, "events": []}}
    fits = _header_test(given, message_id, correlation_id)
    if wanted_id is None and (given.text is not None or given.filter is not None):
        return []  # contents are not kept
    number = log.first - 1
    while entries := [entry for _, entry in zip(range(EVENTS_A_STEP), log.behind(number))]:
        for entry in entries:
            for id_, header in zip(entry.ids, entry.headers) if wanted_id is None else ():
                if len(ids) < STORIES_MAX and fits(entry, header):
                    ids[id_] = {"message": id_, "events": []}
            for id_ in entry.ids if len(entry.ids) <= len(ids) else ids:
                story = ids.get(id_)
                if story is not None and id_ in entry.ids and len(story["events"]) < STORY_EVENTS_MAX:
                    story["events"].append(_told(entry))
        number = entries[-1].number
        yield
    return [story for story in ids.values() if story["events"]]


# -- scheduled --------------------------------------------------------------------------------------------------


class _Search:
    """The results of one search. `stopped`: the reason why it ended early; empty: it did not."""

    def __init__(self, at: Operator, takes: Takes | None, id_: int | None, count: int) -> None:
        self._at, self._clock = at, at.broker.context.clock
        self._until_ns = self._clock.monotonic_ns() + SEARCHED_MS * MS
        self._takes, self._id, self._count = takes, id_, count
        self._rows: list[dict[str, Any]] = []
        self.looked_at = self.queues = self.not_permitted = 0
        self.stopped = ""

    def search(self, queue: Queue) -> Steps:
        if queue.deleted or queue.is_busy():
            return
        self.queues += 1
        for state in STATES:
            with refusals():
                for slice_ in slices_of(queue, state, 0, LOOKED_AT_ONCE):
                    for seen in slice_:
                        self.looked_at += 1
                        if self._fits(seen.message):
                            place = {"vhost": queue.vhost_name, "queue": queue.name, "state": state}
                            self._rows.append({**place, **_row(self._at, seen, SHOWN_OCTETS)})
                            if len(self._rows) == self._count:
                                break
                    yield
                    self._note_limits()
                    if self.stopped:
                        return

    def _fits(self, message: Message) -> bool:
        return self._id in (None, message.id) and (self._takes is None or self._takes(message))

    def _note_limits(self) -> None:
        if len(self._rows) >= self._count:
            self.stopped = f"{self._count} messages were found"
        elif self.looked_at >= SEARCHED_MAX:
            self.stopped = f"{self.looked_at} messages were looked at"
        elif self._clock.monotonic_ns() >= self._until_ns:
            self.stopped = f"it took {SEARCHED_MS // 1000} s"

    def answer(self) -> dict[str, Any]:
        return {
            "items": self._rows,
            "looked_at": self.looked_at,
            "queues": self.queues,
            "not_permitted": self.not_permitted,
            "stopped": self.stopped,
        }


def cut(value: Any, length: int) -> Any:
    """Cut texts after `length` characters and append the number of the others, as Artemis does."""
    if isinstance(value, str) and len(value) > length:
        return f"{value[:length]}, + {len(value) - length} more"
    if isinstance(value, list):
        return [cut(one, length) for one in value]
    return {name: cut(one, length) for name, one in value.items()} if isinstance(value, dict) else value


def _queues_of(at: Operator, vhost: str | None, name: str | None) -> list[Queue]:
    """The queues of a virtual host or of all, or the named one. Raises: CommandError."""
    queues = [queue for host in at.vhosts(vhost) for queue in host.queues.values() if name in (None, queue.name)]
    if name is not None and not queues:
        raise CommandError(f"no queue {name!r}")
    return queues


def _header_test(given: Filter, message_id: str | None, correlation_id: str | None) -> Callable[[Entry, bytes], bool]:
    """A test whether the headers of a published message match."""
    texts = {"message_id": message_id, "correlation_id": correlation_id}
    key, headers = given.routing_key, given.header or {}

    def fits(entry: Entry, header: bytes) -> bool:
        if not header or key not in (None, entry.detail.get("routing_key")):
            return False
        try:
            properties = decode_properties(header)
        except ContentError:
            return False
        for name, text in texts.items():
            if text is not None and properties.get(name) != text.encode():
                return False
        table = properties.get("headers")
        there = table if isinstance(table, dict) else {}
        return all(name in there and _text_of(there[name]) == _plain(value) for name, value in headers.items())

    return fits


def _text_of(field: Field) -> str:
    return field.text if isinstance(field.value, bytes) else _plain(field.value)


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _told(entry: Entry) -> dict[str, Any]:
    return {
        "number": entry.number,
        "at_ms": entry.wall_ms,
        "kind": entry.kind,
        "vhost": entry.vhost,
        "subject": entry.subject,
        "detail": entry.detail,
    }


# -- scheduled messages ---------------------------------------------------------------------------------------------


@command("scheduled list")
def list_scheduled(
    at: Operator, queue: QueueName, *, after: int = 0, count: int = LISTED, vhost: VhostName = "/"
) -> Steps:
    """List the messages that are scheduled, soonest first.

    after: without this many of the first
    count: at most this many (default 1000, at most 5000)
    """
    found, clock = at.queue(vhost, queue), at.broker.context.clock
    now_ns, wall_ms = clock.monotonic_ns(), clock.wall_ms()
    count = min(count, LISTED_MAX)
    rows: list[dict[str, Any]] = []
    for slice_ in slices_of(found, SCHEDULED, after, LOOKED_AT_ONCE) if count else ():
        rows += [
            {
                "id": seen.message.id,
                "due_ms": wall_ms + (seen.due_ns - now_ns) // MS,
                "due_in_ms": max(0, (seen.due_ns - now_ns) // MS),
                "exchange": seen.message.envelope.exchange,
                "routing_key": seen.message.envelope.routing_key,
                "attempts": seen.message.deliveries - seen.message.uncounted,
            }
            for seen in slice_
        ]
        if len(rows) >= count:
            break
        yield
    return rows[:count]


@command("scheduled fire")
def fire(at: Operator, queue: QueueName, id: ScheduledId, *, vhost: VhostName = "/") -> dict[str, Any]:
    """Make one ready now."""
    found = at.queue(vhost, queue)
    return _done("fire", found, id, scheduled.reschedule(found, id, 0))


@command("scheduled cancel")
def cancel(at: Operator, queue: QueueName, id: ScheduledId, *, vhost: VhostName = "/") -> dict[str, Any]:
    """Delete one."""
    found = at.queue(vhost, queue)
    return _done("cancel", found, id, scheduled.cancel(found, id))


@command("scheduled reschedule")
def reschedule(
    at: Operator, queue: QueueName, id: ScheduledId, delay: Milliseconds, *, vhost: VhostName = "/"
) -> dict[str, Any]:
    """Make one due later, or sooner.

    delay: ms from now, or a time like 10s, 5m, 2h
    """
    found = at.queue(vhost, queue)
    return _done("reschedule", found, id, scheduled.reschedule(found, id, delay))


def _done(what: str, queue: Queue, id_: int, is_there: bool) -> dict[str, Any]:
    if not is_there:
        raise CommandError(f"no message {id_} waits in queue {queue.name!r}")
    return {"id": id_, "done": what}
