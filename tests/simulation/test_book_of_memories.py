"""The oracle's book of what a restart has to remember of messages: see test_books.py."""

from __future__ import annotations

from typing import Any

import pytest
from history import MS, History, Step, content_of, envelope_of
from simulator.books.memories import Memories
from simulator.ledger import Broken

from leveret.engine import Message, RequeuedEvent, ScheduledEvent

BEGAN_NS = 10**9


class MemoryHistory(History):
    """Turns have LSNs: message n of a turn is told with what the engine says of its attempts."""

    def __init__(self) -> None:
        super().__init__(self._make, a={}, short={"ttl_ms": 100}, leveled={"priority_max": 5})

    @staticmethod
    def _make(history: History) -> Memories:
        clock: Any = history.clock
        return Memories(history.where, clock)

    @property
    def memories(self) -> Memories:
        assert isinstance(self.book, Memories)
        return self.book

    def came_back(self, queue: str, id_: int, tries: int) -> None:
        message = Message(id_, content_of(id_), envelope_of(), deliveries=tries)
        self.event(RequeuedEvent("/", queue, [id_], [message], "nacked", True))

    def waits(self, queue: str, id_: int, tries: int, wait_ms: int) -> None:
        message = Message(id_, content_of(id_), envelope_of(), deliveries=tries)
        due_ns = [self.clock.now_ns + wait_ms * MS]
        self.event(ScheduledEvent("/", queue, [id_], [message], "nacked", due_ns, True))

    def turn(self, lsn: int, durable_lsn: int, takes_nothing: bool = False) -> None:
        self.memories.recorded(lsn, durable_lsn, takes_nothing=takes_nothing)

    def killed(self, written_lsn: int) -> None:
        self.memories.survived(written_lsn)
        self.restarted()

    def lost_power(self) -> None:
        self.restarted()


OUT: list[Step] = [("published", [1]), ("enqueued", "a", [1]), ("delivered", "a", [1])]
TWICE: list[Step] = [*OUT, ("came_back", "a", 1, 1), ("turn", 10, 5), ("delivered", "a", [1]), ("came_back", "a", 1, 2)]


@pytest.mark.parametrize("steps", [
    [*OUT, ("has", "a", [1]), ("lost_power",)],
    [*TWICE, ("turn", 20, 20), ("has", "a", [1], {"tries": 2}), ("lost_power",)],
    [*TWICE, ("turn", 20, 10), ("has", "a", [1], {"tries": 1}), ("lost_power",)],
    [*TWICE, ("turn", 20, 5), ("has", "a", [1], {"tries": 0}), ("lost_power",)],
    [*TWICE, ("turn", 20, 5), ("has", "a", [1], {"tries": 1}), ("killed", 10)],
    [*OUT, ("came_back", "a", 1, 12), ("turn", 10, 10), ("has", "a", [1], {"tries": 10}), ("lost_power",)],
    [*TWICE, ("turn", 20, 20, True), ("has", "a", [1], {"tries": 0}), ("lost_power",)],
    [*OUT, ("waits", "a", 1, 1, 50), ("turn", 10, 10), ("passed", 60), ("has", "a", [1], {"tries": 1}), ("killed", 10)],
    [*OUT, ("waits", "a", 1, 1, 50), ("turn", 10, 10), ("has_waiting", "a", (1, 49), {"tries": 1}), ("killed", 10)],
    [("published", [1], ["short"]), ("enqueued", "short", [1]), ("passed", 50),
     ("has", "short", [1], {"ends_ns": BEGAN_NS + 101 * MS}), ("lost_power",)],
    [("enqueued", "short", [1], {"expiration": b"20"}), ("has", "short", [1], {"ends_ns": BEGAN_NS + 20 * MS}),
     ("lost_power",)],
    [("enqueued", "short", [1]), ("clock_was_set", 10**6), ("has", "short", [1], {"ends_ns": 1}), ("lost_power",)],
])  # fmt: skip
def test_memories_says_yes_to_what_was_so_behind_some_turn(steps: list[Step]) -> None:
    MemoryHistory().tell(steps)


@pytest.mark.parametrize(("sentence", "steps"), [
    ("tried 1 times after a restart", [*TWICE, ("turn", 20, 20), ("has", "a", [1], {"tries": 1}), ("lost_power",)]),
    ("tried 9 times after a restart",
     [*OUT, ("came_back", "a", 1, 12), ("turn", 10, 10), ("has", "a", [1], {"tries": 9}), ("lost_power",)]),
    ("tried 0 times after a restart", [*TWICE, ("turn", 20, 10), ("has", "a", [1], {"tries": 0}), ("lost_power",)]),
    ("tried 1 times after a restart", [*TWICE, ("turn", 20, 5), ("has", "a", [1], {"tries": 1}), ("killed", 20)]),
    ("waits until 0 after a restart", [
        *OUT, ("waits", "a", 1, 1, 50), ("turn", 10, 10), ("has", "a", [1], {"tries": 1}), ("killed", 10),
    ]),
    ("waits until \\d+ after a restart", [
        *OUT, ("waits", "a", 1, 1, 50), ("turn", 10, 10), ("has_waiting", "a", (1, 40), {"tries": 1}), ("killed", 10),
    ]),
    ("lives until 0 after", [("enqueued", "short", [1]), ("has", "short", [1]), ("lost_power",)]),
    ("lives until \\d+ after", [
        ("enqueued", "short", [1]), ("has", "short", [1], {"ends_ns": BEGAN_NS + 110 * MS}), ("lost_power",),
    ]),
    ("lives until \\d+ after", [("enqueued", "a", [1]), ("has", "a", [1], {"ends_ns": BEGAN_NS}), ("lost_power",)]),
    ("published as", [("published", [1]), ("has", "a", [1], {"routing_key": "b"}), ("lost_power",)]),
    ("published as", [("published", [1]), ("has", "a", [1], {"priority": 3}), ("lost_power",)]),
    ("out of order", [("has", "a", [2, 1]), ("lost_power",)]),
])  # fmt: skip
def test_memories_says_no(sentence: str, steps: list[Step]) -> None:
    told = MemoryHistory()
    told.tell(steps[:-1])
    with pytest.raises(Broken, match=sentence):
        told.tell(steps[-1:])
