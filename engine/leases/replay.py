"""One consumer's progress through the log of a leased queue's topics. Source: queues page A.8."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..clock import MS
from ..deadlines import Deadline
from ..queues.queue import Queue
from ..stores.topic_log import LoggedMessage, TopicLog
from .past_holder import PastHolder
from .replay_rules import ReplayRules

if TYPE_CHECKING:
    from ..clients.session import Session

#: Lateness of timers, for which a replay makes up beyond its rate.
LATE_NS = 50 * MS


class ReplayHolder(PastHolder):
    """Holder of the deliveries of one replay: they count against its prefetch only."""

    def __init__(self, queue: Queue, session: "Session", mark: Callable[[], object]) -> None:
        super().__init__(queue, session)
        self._mark = mark

    def settled(self, count: int) -> None:
        """Count fewer deliveries, and mark the queue: the replay has room again."""
        self.unacked -= count
        self._mark()


class Replay:
    """The progress of one consumer. `position`: of its next read in the log. `waiting`: messages that were read and not
    delivered yet. `has_begun`: the first message that it asked for was read, or it asked only for new ones.
    """

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
        self.target = log.end()  # the log may have messages for it up to this position
        self.seen_id = 0  # id of the queue's newest message when `target` was set
        self.deadline: Deadline | None = None
        # of the last delivery: when it was due (monotonic ns), its time in the log (wall ms), its octets
        self._due_ns = self._last_ms = self._last_octets = 0

    def follow_log(self, last_id: int) -> None:
        """Move the target to the end of the log if the queue has got a message since. `last_id`: of the newest."""
        if last_id != self.seen_id:
            self.seen_id, self.target = last_id, self.log.end()

    @property
    def wants_load(self) -> bool:
        """Whether the log may have more messages, and the prefetch room for them."""
        return not self.waiting and self.holder.unacked < self.prefetch and self.position < self.target

    def is_after_end(self, one: LoggedMessage) -> bool:
        """Whether a message comes after the last one that the consumer asked for."""
        last = self.rules.last
        return last is not None and not last.is_after(one.message.id, one.wall_ms)

    def is_over(self, now_ms: int) -> bool:
        """Whether no new message can be in the part of the log that the consumer asked for."""
        last = self.rules.last
        if last is None:
            return False
        return now_ms >= last.wall_ms + last.is_included if last.wall_ms else last.id < self.log.next_id()

    def due_ns(self, one: LoggedMessage) -> int:
        """When the next message may go, by the rate (monotonic ns)."""
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

    def note_delivery(self, one: LoggedMessage, now_ns: int) -> None:
        """Note the delivery of a message, for the rate."""
        if self.rules.rate is not None:
            self._due_ns = max(self.due_ns(one), now_ns - LATE_NS) if self._last_ms else now_ns
            self._last_ms, self._last_octets = one.wall_ms, one.message.body_octets
