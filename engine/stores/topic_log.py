"""The log of topics, for replay. Capturing queues are views of it.

With a journal, the journal is the log. Without one, the log in this file has the newest messages in memory.
Source: queues page A.1, A.8, C.1; docs/decisions/0012-log.md.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ..messages.message import Envelope, Message

#: (exchange, routing key, names of the queues, id) of a message -> whether to return it. The log's own name is empty.
Wanted = Callable[[str, str, Sequence[str], int], bool]
#: Maximum octets in memory, and the octets that each message costs in addition to its content. A larger log is slower,
#: because freed memory has left the CPU's caches: with 16 MiB a message of 1 KiB through a capturing queue takes 0.6 us
#: longer, a fifth of its time.
MEMORY_OCTETS, OVERHEAD = 2 * 1024 * 1024, 40
#: Maximum runs that one read examines.
RUNS_MAX = 256


class LoggedMessage(NamedTuple):
    """A message as it was published, with the time. `location`: the location of its content in the journal."""

    message: Message
    wall_ms: int
    location: int = 0


class Page(NamedTuple):
    """The messages found, and the position to continue at."""

    found: list[LoggedMessage]
    next_position: int


class Entered(NamedTuple):
    """The ids of messages that entered a queue, and the position to continue at. `first_id`: see `TopicLog.entered`."""

    ids: Sequence[int]
    first_id: int
    next_position: int


class TopicLog(Protocol):
    """All logged messages of all virtual hosts, in the order of publishing. Positions rise; each log defines its own.

    The oldest messages are dropped first; a dropped position stands for the oldest message.
    """

    def start(self) -> int:
        """The position of the oldest message."""

    def end(self) -> int:
        """The position of the next message."""

    def first_id(self) -> int:
        """No message in the log has a lower id."""

    def next_id(self) -> int:
        """Above the ids of all messages in the log."""

    def position_of_id(self, id_: int) -> int:
        """A position at or before that message and all later ones."""

    def position_of_time(self, wall_ms: int) -> int:
        """A position at or before all messages of that time and later."""

    def read(self, vhost: str, position: int, wanted: Wanted, octets: int) -> Page:
        """Read messages of a virtual host from a position on, about `octets` with `OVERHEAD` each, in bounded time.

        The page may be empty, with a higher position, if none of the messages read is wanted. Raises: Unreadable.
        """

    def entered(self, vhost: str, queue: str, position: int, wall_ms: int) -> Entered:
        """The ids of messages that entered a queue, in a bounded part of the log, whether or not they are still there.

        `wall_ms`: also find `Entered.first_id`, the first message of any queue from that time on (0: none); 0: do not.
        Raises: Unreadable.
        """


class _Run:
    """Messages that were published together. `queues`: the names of their queues."""

    __slots__ = ("contents", "envelope", "first_id", "queues", "vhost", "wall_ms")

    def __init__(
        self, vhost: str, first_id: int, envelope: Envelope, contents: Sequence[bytes], queue: str, wall_ms: int
    ) -> None:
        self.vhost, self.first_id, self.envelope, self.contents = vhost, first_id, envelope, contents
        self.queues, self.wall_ms = [queue], wall_ms


class MemoryLog:
    """A `TopicLog` in memory. A position is the id of a message."""

    def __init__(self) -> None:
        self._runs: deque[_Run] = deque()
        self._octets = 0

    def note(
        self, vhost: str, queue: str, first_id: int, envelope: Envelope, contents: Sequence[bytes], wall_ms: int
    ) -> None:
        """Note a run that entered a queue; called for each of its queues in succession. Ignores older runs. O(run)."""
        runs = self._runs
        if runs and runs[-1].first_id >= first_id:
            if runs[-1].first_id == first_id:
                runs[-1].queues.append(queue)
            return
        runs.append(_Run(vhost, first_id, envelope, contents, queue, wall_ms))
        self._octets += _octets_of(contents)
        while self._octets > MEMORY_OCTETS and len(runs) > 1:
            self._octets -= _octets_of(runs.popleft().contents)

    def start(self) -> int:
        return self._runs[0].first_id if self._runs else 0

    def end(self) -> int:
        return self.next_id()

    def first_id(self) -> int:
        return self.start()

    def next_id(self) -> int:
        return self._runs[-1].first_id + len(self._runs[-1].contents) if self._runs else 0

    def position_of_id(self, id_: int) -> int:
        return id_

    def position_of_time(self, wall_ms: int) -> int:
        # A linear search, because the clock may have jumped.
        return next((run.first_id for run in self._runs if run.wall_ms >= wall_ms), self.end())

    def read(self, vhost: str, position: int, wanted: Wanted, octets: int) -> Page:
        runs = self._runs
        at = max(bisect_right(runs, position, key=lambda run: run.first_id) - 1, 0)
        found: list[LoggedMessage] = []
        for _ in range(RUNS_MAX):
            if octets <= 0 or at >= len(runs):
                break
            run = runs[at]
            for id_, content in enumerate(run.contents, run.first_id):
                envelope = run.envelope
                if id_ < position or run.vhost != vhost:
                    continue
                if wanted(envelope.exchange, envelope.routing_key, run.queues, id_):
                    found.append(LoggedMessage(Message(id_, content, envelope), run.wall_ms))
                    octets -= len(content) + OVERHEAD
            position = max(position, run.first_id + len(run.contents))
            at += 1
        return Page(found, position)

    def entered(self, vhost: str, queue: str, position: int, wall_ms: int) -> Entered:
        """Not used: only a restart reads it, and without a journal no queue survives that."""
        return Entered((), 0, self.end())


def _octets_of(contents: Sequence[bytes]) -> int:
    return sum(map(len, contents)) + OVERHEAD * len(contents)
