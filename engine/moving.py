"""An operator moves, replays or discards ready messages of one queue: in slices, each of which loses nothing.

A slice is done within one turn, which the journal has whole or not at all: after a kill each message is in one place
or the other. A message that cannot go where it should stays where it is; where there is no room the rest waits.
Messages keep everything but their ids and their counts of deliveries; their time to live begins again.
Source: management page 16; queues page F.2 (scans); ruling 5.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .aims import Aim, Place, Unmovable
from .clients.client import Client
from .durability import Durability
from .errors import EngineError
from .messages.message import Message
from .publishing.publish import publish_run
from .publishing.route import Route
from .queues.queue import Queue

#: Messages that a slice looks at, octets of contents that end it, and messages that it moves: together below 5 ms.
LOOKED_AT, OCTETS, MOVED = 100, 256 * 1024, 50
#: Why messages left a queue, as events tell it.
DISCARDED = "discarded"


class QueueGone(Exception):
    """The queue was deleted meanwhile."""


class Looked(NamedTuple):
    """What a dry run saw of one message: `place`, or why it would stay."""

    message: Message
    position: int
    place: Place | None
    reason: str


@dataclass(slots=True, frozen=True)
class Choice:
    """Which messages: of those at `positions` (None: all) what `takes` says, the first `limit` of it (None: all)."""

    takes: Callable[[Message], bool]
    positions: frozenset[int] | None = None
    limit: int | None = None


class Moving:
    """One such request. `aim`: where each message goes; None: away.

    `total`: messages that were ready as it began, which alone it concerns; `looked_at` of them; `done`: so many went;
    `kept`: so many stay, by reason. `waits_for`: what there is no room in, empty: nothing. `is_done`: no more will go.
    """

    __slots__ = ("_after", "_choice", "_client", "_last", "_last_id", "_seen", "_why", "aim", "done", "is_done", "kept",
                 "looked_at", "queue", "total", "waits_for")  # fmt: skip

    def __init__(self, queue: Queue, client: Client, choice: Choice, aim: Aim | None, why: str) -> None:
        """`why`: the word for it in events. `client`: who asked, whose permissions hold."""
        self.queue, self.aim = queue, aim
        self._client, self._choice, self._why = client, choice, why
        self._last_id = client.broker.next_id - 1
        self._after = min(choice.positions) - 1 if choice.positions else 0
        self._last = None if choice.positions is None else max(choice.positions, default=0)
        self._seen: list[int] = []  # positions of the last slice
        self.total = queue.ready_count
        self.looked_at = self.done = 0
        self.kept: dict[str, int] = {}
        self.waits_for = ""
        self.is_done = False

    def look(self) -> list[Looked]:
        """A slice of a dry run. `done` counts what would go, `kept` what would not. Raises: QueueGone, Unreadable."""
        found: list[Looked] = []
        for position, message in self._chosen(LOOKED_AT):
            place, reason = self._place_of(message)
            found.append(Looked(message, position, place, reason))
            self.done += not reason
        self._note_end()
        return found

    def work(self, wanted: int = MOVED) -> None:
        """A slice: at most so many messages go. Raises: QueueGone, Unreadable."""
        durability, congestion = self._durability, self.queue.context.broker.congestion
        self.waits_for = ""
        if durability is not None and durability.has_failed:
            self.waits_for = "the journal"
            return
        congested = congestion.queue
        chosen = self._chosen(min(wanted, MOVED))
        if self.aim is None:
            gone = self._take([position for position, _ in chosen])
            self.queue.events.purged(gone, reason=DISCARDED)
            self.done += len(gone)
        else:
            self._move(chosen)
        congestion.queue = congested  # this is nobody's publish
        if chosen:
            self.queue.mark()
        if durability is not None:
            durability.take_sync_lsn()  # nobody else's answer waits for it
        self._note_end()

    @property
    def _durability(self) -> Durability | None:
        return self._client.broker.storage.durability

    def _note_end(self) -> None:
        limit = self._choice.limit
        self.is_done = self.is_done or (limit is not None and self.done >= limit)

    def _chosen(self, wanted: int) -> list[tuple[int, Message]]:
        """The next messages that are meant, with their positions, of those that one slice looks at."""
        queue, choice = self.queue, self._choice
        if queue.deleted:
            raise QueueGone
        if queue.is_busy():
            return []
        self._client.broker.scheduler.dispatch_now(queue)
        if choice.limit is not None:
            wanted = min(wanted, choice.limit - self.done)
        seen = queue.scan(self._after, LOOKED_AT)
        now_ns = queue.context.broker.clock.monotonic_ns()
        found: list[tuple[int, Message]] = []
        self._seen = []
        octets, last = 0, self._last
        for position, message in seen.found:
            if last is not None and position > last:
                self.is_done = True
                return found
            if len(found) >= wanted or octets >= OCTETS:
                return found
            self._after = position
            self._seen.append(position)
            octets += len(message.blob)
            if message.id > self._last_id:
                continue  # it came, or came back as another one, since this began
            self.looked_at += 1
            if 0 < message.expires_ns <= now_ns or not (choice.positions is None or position in choice.positions):
                continue
            if choice.takes(message):
                found.append((position, message))
        queue.context.broker.effort.spent += len(seen.found)
        self.is_done = len(seen.found) < LOOKED_AT and not seen.missing
        return found

    def _place_of(self, message: Message) -> tuple[Place | None, str]:
        """Where a message goes; or why it stays, which is counted."""
        if self.aim is None:
            return None, ""
        try:
            place = self.aim(message)
            if self.queue in place.queues:
                raise Unmovable("it would come back into this queue")
            return place, ""
        except (Unmovable, EngineError) as error:
            reason = str(error) if isinstance(error, Unmovable) else f"refused: {type(error).__name__} ({error})"
        self.kept[reason] = self.kept.get(reason, 0) + 1
        return None, reason

    def _take(self, positions: Sequence[int]) -> list[Message]:
        if not positions:
            return []
        taken = self.queue.store.take_at(positions)
        self.queue.events.octets_changed(taken.recounted)
        return taken.messages

    def _move(self, chosen: Sequence[tuple[int, Message]]) -> None:
        """Taken first, so that what cannot be read ends this before anything is published."""
        queue = self.queue
        places = {message.id: (at, place) for at, message in chosen if (place := self._place_of(message)[0])}
        back = {message.id: message for message in self._take([at for at, _ in places.values()])}
        moved: dict[str, list[Message]] = {}
        try:
            for id_, message in list(back.items()):
                position, place = places[id_]
                self.waits_for = self._full(place, message)
                if self.waits_for:
                    self._look_again(position)
                    break
                if self._publish(message, place):
                    moved.setdefault(place.title, []).append(back.pop(id_))
                    self.done += 1
        finally:
            for title, messages in moved.items():
                queue.events.purged(messages, reason=self._why, to=title)
            if back:
                queue.merge([back[id_] for id_ in sorted(back, reverse=True)])

    def _full(self, place: Place, message: Message) -> str:
        """What has no room for it; empty: it may go. Nothing is pushed out of its place by what is moved."""
        broker = self._client.broker
        for queue in place.queues:
            if not queue.has_room(message):
                return f"room in queue {queue.name!r}"
        count, full = broker.flow.room_for(place.queues, place.envelope, (place.blob,), self._client)
        if not count:
            return "room" if full is None else f"room in {full.destination}"
        return "the end of the alarm" if broker.flow.alarm.is_full else ""

    def _publish(self, message: Message, place: Place) -> bool:
        """Whether all of its queues took it; one that did not has counted it as refused."""
        broker = self._client.broker
        broker.activity.own += 1
        route = Route(place.exchange, place.envelope.routing_key, place.queues)
        envelope = place.envelope
        if any(queue.rules.last_value_key is not None for queue in place.queues):  # it is as old as it was
            envelope = envelope.published_first_as(message.first_id)
        outcome = publish_run(self._client.host, route, envelope, (place.blob,), cause=self._why)
        if outcome.refused:
            reason = f"refused by a limit, on the way to {place.title}"
            self.kept[reason] = self.kept.get(reason, 0) + 1
        return not outcome.refused

    def _look_again(self, position: int) -> None:
        """From this one on."""
        self.looked_at -= sum(one >= position for one in self._seen)
        self._after, self.is_done = position - 1, False


def why_not(queue: Queue) -> str:
    """Why nothing can be moved out of a queue, as a sentence; empty: it can."""
    if queue.type == "stream":
        return "a stream keeps its messages: publish them anew, or let it expire them"
    if queue.keeps:
        return "a non-destructive queue keeps its messages: purge it, or let them expire"
    if queue.rules.leased is not None:
        return "a leased queue lends its messages: discard them by filter or bookmark, or consume them"
    return ""
