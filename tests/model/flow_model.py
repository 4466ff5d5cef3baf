"""What flow control does, one message at a time: limits, who is refused, who waits, and in which order they go on.

Written from the reference: queues page E.1 to E.5, address-settings page 3.3, and DEVIATIONS.md (low marks).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

QUANTUM_OCTETS, QUANTUM_MESSAGES = 65_536, 64
#: What each message counts for at least against limits of memory (E.2).
MINIMUM = 1024


@dataclass(eq=False)
class FlowMessage:
    """`size`: octets of header and body."""

    name: str
    size: int


@dataclass(eq=False)
class FlowQueue:
    """`rules`: what is said of it. `out`: delivered, and not settled: these count, too."""

    name: str
    rules: dict[str, Any]
    ready: list[FlowMessage] = field(default_factory=list)
    out: list[FlowMessage] = field(default_factory=list)

    def octets(self) -> int:
        return sum(one.size for one in (*self.ready, *self.out))

    def count(self) -> int:
        return len(self.ready) + len(self.out)

    def memory(self) -> int:
        return max(self.octets(), self.count() * self.rules.get("minimum", MINIMUM))

    def is_over(self) -> bool:
        """Whether DROP or FAIL takes nothing more: looked at before a message comes, without a low mark (3.3)."""
        octets, count = self.rules.get("octets"), self.rules.get("messages")
        return (octets is not None and self.octets() >= octets) or (count is not None and self.count() >= count)


@dataclass(eq=False)
class Limit:
    """A limit that blocks publishers. `used`: how much is; full from the limit on, down to the low mark (E.5)."""

    name: str
    queue: str  # empty: the broker's
    limit: int
    used: Callable[[], int]
    refuses: bool = False
    is_full: bool = False
    ring: list[Turn] = field(default_factory=list)

    @property
    def low(self) -> int:
        if self.name == "messages":
            return self.limit - max(1, self.limit * 5 // 100)
        return min(self.limit * 95 // 100, max(self.limit - 65_536, self.limit // 2))

    def look(self) -> None:
        used = self.used()
        self.is_full = used > self.low if self.is_full else used >= self.limit


@dataclass(eq=False)
class Turn:
    """A publisher that waits: what it may publish when it is its turn."""

    publisher: FlowPublisher
    octets: int = 0
    messages: int = 0
    is_cut: bool = False


@dataclass(eq=False)
class FlowPublisher:
    """`held`: message and the queues it is for. `outcomes`: A or N for each that was decided."""

    name: str
    held: deque[tuple[FlowMessage, list[str]]] = field(default_factory=deque)
    outcomes: str = ""
    waits_at: Limit | None = None


class FlowModel:
    """Queues, their limits, the broker's, publishers."""

    def __init__(self) -> None:
        self.queues: dict[str, FlowQueue] = {}
        self.limits: list[Limit] = []
        self.publishers: dict[str, FlowPublisher] = {}

    def configure(self, rules: Mapping[str, dict[str, Any]], broker_memory: int | None) -> None:
        """At the beginning."""
        for name, said in rules.items():
            queue = self.queues[name] = FlowQueue(name, said)
            if said.get("memory"):
                self.limits.append(Limit("memory", name, said["memory"], queue.memory))
            if said.get("policy") == "BLOCK":
                if "threshold" in said:
                    above = said["threshold"] + 1
                    self.limits.append(Limit("threshold", name, above, queue.octets, refuses=True))
                if "octets" in said:
                    self.limits.append(Limit("octets", name, said["octets"], queue.octets))
                if "messages" in said:
                    self.limits.append(Limit("messages", name, said["messages"], queue.count))
        if broker_memory is not None:
            whole = Limit("memory", "", broker_memory, lambda: sum(one.memory() for one in self.queues.values()))
            self.limits.append(whole)

    # -- publishing ---------------------------------------------------------------------------------------------------

    def publisher(self, name: str) -> FlowPublisher:
        return self.publishers.setdefault(name, FlowPublisher(name))

    def publish(self, publisher: FlowPublisher, messages: list[FlowMessage], queues: list[str]) -> None:
        """Behind what it holds already."""
        publisher.held += [(message, queues) for message in messages]
        if publisher.waits_at is None:
            self.go_on(publisher, None)
        self.settle()

    def go_on(self, publisher: FlowPublisher, turn: Turn | None) -> None:
        """Until something is full, or its turn is over; where it waits then."""
        while publisher.held:
            message, queues = publisher.held[0]
            obstacle = self.obstacle(queues, is_turn=turn is not None)
            if obstacle is not None:
                if self.refuses(obstacle, queues):
                    publisher.held.popleft()
                    publisher.outcomes += "N"
                    continue
                self.wait(publisher, obstacle, turn)
                return
            if turn is not None and (turn.messages < 1 or turn.octets < message.size):
                return
            if turn is not None:
                turn.messages, turn.octets = turn.messages - 1, turn.octets - message.size
            publisher.held.popleft()
            publisher.outcomes += self.enqueue(message, queues)

    def obstacle(self, queues: list[str], *, is_turn: bool) -> Limit | None:
        """What is in the way: all or nothing, the strictest decides (E.2); nobody passes who waits (E.5)."""
        found = []
        for queue in queues:
            for limit in self.limits:
                if limit.queue in (queue, "") and (limit.is_full or (limit.ring and not is_turn)):
                    found.append(limit)
                    break
        return next((one for one in found if self.refuses(one, queues)), found[0] if found else None)

    def refuses(self, limit: Limit, queues: list[str]) -> bool:
        """E.4, row 5."""
        of = [limit.queue] if limit.queue else queues
        return limit.refuses or any(self.queues[name].rules.get("fails") for name in of)

    def enqueue(self, message: FlowMessage, queues: list[str]) -> str:
        outcome = "A"
        for name in queues:
            queue = self.queues[name]
            policy = queue.rules.get("policy")
            if policy in ("DROP", "FAIL") and queue.is_over():
                outcome = "N" if policy == "FAIL" else outcome
                continue
            queue.ready.append(message)
        for limit in self.limits:
            limit.look()
        return outcome

    # -- waiting ------------------------------------------------------------------------------------------------------

    def wait(self, publisher: FlowPublisher, limit: Limit, turn: Turn | None) -> None:
        publisher.waits_at = limit
        if turn is None or turn not in limit.ring:
            limit.ring.append(Turn(publisher))

    def settle(self) -> None:
        """Whoever may go on does, one turn after the other (E.5, fairness)."""
        for limit in self.limits:
            limit.look()
        while (limit := next((one for one in self.limits if one.ring and not one.is_full), None)) is not None:
            turn = limit.ring[0]
            if not turn.is_cut:
                turn.octets, turn.messages = turn.octets + QUANTUM_OCTETS, QUANTUM_MESSAGES
            publisher = turn.publisher
            publisher.waits_at = None
            self.go_on(publisher, turn)
            if publisher.held and publisher.waits_at is None:
                publisher.waits_at = limit  # its quantum is used up
            turn.is_cut = publisher.waits_at is limit and limit.is_full and turn.octets > 0 and turn.messages > 0
            if turn.is_cut:
                continue  # it is the first again
            limit.ring.remove(turn)
            if publisher.waits_at is limit:
                limit.ring.append(turn)

    def leave(self, publisher: FlowPublisher) -> None:
        """Its connection is lost, with all that it holds."""
        if publisher.waits_at is not None:
            publisher.waits_at.ring = [turn for turn in publisher.waits_at.ring if turn.publisher is not publisher]
        publisher.held.clear()
        publisher.waits_at = None
        self.settle()
