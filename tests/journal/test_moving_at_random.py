"""Messages are moved while others publish, take and give back, and the power fails: none is lost, none is there twice.

In memory or paged out, in order or by priority. What a turn did is on the disk when it has ended.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from depth_world import PERSISTENT, DepthWorld
from effort import examples

from leveret.engine import Choice, Field, FieldTable, Message, Moving, Queue, to_queue
from leveret.engine.stores import memory_budget

KINDS: dict[str, FieldTable] = {
    "classic": {},
    "quorum": {"x-queue-type": Field("S", b"quorum")},
    "priorities": {"x-max-priority": Field("l", 3)},
}
STEPS = 60


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few octets are much, so that queues become deep."""
    monkeypatch.setattr(memory_budget, "SMALL", 0)


def _bodies(queue: Queue) -> Iterator[bytes]:
    """Of all of its messages, wherever they are."""
    after = 0
    while True:
        seen = queue.store.scan(after, 7)
        if seen.missing and not seen.found:
            queue.store.load_at(after, 7)
            seen = queue.store.scan(after, 7)
        if not seen.found:
            break
        yield from (message.body.rstrip(b"\0") for _, message in seen.found)
        after = seen.found[-1][0]
    yield from (message.body.rstrip(b"\0") for message in queue.unacked_messages())


def _is_even(message: Message) -> bool:
    return int(message.body.partition(b".")[0]) % 2 == 0


class Life:
    """`published`, `taken`: bodies."""

    def __init__(self, seed: int, arguments: FieldTable, memory: int | None) -> None:
        self.chance = random.Random(seed)
        self.world = DepthWorld(arguments, {}, memory=memory)
        self.number = 0
        self.published: Counter[bytes] = Counter()
        self.taken: Counter[bytes] = Counter()
        self.moving: Moving | None = None
        self.moved = self.deep = 0

    def step(self) -> None:
        """One thing happens, and the turn ends."""
        verbs = [
            self.publish,
            self.publish,
            self.move,
            self.move,
            self.move,
            self.move,
            self.take,
            self.give_back,
            self.fail,
        ]
        self.chance.choice(verbs)()
        self.world.end_turn()
        there: Counter[bytes] = Counter()
        for queue in self.world.vhost.queues.values():
            self.deep += queue.store.is_deep
            there.update(_bodies(queue))
        assert there + self.taken == self.published

    def publish(self) -> None:
        sizes = [self.chance.choice((0, 3, 50)) for _ in range(self.chance.randrange(1, 8))]
        self.number += 1
        self.world.fill(sizes, {**PERSISTENT, "priority": self.chance.randrange(5)}, self.number)
        self.published.update(b"%d.%d" % (self.number, index) for index in range(len(sizes)))

    def move(self) -> None:
        if self.moving is None or self.moving.is_done:
            names = ["q", "other"]
            self.chance.shuffle(names)
            client, limit = self.world.client, self.chance.choice((None, 3, 20))
            choice = Choice(self.chance.choice((_is_even, lambda message: True)), limit=limit)
            self.moving = Moving(
                client.vhost.queues.named(names[0]), client, choice, to_queue(client, names[1]), "moved"
            )
        before = self.moving.done
        self.moving.work(self.chance.randrange(1, 6))
        self.moved += self.moving.done - before

    def take(self) -> None:
        got = self.world.fetch(self.chance.choice(("q", "other")))
        if got is not None:
            self.taken[got[3][0].rstrip(b"\0")] += 1

    def give_back(self) -> None:
        """Some are out, and come back in this turn or a later one."""
        if self.chance.random() < 0.5:
            self.world.fetch("q", no_ack=False)
        elif self.world.sessions[2].unacked:
            self.world.sessions[2].reject(0, multiple=True, requeue=True)

    def fail(self) -> None:
        """The power goes, or a checkpoint is made and segments go."""
        if self.chance.random() < 0.3:
            self.world.kill(power_cut=True)
            self.moving = None
        else:
            self.world.checkpoint(reclaims=True)


@pytest.mark.parametrize("memory", [None, 0, 1500])
@pytest.mark.parametrize("kind", KINDS)
def test_each_message_is_once(kind: str, memory: int | None) -> None:
    """Whatever happens, in whatever order."""
    moved = deep = 0
    for seed in range(examples(4)):
        life = Life(seed, KINDS[kind], memory)
        for _ in range(STEPS):
            life.step()
        life.world.close()
        moved, deep = moved + life.moved, deep + life.deep
    assert moved > 20
    assert (deep > 0) == (memory is not None)
