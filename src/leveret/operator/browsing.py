"""Control commands that look at messages where they are: browse a queue, search all of them, list scheduled ones.

Source: management page 16.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..engine import (
    MS,
    Broker,
    Consumer,
    ContentError,
    Field,
    Message,
    Queue,
    User,
    decode_properties,
    holder_of,
)
from .acting import Handlers, acting, queue_of, vhost_of, vhosts_to_list
from .choosing import Takes, chosen
from .command_error import CommandError
from .event_log import Entry, EventLog
from .look_through import READY, SCHEDULED, STATES, Seen, look_through
from .messages import shown_message
from .operator import refusals, until_idle
from .steps import Steps

if TYPE_CHECKING:
    from ..journal import JournalStories

#: Messages that are shown by default, at most, and made into rows in one step.
BROWSED, BROWSED_MAX, BROWSED_AT_ONCE = 50, 500, 20
#: Messages that a filter looks at in one step, and in one request.
LOOKED_AT_ONCE, LOOKED_MAX = 100, 20_000
#: Messages that a search finds at most, and looks at, and for how long; octets of bodies that it shows.
FOUND, FOUND_MAX, SEARCHED_MAX, SEARCHED_MS, SHOWN_OCTETS = 50, 200, 500_000, 20_000, 200
#: Messages whose stories a search tells from the events that are kept, and events of each.
STORIES_MAX, STORY_EVENTS_MAX, EVENTS_A_STEP = 20, 100, 500
#: Segments of the journal that a search reads, the newest.
SEGMENTS_MAX = 4
LISTED, LISTED_MAX = 1000, 5000
_OF_STORY = ("message-id", "correlation-id", "routing-key", "header")


class BrowseCommands:
    """`handlers` by the words of the command, for the control table. `broker` is called each time: it may be set
    later. `log`: the events that are kept, if any are. `journal`: what makes its stories, if there is one."""

    def __init__(
        self,
        broker: Callable[[], Broker],
        log: Callable[[], EventLog],
        journal: "Callable[[], Callable[..., JournalStories] | None]",
    ) -> None:
        self._broker = broker
        self._log = log
        self._journal = journal
        self.handlers: Handlers = {
            "browse": self._browse,
            "search": self._search,
            "scheduled list": self._list_scheduled,
        }

    def _browse(self, arguments: dict[str, Any]) -> Steps:
        """Nothing is taken, marked or counted, and no order changes; what is on disk is read for it.

        Returns: `items`, each with its `position`; `next`: where to go on behind, None at the end; `total`; with a
        filter also `looked_at`.
        """
        broker = self._broker()
        state, encoding = arguments.get("state", READY), arguments.get("encoding", "auto")
        if state not in STATES:
            raise CommandError(f"browse: state must be {', '.join(STATES[:-1])} or {STATES[-1]}, not {state!r}")
        if encoding not in ("auto", "base64"):
            raise CommandError("Unsupported encoding. Please use auto or base64.")
        takes = chosen("browse", arguments)
        client, name = acting(broker, arguments), arguments["queue"]
        vhost = vhost_of(broker, arguments)
        with refusals():
            queue = vhost.queue_for_consumer(name, client)
        yield from until_idle(vhost, name)
        settings = broker.settings.resolve(queue.address, vhost.name)
        page_size, shown_max = settings.management_browse_page_size, settings.management_message_attribute_size_limit
        most = BROWSED_MAX if page_size < 0 else min(page_size, BROWSED_MAX)
        after, count = arguments.get("after", 0), min(arguments.get("count", BROWSED), most)
        rows: list[dict[str, Any]] = []
        looked_at, more = 0, False
        slices = look_through(queue, state, after, LOOKED_AT_ONCE if takes else BROWSED_AT_ONCE)
        with refusals():
            for slice_ in slices if count else ():
                for seen in slice_:
                    after = seen.position
                    looked_at += 1
                    if takes is None or takes(seen.message):
                        row = self._row(seen, arguments.get("truncate"), encoding)
                        rows.append(row if shown_max < 0 else {**row, "properties": cut(row["properties"], shown_max)})
                        if len(rows) == count:
                            break
                more = len(rows) == count or looked_at >= LOOKED_MAX
                if more:
                    break
                yield
        total = {READY: queue.ready_count, SCHEDULED: len(queue.scheduled)}.get(state, queue.unacked)
        answer = {"items": rows, "next": after if more else None, "total": total}
        return answer if takes is None else {**answer, "looked_at": looked_at}

    def _row(self, seen: Seen, truncate: int | None, encoding: str = "auto") -> dict[str, Any]:
        """Who has it, and when it is due, where that is so."""
        message = seen.message
        row = shown_message(seen.position, message, truncate, encoding)
        row["id"] = message.id
        if seen.due_ns:
            clock = self._broker().clock
            row["due_ms"] = clock.wall_ms() + (seen.due_ns - clock.monotonic_ns()) // MS
        if message.holder is not None:
            holder = holder_of(message)
            tag = holder.tag if isinstance(holder, Consumer) else None
            row["holder"] = {"connection": holder.session.client.name, "consumer": tag}
        return row

    # -- search -----------------------------------------------------------------------------------------------------

    def _search(self, arguments: dict[str, Any]) -> Steps:
        """In all queues that the user may read, or in one; and in the events that are kept."""
        takes = chosen("search", arguments)
        wanted_id = arguments.get("id")
        if takes is None and wanted_id is None:
            raise CommandError("search: expected id, message-id, correlation-id, routing-key, header, text or filter")
        broker = self._broker()
        user = _user(broker, arguments)
        count = min(arguments.get("count", FOUND), FOUND_MAX)
        search = _Search(broker, takes, wanted_id, count)
        for queue in _queues_of(broker, arguments):
            if user is not None and not user.may("read", "queue", queue.name, queue.vhost_name):
                search.not_permitted += 1
                continue
            yield from search.look_into(queue, self._row)
            if search.stopped:
                break
        stories: list[dict[str, Any]] = []
        journal: dict[str, Any] | None = None
        if user is None or user.permissions is None or "monitoring" in user.tags or user.is_administrator:
            stories = yield from self._stories(arguments, wanted_id)
            make = self._journal() if arguments.get("journal", False) else None
            if make is not None:
                journal = yield from self._from_journal(make, takes, wanted_id)
        events = {"stories": stories, "events_since_ms": self._log().since_ms}
        return {**search.answer(), **events, "journal": journal}

    def _from_journal(self, make: "Callable[..., JournalStories]", takes: Takes | None, wanted_id: int | None) -> Steps:
        """The same from the newest segments of the journal, for so long and no longer."""
        clock = self._broker().clock
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

    def _stories(self, arguments: dict[str, Any], wanted_id: int | None) -> Steps:
        """What happened to messages that were published while events were kept, by what their headers say."""
        log = self._log()
        ids: dict[int, dict[str, Any]] = {} if wanted_id is None else {wanted_id: {"message": wanted_id, "events": []}}
        fits = _header_test(arguments)
        if arguments.keys() & {"text", "filter"} and wanted_id is None:
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

    def _list_scheduled(self, arguments: dict[str, Any]) -> Steps:
        broker = self._broker()
        queue = queue_of(broker, arguments)
        clock = broker.clock
        now_ns, wall_ms = clock.monotonic_ns(), clock.wall_ms()
        count = min(arguments.get("count", LISTED), LISTED_MAX)
        rows: list[dict[str, Any]] = []
        for slice_ in look_through(queue, SCHEDULED, arguments.get("after", 0), LOOKED_AT_ONCE) if count else ():
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


class _Search:
    """What one search has seen. `stopped`: why it ended before all was looked at; empty: it did not."""

    def __init__(self, broker: Broker, takes: Takes | None, id_: int | None, count: int) -> None:
        self._clock = broker.clock
        self._until_ns = broker.clock.monotonic_ns() + SEARCHED_MS * MS
        self._takes, self._id, self._count = takes, id_, count
        self._rows: list[dict[str, Any]] = []
        self.looked_at = self.queues = self.not_permitted = 0
        self.stopped = ""

    def look_into(self, queue: Queue, row: Callable[[Seen, int | None], dict[str, Any]]) -> Steps:
        """One queue, in all states."""
        if queue.deleted or queue.is_busy():
            return
        self.queues += 1
        for state in STATES:
            with refusals():
                for slice_ in look_through(queue, state, 0, LOOKED_AT_ONCE):
                    for seen in slice_:
                        self.looked_at += 1
                        if self._fits(seen.message):
                            place = {"vhost": queue.vhost_name, "queue": queue.name, "state": state}
                            self._rows.append({**place, **row(seen, SHOWN_OCTETS)})
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
        """In JSON."""
        return {
            "items": self._rows,
            "looked_at": self.looked_at,
            "queues": self.queues,
            "not_permitted": self.not_permitted,
            "stopped": self.stopped,
        }


def cut(value: Any, length: int) -> Any:
    """Texts in it end after so many characters and say how many more there are, as in Artemis."""
    if isinstance(value, str) and len(value) > length:
        return f"{value[:length]}, + {len(value) - length} more"
    if isinstance(value, list):
        return [cut(one, length) for one in value]
    return {name: cut(one, length) for name, one in value.items()} if isinstance(value, dict) else value


def _user(broker: Broker, arguments: dict[str, Any]) -> User | None:
    """Whose permissions hold; None: all. Raises: CommandError."""
    name = arguments.get("as-user")
    user = None if name is None else broker.users.find(name)
    if name is not None and user is None:
        raise CommandError(f"no user {name!r}")
    return user


def _queues_of(broker: Broker, arguments: dict[str, Any]) -> Iterator[Queue]:
    """Those of a virtual host or of all, or the one that is named. Raises: CommandError."""
    name = arguments.get("queue")
    queues = [queue for vhost in vhosts_to_list(broker, arguments) for queue in vhost.queues.values()]
    if name is not None:
        queues = [queue for queue in queues if queue.name == name]
        if not queues:
            raise CommandError(f"no queue {name!r}")
    return iter(queues)


def _header_test(arguments: dict[str, Any]) -> Callable[[Entry, bytes], bool]:
    """Whether a published message is meant, as far as its headers say."""
    texts = {name.replace("-", "_"): arguments.get(name) for name in ("message-id", "correlation-id")}
    key, headers = arguments.get("routing-key"), arguments.get("header") or {}

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
