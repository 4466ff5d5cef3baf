"""The clients that wait for room in one usage node, each with its waiters in order of arrival.

Deficit round robin: a client gets a quantum of octets and messages in its turn. A client whose next message is larger
saves its quanta until they suffice. A client whose turn ends because the room is used up continues it first when there
is room again. Source: queues page E.5 ("Fairness").
"""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..clients.client import Client
    from .usage import Usage

#: Maximum octets and messages that a client may publish in one turn.
QUANTUM_OCTETS, QUANTUM_MESSAGES = 64 * 1024, 64


class Waiter(Protocol):
    """Parked publishes of one session, in a frontend."""

    def resume(self, octets: int, messages: int) -> tuple[int, int]:
        """Publish parked messages up to these limits. Returns the octets and the messages published.

        Publishes that must wait longer call `FlowControl.wait` again. Called at the end of a turn, never in a publish.
        """


class Turn:
    """The turn of one client. `deficit`: octets that it may publish; `messages`: the maximum number of messages.

    `is_cut`: the room was used up before the quantum. `since_ns`: when the client began to wait.
    """

    __slots__ = ("deficit", "is_cut", "messages", "since_ns", "waiters")

    def __init__(self, since_ns: int) -> None:
        self.deficit = self.messages = 0
        self.is_cut = False
        self.since_ns = since_ns
        self.waiters: deque[Waiter] = deque()


class RoundRobin:
    """The waiting clients, in the order of their turns. Truthy while there are any."""

    __slots__ = ("_turns",)

    def __init__(self) -> None:
        self._turns: dict[Client, Turn] = {}

    def __len__(self) -> int:
        return len(self._turns)

    def __iter__(self) -> "Iterator[tuple[Client, Turn]]":
        """Clients with their turns, the next one first."""
        return iter(self._turns.items())

    @property
    def next(self) -> "tuple[Client, Waiter]":
        """The client whose turn is next, with its first waiter."""
        client, turn = next(iter(self._turns.items()))
        return client, turn.waiters[0]

    def join(self, client: "Client", waiter: Waiter, now_ns: int) -> bool:
        """Append a waiter to those of its client. Returns whether the client did not wait before."""
        turn = self._turns.get(client)
        is_new = turn is None
        if turn is None:
            turn = self._turns[client] = Turn(now_ns)
        turn.waiters.append(waiter)
        return is_new

    def leave(self, client: "Client", waiter: Waiter) -> bool:
        """Remove a waiter. Returns whether its client has no waiter left."""
        turn = self._turns.get(client)
        if turn is None or waiter not in turn.waiters:
            return False
        turn.waiters.remove(waiter)
        if turn.waiters:
            return False
        del self._turns[client]
        return True

    def serve_next(self, node: "Usage") -> "tuple[Client, int] | None":
        """Give the next client its turn. Returns the client and the start of its wait if it waits no longer."""
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
