"""The commands `search` and `where`: find messages in all queues, in kept events, and in the journal.

Source: management page 16.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from ..console.dispatcher import Http, Level
from ..engine import MS, NATIVE, ContentError, Envelope, Message, Queue, User, chosen_by, scan_properties
from .browsing import LOOKED_AT_ONCE, row_of
from .command import command
from .command_error import CommandError
from .event_log import Entry
from .kinds import NAME, AsUser, Name, OnlyVhost
from .message_selection import Filter, Matches, selection_of
from .messages import FLAGS_AT
from .operator import Operator, refusals
from .slices import STATES, slices_of
from .steps import Steps

if TYPE_CHECKING:
    from ..journal import JournalStories

#: Default and maximum number of messages that a search shows.
FOUND, FOUND_MAX = 50, 200
#: A search ends after this many tested messages, or milliseconds.
SEARCHED_MAX, SEARCHED_MS = 500_000, 20_000
#: Octets of a body that are shown.
SHOWN_OCTETS = 200
#: Maximum milliseconds of `where`, whose user waits for the answer.
WHERE_MS = 2_000
#: A story is the events of one message. The maximum number of stories that a search shows, and of events in each.
STORIES_MAX, STORY_EVENTS_MAX = 20, 100
#: Kept events that are tested in one step.
EVENTS_A_STEP = 500
#: Maximum segments of the journal that a search reads, the newest ones.
SEGMENTS_MAX = 4


@command("search", reads=True)
def search(
    operator: Operator,
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
    journal: true: search the newest segments of the journal, too (default false)
    count: at most this many (default 50, at most 200)
    """
    matches = selection_of("search", given, message_id=message_id, correlation_id=correlation_id)
    if matches is None and id is None:
        raise CommandError("search: expected id, message-id, correlation-id, routing-key, header, text or filter")
    user = None if as_user is None else operator.user(as_user)
    scan = _Search(operator, matches, id, min(count, FOUND_MAX))
    yield from scan.search_all(_queues_of(operator, vhost, queue), user)
    stories: list[dict[str, Any]] = []
    from_journal: dict[str, Any] | None = None
    if user is None or user.permissions is None or "monitoring" in user.tags or user.is_administrator:
        needs_more = id is not None or given.text is not None or given.filter is not None  # bodies are not kept
        stories = yield from _stories(operator, None if needs_more else matches, id)
        if journal and operator.stories is not None:
            from_journal = yield from _from_journal(operator, operator.stories, matches, id)
    events = {"stories": stories, "events_since_ms": operator.events.since_ms}
    return {**scan.answer(), **events, "journal": from_journal}


@command("where", http=Http("GET", "leveret/where/MESSAGE-ID", Level.ANY), reads=True)
def where(
    operator: Operator,
    message_id: Annotated[str, NAME, "the property of that name, or the correlation id"],
    *,
    report: bool = False,
    vhost: OnlyVhost | None = None,
    as_user: AsUser | None = None,
) -> Steps:
    """Show where a message is: its queue, its state, and the client that has it.

    report: true: also how much was searched within 2 s, and why it ended (default false)
    """
    ids = [chosen_by(message_id=message_id), chosen_by(correlation_id=message_id)]
    scan = _Search(operator, lambda message: any(one(message) for one in ids), None, FOUND_MAX, WHERE_MS)
    queues = _queues_of(operator, vhost, None)
    yield from scan.search_all(queues, None if as_user is None else operator.user(as_user))
    items = [one for one in scan.rows if one["properties"].get("message_id") == message_id] or scan.rows
    rows = list(map(_place_row, items[:FOUND]))
    if not report:
        return rows
    extent = {"looked_at": scan.looked_at, "queues": scan.queues, "of_queues": len(queues)}
    return {"items": rows, **extent, "stopped": scan.stopped}


def _place_row(found: dict[str, Any]) -> dict[str, Any]:
    holder = found.get("holder", {})
    return {
        "queue": found["queue"],
        "vhost": found["vhost"],
        "state": found["state"],
        "client": holder.get("connection_name") or holder.get("connection"),
        "consumer": holder.get("consumer"),
        "due_ms": found.get("due_ms"),
        "exchange": found["exchange"],
        "routing_key": found["routing_key"],
        "position": found["position"],
    }


def _from_journal(
    operator: Operator, make: "Callable[..., JournalStories]", matches: Matches | None, wanted_id: int | None
) -> Steps:
    """Events from the newest segments of the journal, for at most `SEARCHED_MS`."""
    clock = operator.broker.context.clock
    until_ns = clock.monotonic_ns() + SEARCHED_MS * MS
    limits = {"stories_max": STORIES_MAX, "events_max": STORY_EVENTS_MAX, "segments_max": SEGMENTS_MAX}
    read = make(matches, wanted_id, **limits)
    for _ in read.steps():
        if clock.monotonic_ns() >= until_ns:
            read.ended = f"it took {SEARCHED_MS // 1000} s"
            break
        yield
    stories = [{"message": id_, "events": events} for id_, events in read.found.items() if events]
    return {"stories": stories, "records": read.records, "from_ms": read.from_ms, "stopped": read.ended}


def _stories(operator: Operator, matches: Matches | None, wanted_id: int | None) -> Steps:
    """Events of one message, or of messages that were published while events were kept, and whose headers match."""
    log = operator.events
    ids: dict[int, dict[str, Any]] = {} if wanted_id is None else {wanted_id: {"message": wanted_id, "events": []}}
    if not ids and matches is None:
        return []
    number = log.first - 1
    while entries := [entry for _, entry in zip(range(EVENTS_A_STEP), log.after(number))]:
        for entry in entries:
            for id_, header in zip(entry.ids, entry.headers):
                if matches is not None and len(ids) < STORIES_MAX and _is_published(entry, header, matches):
                    ids[id_] = {"message": id_, "events": []}
            for id_ in entry.ids if len(entry.ids) <= len(ids) else ids:
                story = ids.get(id_)
                if story is not None and id_ in entry.ids and len(story["events"]) < STORY_EVENTS_MAX:
                    story["events"].append(_entry_row(entry))
        number = entries[-1].number
        yield
    return [story for story in ids.values() if story["events"]]


class _Search:
    """One search and its results. `stopped`: the reason why it ended early; "": it did not."""

    def __init__(
        self, operator: Operator, matches: Matches | None, id_: int | None, count: int, within_ms: int = SEARCHED_MS
    ) -> None:
        self._operator, self._clock = operator, operator.broker.context.clock
        self._within_ms = within_ms
        self._until_ns = self._clock.monotonic_ns() + within_ms * MS
        self._matches, self._id, self._count = matches, id_, count
        self.rows: list[dict[str, Any]] = []
        self.looked_at = self.queues = self.not_permitted = 0
        self.stopped = ""

    def search_all(self, queues: list[Queue], user: User | None) -> Steps:
        """Search the queues that the user may read (None: all), until a limit is reached. Busy queues are left out."""
        for one in queues:
            if user is not None and not user.may("read", "queue", one.name, one.vhost_name):
                self.not_permitted += 1
                continue
            yield from self.search(one)
            if self.stopped:
                break

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
                            self.rows.append({**place, **row_of(self._operator, seen, SHOWN_OCTETS)})
                            if len(self.rows) == self._count:
                                break
                    yield
                    if len(self.rows) >= self._count:
                        self.stopped = f"{self._count} messages were found"
                    elif self.looked_at >= SEARCHED_MAX:
                        self.stopped = f"{self.looked_at} messages were looked at"
                    elif self._clock.monotonic_ns() >= self._until_ns:
                        self.stopped = f"it took {self._within_ms // 1000} s"
                    if self.stopped:
                        return

    def _fits(self, message: Message) -> bool:
        return self._id in (None, message.id) and (self._matches is None or self._matches(message))

    def answer(self) -> dict[str, Any]:
        return {
            "items": self.rows,
            "looked_at": self.looked_at,
            "queues": self.queues,
            "not_permitted": self.not_permitted,
            "stopped": self.stopped,
        }


def _queues_of(operator: Operator, vhost: str | None, name: str | None) -> list[Queue]:
    """The queues of a virtual host or of all, or the named one. Raises: CommandError."""
    queues = [queue for host in operator.vhosts(vhost) for queue in host.queues.values() if name in (None, queue.name)]
    if name is not None and not queues:
        raise CommandError(f"no queue {name!r}")
    return queues


def _is_published(entry: Entry, header: bytes, matches: Matches) -> bool:
    """Whether a published message matches, judged by its header, because its body is not kept."""
    try:
        summary = scan_properties(header[FLAGS_AT:])
    except ContentError:
        return False
    envelope = Envelope(entry.detail["exchange"], entry.detail["routing_key"], summary)
    return matches(Message(0, NATIVE.join(header, b""), envelope))


def _entry_row(entry: Entry) -> dict[str, Any]:
    return {
        "number": entry.number,
        "at_ms": entry.wall_ms,
        "kind": entry.kind,
        "vhost": entry.vhost,
        "subject": entry.subject,
        "detail": entry.detail,
    }
