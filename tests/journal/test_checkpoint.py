"""A checkpoint beside what goes on: after each of its steps, and each thing between two, a kill finds all as it is.

What is published, taken, given back, dead-lettered, purged, moved, expires, comes due or is put off while a queue is
stated or an old segment is emptied, in any order; messages in memory and paged out, of every kind of queue. The broker
itself is the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import pytest
from depth_world import PERSISTENT, DepthWorld, page_early
from effort import examples

from leveret.engine import Choice, Envelope, Field, FieldTable, Message, Moving, Queue, scheduled, to_queue
from leveret.journal import RecoveredQueue, recover
from leveret.journal.recording import checkpoint as stating
from leveret.journal.recording import message_index as indexes
from leveret.journal.recording.checkpoint import empty_segment
from leveret.journal.recording.message_index import message_index
from leveret.journal.recovery import snapshot
from leveret.testing.harness import messages

PRIORITIES: FieldTable = {"x-max-priority": Field("l", 3)}
#: Arguments and settings of the queue, and what may be in memory of it.
KINDS: dict[str, tuple[FieldTable, dict[str, Any], int | None]] = {
    "held": ({}, {}, None),
    "paged": ({}, {}, 0),
    "levels": (PRIORITIES, {}, None),
    "levels, paged": (PRIORITIES, {}, 0),
    "waiting": ({}, {"redelivery_delay_ms": 500}, None),
    "waiting, paged": ({}, {"redelivery_delay_ms": 500}, 0),
    "limited": ({"x-max-length": Field("l", 9)}, {}, None),
    "ring, paged": ({"x-ring-size": Field("l", 12)}, {}, 0),
    "kept": ({"x-non-destructive": Field("t", True)}, {}, None),
    "kept, paged": ({"x-non-destructive": Field("t", True)}, {}, 0),
    "last value": ({"x-last-value-key": Field("S", b"k")}, {}, None),
    "quorum, paged": ({"x-queue-type": Field("S", b"quorum")}, {}, 0),
    "deliveries": (PRIORITIES, {"redelivery_delay_ms": 500}, None),
    "deliveries, paged": ({}, {}, 0),
}


class Delivering(DepthWorld):
    """A delivery is recorded before it is sent."""

    persists_deliveries = True


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue is deep from its first messages on, and is stated two messages at a time."""
    page_early(monkeypatch)
    for module, name in ((stating, "PART_MESSAGES"), (stating, "EXAMINED_SLICE"), (snapshot, "PART_MESSAGES")):
        monkeypatch.setattr(module, name, 2)
    monkeypatch.setattr(indexes, "KEEP_SLICE", 3)
    monkeypatch.setattr(stating, "RUNS_SPARE", 0)


class Told(NamedTuple):
    """Of a message: octets of its body, attempts that failed (where deliveries are recorded, also one that is under
    way), its level of priority, when it ends and until when it waits (wall ms; 0: never, it is ready).
    """

    size: int
    attempts: int
    level: int
    expires_ms: int
    due_ms: int


class Life:
    """A broker, whose journal is looked at after each step. `acts`: how often each thing happened."""

    def __init__(self, kind: str, seed: int) -> None:
        self.chance = Random(seed)
        arguments, said, memory = KINDS[kind]
        said = {"dead_letter_address": "dead", "max_delivery_attempts": 4, **said}
        self.counts_deliveries = kind.startswith("deliveries")
        self.world = (Delivering if self.counts_deliveries else DepthWorld)(arguments, said, memory=memory)
        self.number = 0
        self.seen: set[int] = set()  # ids that ever were in a queue
        self.acts: Counter[str] = Counter()
        self.verbs: list[Callable[[], object]] = [
            self.publish,
            self.publish_mixed,
            self.take,
            self.take_out,
            self.take_out,
            self.take_out,
            self.acknowledge,
            self.acknowledge,
            self.give_back,
            self.give_back,
            self.refuse,
            self.purge,
            self.time_passes,
            self.put_off,
            self.move,
            self.declare_again,
        ]

    @property
    def queue(self) -> Queue:
        return self.world.named("q")

    def publish(self) -> None:
        """Some persistent ones; a few expire, and some are transient."""
        self.number += 1
        headers = {"k": Field("S", b"%d" % self.chance.randrange(4))}
        more: dict[str, Any] = {"expiration": b"900"} if self.chance.random() < 0.15 else {}
        mode = 1 if self.chance.random() < 0.1 else 2
        sizes = [self.chance.choice((0, 7, 300)) for _ in range(self.chance.randrange(1, 6))]
        properties = {"delivery_mode": mode, "priority": self.chance.randrange(5), "headers": headers, **more}
        self.world.fill(sizes, properties, self.number, self.chance.choice(("q.x", "q.x", "q.both")))

    def publish_mixed(self) -> None:
        """Messages that are not alike, read together."""
        choose = self.chance.choice
        made = []
        for _ in range(choose((2, 4))):
            properties = {"delivery_mode": choose((1, 2, 2)), "priority": choose((None, 1, 3))}
            made.append(messages([b"-" * choose((0, 7, 300))], properties))
        name = choose(("q", "other"))
        envelopes = [Envelope("", name, summary) for summary, _ in made]
        contents = [content for _, (content,) in made]
        self.world.sessions[2].publish_mixed([self.world.named(name)] * len(made), envelopes, contents)

    def put_off(self) -> None:
        """An operator changes until when one waits."""
        if waiting := [message.id for message in self.queue.scheduled]:
            scheduled.reschedule(self.queue, self.chance.choice(waiting), self.chance.choice((0, 300, 2000)))

    def take(self) -> None:
        """For good."""
        for _ in range(self.chance.randrange(1, 4)):
            self.world.fetch()

    def take_out(self) -> None:
        for _ in range(self.chance.randrange(1, 4)):
            self.world.fetch(no_ack=False)

    def _tag(self) -> int | None:
        tags = list(self.world.sessions[2].unacked)
        return self.chance.choice(tags) if tags else None

    def acknowledge(self) -> None:
        if (tag := self._tag()) is not None:
            self.world.sessions[2].ack(tag, multiple=self.chance.random() < 0.3)

    def give_back(self) -> None:
        """It counts as an attempt, or it does not."""
        if (tag := self._tag()) is not None:
            self.world.sessions[2].reject(tag, multiple=self.chance.random() < 0.3, requeue=True)

    def refuse(self) -> None:
        """A dead letter."""
        if (tag := self._tag()) is not None:
            self.world.sessions[2].reject(tag, requeue=False)

    def purge(self) -> None:
        if self.chance.random() < 0.3:
            self.queue.purge()

    def time_passes(self) -> None:
        self.world.advance(self.chance.choice((1, 400, 1000)))

    def move(self) -> None:
        """An operator moves some to another queue."""
        client = self.world.client
        if not self.queue.kind.move_refusal:
            Moving(self.queue, client, Choice(_is_any, limit=3), to_queue(client, "other"), "moved").work(2)

    def declare_again(self) -> None:
        if self.chance.random() < 0.2:
            self.world.vhost.queues.delete("q", self.world.client)
            self.world.end_turn()
            self.world.declare("q")

    def act(self) -> None:
        verb = self.chance.choice(self.verbs)
        self.acts[verb.__name__] += 1
        verb()
        self.world.end_turn()

    def checkpoint(self) -> None:
        """Step by step; between two of them nothing, one thing, or two happen."""
        world = self.world
        for at, _ in enumerate(stating.checkpoint(world.broker, world.journal, world.recorder)):
            world.end_turn()
            self.check(f"step {at}")
            for _ in range(self.chance.choice((0, 1, 1, 2))):
                self.act()
                self.check(f"an act behind step {at}: {dict(self.acts)}")
        world.end_turn()
        self.check("its end")
        self.empty_a_segment()

    def empty_a_segment(self) -> None:
        """The contents of the oldest one, if it has any, are moved; while things happen."""
        world = self.world
        rows = world.journal.usage.segments
        if len(rows) < 2 or not rows[0].live:
            return
        for at, _ in enumerate(empty_segment(world.broker, world.journal, world.recorder, rows[0].base_lsn)):
            world.end_turn()
            self.check(f"slice {at} of an old segment")
            self.act()
            self.check(f"an act behind slice {at}: {dict(self.acts)}")
        world.end_turn()
        self.check("the end of an old segment")

    def check(self, after: str) -> None:
        """What a kill now would leave is what there is."""
        found = recover(self.world.files, self.world.path)
        queues = {found.names.text(id_): queue for id_, queue in found.queues.items()}
        where: dict[int, set[int]] = {}
        for name in ("q", "dead", "other"):
            one = self.world.named(name)
            expected = told_of(self.world, one, counts_deliveries=self.counts_deliveries)
            told = self.told(queues.get(name, RecoveredQueue()), one)
            assert told == expected, f"{name} after {after}"
            assert list(told) == sorted(told), f"{name} after {after}"
            for id_ in expected:
                where.setdefault(id_, set()).add(self.world.recorder.objects.queue_id(one))
        self.seen |= where.keys()
        queues_of = message_index(self.world.broker, self.world.recorder.objects)
        assert {id_: sorted(queues_of(id_)) for id_ in self.seen} == {
            id_: sorted(where.get(id_, ())) for id_ in self.seen
        }, f"what is moved forward after {after}"
        rows = self.world.journal.usage.segments
        assert sum(row.live for row in rows) == sum(map(len, queues.values())), after
        assert all(row.live >= 0 for row in rows), after

    def told(self, found: RecoveredQueue, queue: Queue) -> dict[int, Told]:
        """What is over is none: it leaves with its turn, which may come later."""
        now_ms = self.world.clock.wall_ms()
        return {
            one.id: Told(
                one.size,
                one.state.deliveries - one.state.uncounted,
                level_of(queue, one.state.priority),
                one.expires_ms,
                one.state.due_ms if one.state.due_ms > now_ms else 0,
            )
            for one in found.messages()
        }


def _is_any(message: Message) -> bool:
    return True


def level_of(queue: Queue, priority: int) -> int:
    """Levels matter to queues that have some."""
    return 0 if queue.pageable is None else queue.pageable.levels.mapping.of(priority)


def told_of(world: DepthWorld, queue: Queue, *, counts_deliveries: bool) -> dict[int, Told]:
    """What the broker has in a queue, in memory or not."""
    wall_ms, found = world.recorder.messages.wall_ms, {}
    due = {message.id: wall_ms(due_ns) for due_ns, message in queue.scheduled.entries()}
    messages = [*queue.messages(), *(() if queue.keeps_acked else queue.unacked_messages())]
    for part in queue.store.paged_parts():
        if isinstance(part, Message):
            messages.append(part)
        elif part.location is None:
            expires = part.expires or [0] * len(part.ids)
            for id_, size, expires_ns in zip(part.ids, part.sizes, expires):
                found[id_] = Told(size, part.attempts, part.level, wall_ms(expires_ns), 0)
    for message in messages:
        if message.envelope.summary.persistent:
            attempts = message.deliveries - message.uncounted
            if not counts_deliveries and message.holder is not None:
                attempts = max(0, attempts - 1)
            level = level_of(queue, message.envelope.summary.priority or 0)
            times = wall_ms(message.expires_ns), due.get(message.id, 0)
            found[message.id] = Told(len(message.body), attempts, level, *times)
    return found


@pytest.mark.parametrize("seed", range(examples(2)))
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_any_step(kind: str, seed: int) -> None:
    """What was settled is gone, what was not is there, as often tried, until as late, and as large as it is."""
    life = Life(kind, seed)
    for _ in range(12):
        life.publish()
        life.act()
    for _ in range(2):
        life.checkpoint()
        life.publish()
        life.act()
    life.world.kill(power_cut=True)
    life.check("a restart")
    life.checkpoint()
    life.world.close()
    assert len(life.acts) > 6


def test_messages_that_are_gone_need_no_memory_beside_some_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint leaves two entries of the index of contents for each that is there, and a few."""
    monkeypatch.setattr(stating, "RUNS_SPARE", 10)
    world = DepthWorld({}, {})
    for number in range(100):
        world.fill([1], PERSISTENT, number)
        world.end_turn()
    for number in range(100):
        world.fetch(no_ack=number >= 3)
        world.end_turn()
    world.checkpoint()
    assert 3 <= len(world.recorder.messages.contents) <= 2 * 3 + 10
    world.close()
