"""The clients that wait for room in one usage node, each with its waiters in order of arrival; parked publishes.

Deficit round robin: a client that is served gets a quantum of octets and messages. If its next message is larger, it
saves its quanta until they suffice. If the room is used up before its quantum, it is first when there is room again.
Source: queues page E.5 ("Fairness").
"""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..clients.client import Client
    from .usage import Usage

#: Octets that a client gets each time it is served, and maximum messages that it may publish then.
QUANTUM_OCTETS, QUANTUM_MESSAGES = 64 * 1024, 64


class Waiter(Protocol):
    """The parked publishes of one session."""

    def resume(self, octets: int, messages: int) -> tuple[int, int]:
        """Publish parked messages up to these limits. Returns the octets and the messages published.

        If publishes must wait longer, it calls `FlowControl.wait` again. Called at the end of a turn.
        """


class WaitingClient:
    """One client that waits. `deficit`: octets that it may publish; `messages`: the maximum number of messages.

    `is_cut`: the room was used up before the quantum. `since_ns`: when the client began to wait.
    """

    __slots__ = ("deficit", "is_cut", "messages", "since_ns", "waiters")

    def __init__(self, since_ns: int) -> None:
        self.deficit = self.messages = 0
        self.is_cut = False
        self.since_ns = since_ns
        self.waiters: deque[Waiter] = deque()


class RoundRobin:
    """The waiting clients, in order of service. Truthy while there are any."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Client, WaitingClient] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> "Iterator[tuple[Client, WaitingClient]]":
        """The clients in order of service."""
        return iter(self._waiting.items())

    @property
    def next(self) -> "tuple[Client, Waiter]":
        """The client to serve next, with its first waiter."""
        client, waiting = next(iter(self._waiting.items()))
        return client, waiting.waiters[0]

    def join(self, client: "Client", waiter: Waiter, now_ns: int) -> bool:
        """Append a waiter to those of its client. Returns whether it is the client's first one."""
        waiting = self._waiting.get(client)
        is_new = waiting is None
        if waiting is None:
            waiting = self._waiting[client] = WaitingClient(now_ns)
        waiting.waiters.append(waiter)
        return is_new

    def leave(self, client: "Client", waiter: Waiter) -> bool:
        """Remove a waiter. Returns whether its client has no waiter left."""
        waiting = self._waiting.get(client)
        if waiting is None or waiter not in waiting.waiters:
            return False
        waiting.waiters.remove(waiter)
        if waiting.waiters:
            return False
        del self._waiting[client]
        return True

    def end_if_done(self, client: "Client", waiting: WaitingClient) -> bool:
        """Remove a client that has no waiter left. Returns whether it was there and is removed."""
        if waiting.waiters or self._waiting.get(client) is not waiting:
            return False
        del self._waiting[client]
        return True

    def serve_next(self, node: "Usage") -> "tuple[Client, int] | None":
        """Let the next client publish its quantum. If its wait ends, returns the client and the start of its wait."""
        client, waiting = next(iter(self._waiting.items()))
        if not waiting.is_cut:
            waiting.deficit += QUANTUM_OCTETS
            waiting.messages = QUANTUM_MESSAGES
        waiter = waiting.waiters.popleft()
        octets, messages = waiter.resume(waiting.deficit, waiting.messages)
        waiting.deficit -= octets
        waiting.messages -= messages
        if self._waiting.get(client) is not waiting:
            return None  # the client is gone
        if waiting.waiters:
            waiting.is_cut = node.is_full and waiting.deficit > 0 and waiting.messages > 0
            if waiting.is_cut:
                return None
        del self._waiting[client]
        if not waiting.waiters:
            return client, waiting.since_ns
        self._waiting[client] = waiting  # it is the last now
        return None


#: Percentage of the broker's memory for the parked publishes of all clients.
WHOLE_PERCENT = 5


class Parked(Protocol):
    """The parked publishes of one client. `publishes`: number of messages; `octets`: their size in memory; `spooled`:
    their size in the temp store. `is_reading_paused`: nothing is read from its socket, because too much is parked.
    """

    publishes: int
    octets: int
    spooled: int
    is_reading_paused: bool


class ParkedTotal:
    """The parked publishes of all clients. `octets`: their size in memory; `spooled`: their size in the temp store.

    `limit`: maximum of `octets`; 0: no limit.
    """

    def __init__(self) -> None:
        self.octets = self.spooled = 0
        self.limit = 0

    def set_limit(self, memory: int) -> None:
        """Set the limit to a share of `memory`, the broker's memory limit in octets; 0: no limit."""
        self.limit = max(1, memory * WHOLE_PERCENT // 100) if memory else 0

    def has_room(self, octets: int) -> bool:
        """Whether these octets may be parked in memory in addition."""
        return not self.limit or self.octets + octets <= self.limit
