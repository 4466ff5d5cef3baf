"""The log that leased queues are views of: what was published to their topics, for those who replay it.

Where there is a journal the log is the journal. Without one it is here, and in memory: the newest messages alone.
Source: queues page A.1, A.8, C.1; docs/decisions/0012-log.md.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ..messages.message import Envelope, Message

#: (exchange, routing key, queues that it reached, id) -> whether a message is wanted. The log's own name is empty.
Wanted = Callable[[str, str, Sequence[str], int], bool]
#: What is kept in memory at most, with what each message costs beside its octets. What is kept for long comes back to
#: the allocator cold: with 16 MiB a message of 1 KiB through a leased queue takes 0.6 us longer, a fifth of its time.
MEMORY_OCTETS, OVERHEAD = 2 * 1024 * 1024, 40
#: Runs that one read looks at.
RUNS_MAX = 256


class LoggedMessage(NamedTuple):
    """A message as it was published, and when that was. `place`: what a journal calls its content by."""

    message: Message
    wall_ms: int
    place: int = 0


class Page(NamedTuple):
    """Messages that were found, and where to read on."""

    found: list[LoggedMessage]
    next_position: int


class Entered(NamedTuple):
    """Ids of messages that came into a queue, and where to read on. `first_id`: see `TopicLog.entered`."""

    ids: Sequence[int]
    first_id: int
    next_position: int


class TopicLog(Protocol):
    """All that is logged, of all virtual hosts, in the order of publishing. Positions rise; what they count is its own.

    What was logged goes from the oldest on; a position that is gone stands for the oldest there is.
    """

    def start(self) -> int:
        """Position of the oldest."""

    def end(self) -> int:
        """Position of what comes next."""

    def first_id(self) -> int:
        """No message in it has a lower id."""

    def next_id(self) -> int:
        """Above the id of every message in it."""

    def position_of_id(self, id_: int) -> int:
        """A position that is not behind that message, nor behind any later one."""

    def position_of_time(self, wall_ms: int) -> int:
        """A position that is not behind any message of that time, or later."""

    def read(self, vhost: str, position: int, wanted: Wanted, octets: int) -> Page:
        """Messages of a virtual host from a position on, about so many octets with `OVERHEAD` each, in a bounded time.

        None, and a higher position, where it looked at what nobody wants. Raises: Unreadable.
        """

    def entered(self, vhost: str, queue: str, position: int, wall_ms: int) -> Entered:
        """Ids of messages that came into a queue, whatever became of them, in a bounded part of the log.

        `wall_ms`: the first message of all that came then or later is `first_id`; 0: there is none, or nobody asks.
        Raises: Unreadable.
        """


class _Run:
    """Messages that were published together. `queues`: the names of those that have them."""

    __slots__ = ("blobs", "envelope", "first_id", "queues", "vhost", "wall_ms")

    def __init__(
        self, vhost: str, first_id: int, envelope: Envelope, blobs: Sequence[bytes], queue: str, wall_ms: int
    ) -> None:
        self.vhost, self.first_id, self.envelope, self.blobs = vhost, first_id, envelope, blobs
        self.queues, self.wall_ms = [queue], wall_ms


class MemoryLog:
    """A `TopicLog`. A position is the id of a message."""

    __slots__ = ("_octets", "_runs")

    def __init__(self) -> None:
        self._runs: deque[_Run] = deque()
        self._octets = 0

    def note(
        self, vhost: str, queue: str, first_id: int, envelope: Envelope, blobs: Sequence[bytes], wall_ms: int
    ) -> None:
        """A run came into a queue; once for each queue, one after the other. O(run)."""
        runs = self._runs
        if runs and runs[-1].first_id >= first_id:
            if runs[-1].first_id == first_id:
                runs[-1].queues.append(queue)
            return
        runs.append(_Run(vhost, first_id, envelope, blobs, queue, wall_ms))
        self._octets += _octets_of(blobs)
        while self._octets > MEMORY_OCTETS and len(runs) > 1:
            self._octets -= _octets_of(runs.popleft().blobs)

    def start(self) -> int:
        return self._runs[0].first_id if self._runs else 0

    def end(self) -> int:
        return self.next_id()

    def first_id(self) -> int:
        return self.start()

    def next_id(self) -> int:
        return self._runs[-1].first_id + len(self._runs[-1].blobs) if self._runs else 0

    def position_of_id(self, id_: int) -> int:
        return id_

    def position_of_time(self, wall_ms: int) -> int:
        """See `TopicLog`. From the first on: the clock may have jumped."""
        return next((run.first_id for run in self._runs if run.wall_ms >= wall_ms), self.end())

    def read(self, vhost: str, position: int, wanted: Wanted, octets: int) -> Page:
        runs = self._runs
        at = max(bisect_right(runs, position, key=_first_id) - 1, 0)
        found: list[LoggedMessage] = []
        for _ in range(RUNS_MAX):
            if octets <= 0 or at >= len(runs):
                break
            run = runs[at]
            for id_, blob in enumerate(run.blobs, run.first_id):
                envelope = run.envelope
                if id_ < position or run.vhost != vhost:
                    continue
                if wanted(envelope.exchange, envelope.routing_key, run.queues, id_):
                    found.append(LoggedMessage(Message(id_, blob, envelope), run.wall_ms))
                    octets -= len(blob) + OVERHEAD
            position = max(position, run.first_id + len(run.blobs))
            at += 1
        return Page(found, position)

    def entered(self, vhost: str, queue: str, position: int, wall_ms: int) -> Entered:
        """See `TopicLog`: no queue outlives what is in memory."""
        return Entered((), 0, self.end())


def _first_id(run: _Run) -> int:
    return run.first_id


def _octets_of(blobs: Sequence[bytes]) -> int:
    return sum(map(len, blobs)) + OVERHEAD * len(blobs)
