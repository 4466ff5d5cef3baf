"""The timeout of unacknowledged deliveries. It closes their session, so that the messages go to other consumers.

Deliveries have no timestamp, because each would cost work. A periodic check notes the next delivery tag of each
session: all lower tags are older than the note. A timeout takes effect up to two intervals late (RabbitMQ checks once a
minute), and operators see the age of deliveries to one interval. Source: behaviour page 2.16.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..clock import MS, due_after
from ..context import BrokerContext
from ..deadlines import Deadline
from ..delivery.consumer import Consumer, Holder, holder_of
from ..errors import AcknowledgementTimedOut
from ..messages.field_table import integer_of

if TYPE_CHECKING:
    from ..queues.queue import Queue
    from .session import Session

#: Limits of the time between two checks, which is a quarter of the shortest timeout.
INTERVAL_MAX_MS = 10_000
INTERVAL_MIN_MS = 10
#: Sessions checked in one slice (about 1 ms).
SESSIONS_SLICE = 500
#: Maximum notes per session. Beyond it every second note is dropped, which makes timeouts less exact.
NOTES_MAX = 64
TIMEOUT_ARGUMENT = "x-consumer-timeout"


class Notes:
    """The next delivery tags of a session at the times of checks: two columns, both rising."""

    __slots__ = ("times_ns", "up_to")

    def __init__(self) -> None:
        self.times_ns: list[int] = []
        self.up_to: list[int] = []  # the next tag at that time: lower tags had been delivered

    def add(self, now_ns: int, next_tag: int, oldest_tag: int) -> None:
        """Add a note. Drops the notes whose deliveries are all settled."""
        settled = bisect_right(self.up_to, oldest_tag)
        del self.times_ns[:settled], self.up_to[:settled]
        if not self.up_to or self.up_to[-1] < next_tag:
            self.times_ns.append(now_ns)
            self.up_to.append(next_tag)
        if len(self.up_to) > NOTES_MAX:
            del self.times_ns[1::2], self.up_to[1::2]

    def delivered_ns(self, tag: int) -> int | None:
        """The latest time at which `tag` can have been delivered (monotonic ns); None: after the last check."""
        index = bisect_right(self.up_to, tag)
        return self.times_ns[index] if index < len(self.times_ns) else None


class AcknowledgementWatch:
    """Checks the sessions of a broker periodically while deliveries may be unacknowledged.

    The default timeout is in the broker's options; None: no timeout.
    """

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._acking_consumers = 0
        self._deadline: Deadline | None = None
        self._is_checking = False
        self._notes: dict[Session, Notes] = {}
        self._shortest_ms: int | None = None  # shortest timeout set by a consumer or a queue

    def watch(self, holder: Holder) -> None:
        """Begin the checks, because this holder has to acknowledge deliveries."""
        self._acking_consumers += isinstance(holder, Consumer)
        if not self._note_timeout(timeout_ms(holder, None)) and self._deadline is None:
            self._set_deadline()

    def queue_changed(self, queue: "Queue") -> None:
        """Apply a queue's changed timeout, also to earlier deliveries if checks have noted them."""
        if queue.sessions:
            self._note_timeout(_timeout_of(queue))

    def _note_timeout(self, own_ms: int | None) -> bool:
        """Check as often as a timeout of a consumer or a queue requires (None, 0: there is none).

        Returns whether it is the shortest one.
        """
        if not own_ms or (self._shortest_ms is not None and own_ms >= self._shortest_ms):
            return False
        self._shortest_ms = own_ms
        self._set_deadline()
        return True

    def default_changed(self) -> None:
        """Apply a changed default timeout, also to earlier deliveries if checks have noted them."""
        if self._deadline is not None or self._acking_consumers or self._has_unacked():
            self._set_deadline()

    def consumer_left(self) -> None:
        """Count a consumer that left. The last one ends the checks, unless deliveries are unacknowledged."""
        self._acking_consumers -= 1
        if not self._acking_consumers:
            self.end_if_idle()

    def end_if_idle(self) -> None:
        """End the checks if no delivery is unacknowledged; there must be no consumers that acknowledge."""
        if self._deadline is None or self._has_unacked():
            return
        self._broker.deadlines.cancel(self._deadline)
        self._deadline = self._shortest_ms = None
        self._notes.clear()

    def delivered_ns(self, session: "Session", tag: int) -> int | None:
        """The latest time at which `tag` can have been delivered (monotonic ns); None: after the last check."""
        notes = self._notes.get(session)
        return notes.delivered_ns(tag) if notes is not None else None

    def _has_unacked(self) -> bool:
        return any(session.unacked for client in self._broker.connections for session in client.sessions)

    def _shortest(self) -> int | None:
        """The shortest of all timeouts; None: there is none."""
        timeouts = (self._shortest_ms, self._broker.options.consumer_timeout_ms)
        return min((ms for ms in timeouts if ms is not None), default=None)

    def _set_deadline(self) -> None:
        shortest = self._shortest()
        if shortest is not None:
            interval_ms = max(INTERVAL_MIN_MS, min(INTERVAL_MAX_MS, shortest // 4))
            self._broker.deadlines.cancel(self._deadline)
            self._deadline = self._broker.deadlines.set(due_after(self._broker.clock, interval_ms), self._check_due)

    def _check_due(self) -> None:
        self._deadline = None
        self._set_deadline()
        if not self._is_checking:
            self._is_checking = True
            self._broker.background.run(self._steps())

    def _steps(self) -> Iterator[None]:
        """Check all sessions. O(sessions + deliveries unacknowledged for longer than the shortest timeout)."""
        notes: dict[Session, Notes] = {}
        checked = 0
        for client in list(self._broker.connections):
            for session in list(client.sessions):
                if session.unacked and session in client.sessions:  # else it was closed since the last slice
                    kept = notes[session] = self._notes.get(session) or Notes()
                    self._check(session, kept, self._broker.clock.monotonic_ns())
                checked += 1
                if checked % SESSIONS_SLICE == 0:
                    yield
        self._is_checking = False
        if self._deadline is not None:  # else the checks ended since the first slice
            self._notes = notes
        if not self._acking_consumers:
            self.end_if_idle()

    def _check(self, session: "Session", notes: Notes, now_ns: int) -> None:
        notes.add(now_ns, session.next_tag, next(iter(session.unacked)))
        shortest = self._shortest()
        if shortest is None:
            return
        for tag, message in session.unacked.items():
            delivered_ns = notes.delivered_ns(tag)
            if delivered_ns is None or now_ns - delivered_ns < shortest * MS:
                return  # later tags are younger
            limit_ms = timeout_ms(holder_of(message), self._broker.options.consumer_timeout_ms)
            if limit_ms is not None and now_ns - delivered_ns >= limit_ms * MS:
                session.fail(AcknowledgementTimedOut(timeout_ms=limit_ms))
                return


def timeout_ms(holder: Holder, default_ms: int | None) -> int | None:
    """The timeout of a holder's deliveries: the consumer's, else the queue's, else the default. None: no timeout."""
    if holder.is_past:
        return None
    own = integer_of(holder.arguments, TIMEOUT_ARGUMENT) if isinstance(holder, Consumer) else None
    if own is None:
        own = _timeout_of(holder.queue)
    if own is None:
        return default_ms
    return own or None


def _timeout_of(queue: "Queue") -> int | None:
    """The timeout in the arguments and the policy of a queue, which may be 0; None: it has none."""
    return integer_of(queue.declaration.effective, TIMEOUT_ARGUMENT)
