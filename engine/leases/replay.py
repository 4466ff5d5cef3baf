"""One reader of the log of a leased queue: where it stands, and when it may go on. Source: queues page A.8."""

from collections import deque
from collections.abc import Callable

from ..clock import MS
from ..deadlines import Deadline
from ..delivery.consumer import Origin, Receiver
from ..rules.replay_rules import ReplayRules
from ..stores.paged_message import body_size
from ..stores.topic_log import LoggedMessage, TopicLog
from .past_leases import PastHolder

#: So far behind its rate a replay may catch up at once: what timers are late by.
LATE_NS = 50 * MS


class ReplayHolder(PastHolder):
    """Has the deliveries of one replay: they count for its prefetch, and nowhere else."""

    __slots__ = ("_mark",)

    def __init__(self, queue: Origin, session: Receiver, mark: Callable[[], object]) -> None:
        super().__init__(queue, session)
        self._mark = mark

    def settled(self, count: int) -> None:
        """See `Holder`: there is room for more."""
        self.unacked -= count
        self._mark()


class Replay:
    """One reader. `position`: where it reads on; `waiting`: what was read and is not delivered yet."""

    __slots__ = ("_due_ns", "_last_ms", "_last_octets", "deadline", "has_begun", "holder", "log", "position",
                 "prefetch", "rules", "seen_id", "target", "waiting")  # fmt: skip

    def __init__(self, log: TopicLog, rules: ReplayRules, holder: ReplayHolder, prefetch: int) -> None:
        self.log, self.rules, self.holder, self.prefetch = log, rules, holder, prefetch
        first = rules.first
        if first is None:
            self.position = log.end()
        elif first.wall_ms:
            self.position = log.position_of_time(first.wall_ms)
        else:
            self.position = log.position_of_id(first.id)
        self.has_begun = first is None
        self.waiting: deque[LoggedMessage] = deque()
        self.target = log.end()  # up to here there may be something for it
        self.seen_id = 0  # of the newest message of the queue when that was said
        self.deadline: Deadline | None = None
        self._due_ns = self._last_ms = self._last_octets = 0  # of what went last: when that was due (monotonic), ...

    def look(self, last_id: int) -> None:
        """The newest message of the queue has this id."""
        if last_id != self.seen_id:
            self.seen_id, self.target = last_id, self.log.end()

    @property
    def is_hungry(self) -> bool:
        """Whether there may be more in the log, and room for it."""
        return not self.waiting and self.holder.unacked < self.prefetch and self.position < self.target

    def is_behind_end(self, one: LoggedMessage) -> bool:
        """Whether it asked for messages up to an earlier one."""
        last = self.rules.last
        return last is not None and not last.is_after(one.message.id, one.wall_ms)

    def is_over(self, now_ms: int) -> bool:
        """Whether nothing that it asked for can come any more, as it has read the whole log."""
        last = self.rules.last
        if last is None:
            return False
        return now_ms >= last.wall_ms + last.is_included if last.wall_ms else last.id < self.log.next_id()

    def due_ns(self, one: LoggedMessage) -> int:
        """When the next message may go, by the rate (monotonic)."""
        rate = self.rules.rate
        if rate is None or not self._last_ms:
            return 0
        if rate.messages:
            pause_ns = 1e9 / rate.messages
        elif rate.octets:
            pause_ns = 1e9 * self._last_octets / rate.octets
        else:
            pause_ms = max(one.wall_ms - self._last_ms, 0)
            if self.rules.gap_ms is not None:
                pause_ms = min(pause_ms, self.rules.gap_ms)
            pause_ns = pause_ms * MS / rate.times
        return self._due_ns + int(pause_ns)

    def went(self, one: LoggedMessage, now_ns: int) -> None:
        """It was delivered."""
        if self.rules.rate is not None:
            self._due_ns = max(self.due_ns(one), now_ns - LATE_NS) if self._last_ms else now_ns
            self._last_ms, self._last_octets = one.wall_ms, body_size(one.message)
