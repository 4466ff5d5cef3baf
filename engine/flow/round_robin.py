"""Who waits for room in one usage node: a ring of clients, and of each its waiters in the order in which they came.

Clients have their turns in deficit round robin: each gets a quantum of octets and messages in its turn, and one whose
next message is larger saves its quanta until they are enough. One whose turn ends because the room is used up goes on
with it when there is room again, before the others. Source: queues page E.5 ("Fairness").
"""

from collections import deque
from collections.abc import Iterator
from typing import Protocol

#: What a client may publish in one turn.
QUANTUM_OCTETS, QUANTUM_MESSAGES = 64 * 1024, 64


class Waiter(Protocol):
    """Held publishes of one session, in a frontend."""

    def resume(self, octets: int, messages: int) -> tuple[int, int]:
        """Publish what was held, up to so much. Returns how many octets and messages that were.

        What still has to wait, asks for it again. Called at the end of a turn, never while something is published.
        """


class Named(Protocol):
    """A virtual host."""

    @property
    def name(self) -> str:
        """For people."""


class Waiting(Protocol):
    """A client, which has a name for people. Hashable."""

    name: str

    @property
    def is_internal_link(self) -> bool:
        """Whether it is held where others are refused for want of room."""

    @property
    def vhost(self) -> Named:
        """The virtual host that it is in."""


class Limited(Protocol):
    """What the ring waits for: a usage node."""

    is_full: bool


class Turn:
    """Of one client: `deficit` is what it may publish, in octets, `messages` how many at most.

    `is_cut`: the room was used up before its quantum. `since_ns`: when it began to wait.
    """

    __slots__ = ("deficit", "is_cut", "messages", "since_ns", "waiters")

    def __init__(self, since_ns: int) -> None:
        self.deficit = self.messages = 0
        self.is_cut = False
        self.since_ns = since_ns
        self.waiters: deque[Waiter] = deque()


class RoundRobin:
    """Truthy while anybody waits."""

    __slots__ = ("_turns",)

    def __init__(self) -> None:
        self._turns: dict[Waiting, Turn] = {}

    def __len__(self) -> int:
        return len(self._turns)

    def __iter__(self) -> Iterator[tuple[Waiting, Turn]]:
        """Whose turn it is next comes first."""
        return iter(self._turns.items())

    @property
    def next(self) -> tuple[Waiting, Waiter]:
        """Whose turn it is, and which of its waiters'."""
        client, turn = next(iter(self._turns.items()))
        return client, turn.waiters[0]

    def join(self, client: Waiting, waiter: Waiter, now_ns: int) -> bool:
        """Wait, behind the client's other waiters. Returns whether the client did not wait before."""
        turn = self._turns.get(client)
        is_new = turn is None
        if turn is None:
            turn = self._turns[client] = Turn(now_ns)
        turn.waiters.append(waiter)
        return is_new

    def leave(self, client: Waiting, waiter: Waiter) -> bool:
        """Wait no longer. Returns whether the client has no waiter left."""
        turn = self._turns.get(client)
        if turn is None or waiter not in turn.waiters:
            return False
        turn.waiters.remove(waiter)
        if turn.waiters:
            return False
        del self._turns[client]
        return True

    def serve_next(self, node: Limited) -> tuple[Waiting, int] | None:
        """Give the next client its turn. Returns the client, if it waits no longer, and since when it waited."""
        client, turn = next(iter(self._turns.items()))
        if not turn.is_cut:
            turn.deficit += QUANTUM_OCTETS
            turn.messages = QUANTUM_MESSAGES
        waiter = turn.waiters.popleft()
        octets, messages = waiter.resume(turn.deficit, turn.messages)
        turn.deficit -= octets
        turn.messages -= messages
        if self._turns.get(client) is not turn:
            return None  # it is gone
        if turn.waiters:
            turn.is_cut = node.is_full and turn.deficit > 0 and turn.messages > 0
            if turn.is_cut:
                return None
        del self._turns[client]
        if not turn.waiters:
            return client, turn.since_ns
        self._turns[client] = turn  # the last one now
        return None
