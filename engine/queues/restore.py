"""Puts the messages of queues back after a restart, from a journal.

If the store can read contents later, they stay in the journal, and only ids, sizes and expiries are put back.
Source: address-settings page 4.5, 5.7; queues page F.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from ...settings.frozen import frozen
from ..clock import AHEAD_MS_MAX, MS
from ..context import BrokerContext
from ..messages.field_table import FieldTable, integer_of
from ..messages.levels import ONE_LEVEL, Levels
from ..messages.message import Envelope, Message
from ..stores.non_destructive_store import NonDestructiveStore
from ..stores.paged_index import PagedEntry
from ..stores.paged_run import HEADER_OCTETS, Part
from ..stores.stream_store import StreamStore
from ..stores.tailed_store import TailedStore
from . import reconfigure, scheduled
from .stream import FIRST_OFFSET, StreamIntake

if TYPE_CHECKING:
    from .queue import Queue


class RecoveredState(Protocol):
    """The state of a message that was delivered before, or that waits for its time."""

    @property
    def deliveries(self) -> int:
        """The number of deliveries before the restart."""

    @property
    def uncounted(self) -> int:
        """The number of these deliveries that do not count as attempts."""

    @property
    def due_ms(self) -> int:
        """The due time (wall ms); 0: the message is ready."""


class RecoveredMessages(Protocol):
    """The messages of one queue in a journal, in columns, ids rising."""

    @property
    def last_id(self) -> int:
        """The highest id that a message of the queue ever had; 0: there was none."""

    @property
    def states(self) -> Mapping[int, RecoveredState]:
        """The states of messages that are not new, by id."""

    @property
    def owners(self) -> Iterable[tuple[int, int]]:
        """(id, number of the owner of messages from this id to the next id), ids rising."""

    @property
    def transferred(self) -> Mapping[int, int]:
        """The numbers of the owners of transferred messages, by id."""

    @property
    def priorities(self) -> bytearray | None:
        """The column of priorities (None: all 0). Read it after `columns`."""

    def __len__(self) -> int:
        """The number of messages."""

    def columns(self) -> "tuple[array[int], array[int], array[int], array[int] | None]":
        """Ids, locations of contents, octets of bodies, expiries in wall ms (None: nothing expires)."""

    def runs(self) -> Iterator[tuple[int, int, int, int]]:
        """(index in the columns, first id, location of its content, length) of runs, in order.

        Ids and locations rise by one within a run.
        """

    def remove(self, id_: int) -> object:
        """Remove a message; `columns` changes."""


class Contents(Protocol):
    """The contents of a journal. Raises: the journal's errors."""

    def read(self, location: int) -> tuple[Envelope, bytes]:
        """The content at a location."""

    def time_ms(self, id_: int) -> int:
        """When a recovered message was published, in wall ms; not later than now."""


class Restorer:
    """Puts messages back into queues (`restore`), then removes those that may not stay (`finish`)."""

    def __init__(
        self, context: BrokerContext, contents: Contents, *, redelivered_below: int = 0, counts_are_exact: bool = False
    ) -> None:
        """`redelivered_below`: see `QueueEvents`. `counts_are_exact`: the journal has the counts of all deliveries, for
        kinds of queue that restore them.
        """
        self._contents = contents
        self._redelivered_below = redelivered_below
        self._counts_are_exact = counts_are_exact
        self._now_ns, self._wall_ms = context.clock.monotonic_ns(), context.clock.wall_ms()
        pager = context.storage.pager
        self._pages = pager is not None
        # Octets of ready messages that may still be read back, of all queues together.
        self._memory = pager.budget() // 2 if pager is not None else 0
        self._queues: list[Queue] = []
        self._exhausted: list[tuple[Queue, list[Message]]] = []  # at the delivery limit, ids falling
        self._replaced: list[tuple[Queue, Message | PagedEntry]] = []  # superseded by a newer value

    def restore(self, queue: "Queue", found: RecoveredMessages, notes: FieldTable) -> int:
        """Put a queue's messages back. `notes`: those of `Kind.notes`.

        Returns the number of messages, without those that reached the limit of attempts.
        """
        self._found, self._forgets_attempts, self.notes = found, False, notes
        self._read_columns()
        self._queues.append(queue)
        if not (self._counts_are_exact and queue.kind.restores_delivery_counts):
            queue.events.redelivered_below = self._redelivered_below
        queue.intake.restore(queue, self)
        queue.events.restored(len(found))
        return len(found)

    def _read_columns(self) -> None:
        self._ids, self._locations, self._sizes, self._expires = self._found.columns()

    def finish(self) -> None:
        """Remove messages that may not stay, and apply bounds and times. Listeners must get the events."""
        for queue, exhausted in self._exhausted:
            queue.events.restored(len(exhausted))
            queue.settlement.requeue(queue, exhausted, "lost", counted=True, with_redelivery_delay=False)
        for queue, older in self._replaced:
            queue.events.replaced(older)
        for queue in self._queues:
            reconfigure.recount(queue)
            scheduled.await_due(queue)
            if queue.store.expiring:
                queue.expire_due()
            for bound in queue.bounds:
                bound.returned(queue, len(queue.store))
            queue.intake.restored(queue)

    # -- called by intakes ------------------------------------------------------------------------------------

    @property
    def last_id(self) -> int:
        """`RecoveredMessages.last_id`."""
        return self._found.last_id

    @property
    def owners(self) -> tuple[Iterable[tuple[int, int]], Mapping[int, int]]:
        """`RecoveredMessages.owners`, and `RecoveredMessages.transferred`."""
        return self._found.owners, self._found.transferred

    def forget_attempts(self) -> None:
        """Make the next `restore_ready` forget delivery counts, as if nothing had been delivered."""
        self._forgets_attempts = True

    def restore_ready(self, queue: "Queue") -> None:
        """Put messages back into a queue that removes acknowledged ones. Of a deep queue only the first are loaded."""
        self._set_exhausted_aside(queue)
        store = queue.pageable
        if self._pages and store is not None and store.share.may_page:
            self._fill_tail(queue, store)
            if self._memory > 0:
                store.load()
                self._memory -= store.held_octets
        else:
            self._put_last(queue, range(len(self._ids)))

    def _ids_with_state(self) -> list[int]:
        """Ids of the messages whose state has to be restored, rising."""
        states = self._found.states
        return sorted(id_ for id_, state in states.items() if state.due_ms or not self._forgets_attempts)

    def _attempts(self, state: RecoveredState) -> int:
        return 0 if self._forgets_attempts else state.deliveries - state.uncounted

    def _set_exhausted_aside(self, queue: "Queue") -> None:
        """Set aside messages whose last delivery reached the limit of attempts. They die in `finish`.

        Where not each delivery is counted, so many attempts mean that the limit was lowered: it holds from the next
        return on (address-settings page 5.4).
        """
        limit, states = queue.rules.max_delivery_attempts, self._found.states
        if limit is None or self._forgets_attempts or not self._counts_are_exact:
            return
        ids = [id_ for id_ in self._ids_with_state() if not states[id_].due_ms and self._attempts(states[id_]) >= limit]
        if ids:
            messages = [self._message(queue, bisect_left(self._ids, id_)) for id_ in ids]
            self._exhausted.append((queue, messages[::-1]))
            for id_ in ids:
                self._found.remove(id_)
            self._read_columns()

    def _fill_tail(self, queue: "Queue", store: TailedStore) -> None:
        """Put back ids, sizes and expiries only. Scheduled messages are read back whole."""
        states, sizes, expires = self._found.states, self._sizes, self._expires
        levels = store.levels.mapping
        priorities = self._found.priorities if levels.top else None

        def extend(first: int, start: int, stop: int, attempts: int = 0) -> None:
            expiries_ns = None if expires is None else list(map(self._expires_ns, expires[start:stop]))
            if priorities is None:
                store.restore_run(first, sizes[start:stop], expiries_ns, level=levels.default, deliveries=attempts)
                return
            for at in range(start, stop):
                expiry_ns = None if expiries_ns is None else expiries_ns[at - start : at - start + 1]
                level = levels.restored(priorities[at])
                store.restore_run(first + at - start, (sizes[at],), expiry_ns, level=level, deliveries=attempts)

        with_state = self._ids_with_state()
        for start, first, _, count in self._found.runs():
            done = 0
            for id_ in with_state[bisect_left(with_state, first) : bisect_left(with_state, first + count)]:
                at, state = id_ - first, states[id_]
                extend(first + done, start + done, start + at)
                if state.due_ms > self._wall_ms:
                    self._restored(queue, start + at, due_until_ms=self._wall_ms)
                else:
                    extend(id_, start + at, start + at + 1, self._attempts(state))
                done = at + 1
            extend(first + done, start + done, start + count)

    def restore_non_destructive(self, queue: "Queue", store: NonDestructiveStore) -> None:
        """Put messages back into a non-destructive queue. With a pager contents stay in the journal."""
        if self._pages:
            self._fill_non_destructive(queue, store)
        else:
            self._put_last(queue, range(len(self._ids)))
        octets, older = store.read_keys_and_octets(queue.events.octets is not None)
        queue.events.octets_changed(octets)
        self._replaced += [(queue, one) for one in older]

    def _fill_non_destructive(self, queue: "Queue", store: NonDestructiveStore) -> None:
        """Put back ids, sizes and expiries only. Messages with delivery counts or due times are read back whole."""
        ids, sizes, expires = self._ids, self._sizes, self._expires
        read_back = {id_ for id_, state in self._found.states.items() if state.deliveries or state.due_ms}
        rows = array("q", (at for at, id_ in enumerate(ids) if id_ not in read_back)) if read_back else range(len(ids))
        if expires is not None:
            store.expiring = True
        store.paged_index.extend(
            array("q", (ids[at] for at in rows)) if read_back else ids,
            array("I", (sizes[at] for at in rows)) if read_back else sizes,
            array("I", (sizes[at] + HEADER_OCTETS for at in rows)),
            None if expires is None else array("q", (self._expires_ns(expires[at]) for at in rows)),
        )
        self._put_last(queue, [bisect_left(ids, id_) for id_ in sorted(read_back)])

    def restore_stream(self, queue: "Queue", intake: StreamIntake, log: StreamStore) -> None:
        """Put messages back into a stream, with their offsets. Expiries are ignored: streams drop whole segments."""
        log.start(integer_of(self.notes, FIRST_OFFSET) or 0)
        self._expires = None
        sizes = self._sizes
        # A message with a due time has no offset yet, even if the time has passed: it gets one when it is published
        # again (`StreamIntake.place_due`).
        is_waiting = any(state.due_ms for state in self._found.states.values())
        stays_in_journal = self._pages and not is_waiting
        for start, first, _, count in self._found.runs() if stays_in_journal else ():
            log.restore(first, sizes[start : start + count])
        log.restored(self._contents.time_ms)
        for at in range(0 if stays_in_journal else len(self._ids)):
            message = self._restored(queue, at, due_until_ms=0)
            if message is not None:
                intake.append(queue, message, self._contents.time_ms(message.id))

    def _put_last(self, queue: "Queue", rows: Iterable[int]) -> None:
        """Read messages back, and append those that are due; the others are scheduled."""
        for at in rows:
            message = self._restored(queue, at, due_until_ms=self._wall_ms)
            if message is not None and (older := queue.evictable.put_last(message)) is not None:
                self._replaced.append((queue, older))

    def _restored(self, queue: "Queue", at: int, *, due_until_ms: int) -> Message | None:
        """Read a message back. None: it is due after that wall time, and was scheduled."""
        message = self._message(queue, at)
        state = self._found.states.get(message.id)
        if state is None or state.due_ms <= due_until_ms:
            return message
        queue.scheduled.add(self._due_ns(state.due_ms), message)
        return None

    def _message(self, queue: "Queue", at: int) -> Message:
        """Read a message back, with its expiry and delivery count."""
        id_ = self._ids[at]
        envelope, content = self._contents.read(self._locations[at])
        message = queue.message_for(id_, content, envelope)
        if self._expires is not None and self._expires[at]:
            message.expires_ns = self._expires_ns(self._expires[at])
            queue.evictable.expiring = True
        if (state := self._found.states.get(id_)) is not None:
            message.deliveries = self._attempts(state)  # sets redelivered (5.7)
            queue.loaded([message], message.deliveries)
        return message

    def _due_ns(self, wall_ms: int) -> int:
        """A recorded wall time as monotonic ns, limited because a journal may have a time that no clock accepts."""
        return self._now_ns + min(wall_ms - self._wall_ms, AHEAD_MS_MAX) * MS

    def _expires_ns(self, expires_ms: int) -> int:
        return max(1, self._due_ns(expires_ms)) if expires_ms else 0


@frozen
class Picture:
    """The messages of a queue at one moment, in any order. Later changes of the queue do not affect it.

    `messages`: those in memory: ready, scheduled, unacknowledged. `parts`: those that are only in the journal, ids
    rising in each part. `due`: when scheduled messages are due (monotonic ns), by id. `is_interleaved`: ids of parts
    may lie between those of other parts or messages. `levels`: the levels of priority of the parts.
    """

    messages: list[Message]
    parts: list[Part]
    due: dict[int, int]
    is_interleaved: bool
    levels: Levels


def picture_of(queue: "Queue") -> Picture:
    messages, parts = [*queue.messages()], []
    if not queue.keeps_acked:  # there the deliveries are copies
        messages += queue.unacked_messages()
    for part in queue.store.paged_parts():
        if isinstance(part, Message):
            messages.append(part)
        elif part.location is None:  # the others are in the temp store, which ends with the process
            parts.append(part)
    due = {message.id: due_ns for due_ns, message in queue.scheduled.entries()}
    is_interleaved = bool(parts) and (queue.store.level_max > 0 or any(part.attempts for part in parts))
    return Picture(messages, parts, due, is_interleaved, queue.rules.levels or ONE_LEVEL)
