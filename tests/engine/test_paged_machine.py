"""Stories of queues of every kind: paged out and metered or not, they do the same, and keep their books.

After each step: the same deliveries, order, times, attempts and counters in memory and out of it; what came in and was
not said to have left is there; no count contradicts what it counts (`engine/invariants`); nothing waits for nobody.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from effort import examples
from queue_world import QueueWorld as World

from leveret.engine import Choice, Message, Moving, broker, reconfigure, scheduled, to_queue
from leveret.engine.clients import session, settling
from leveret.engine.clients.session import NACKED
from leveret.engine.delivery import consumer_list
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.queues import bounds, classic
from leveret.engine.queues import queue as queue_module
from leveret.engine.stores import (
    levels,
    memory_budget,
    paged_index,
    paged_run,
    read_windows,
    sorted_list,
    tailed_store,
)
from leveret.settings import Policies, Policy

#: Stories of a kind of queue, and steps of a story.
STORIES, STEPS = 5, 40
TO_DEAD: FieldTable = {"x-dead-letter-exchange": Field("S", b""), "x-dead-letter-routing-key": Field("S", b"dead")}
KINDS: dict[str, FieldTable] = {
    "plain": {},
    "priorities": {"x-max-priority": Field("l", 2)},
    "length": {"x-max-length": Field("l", 5)},
    "length, refuses": {"x-max-length": Field("l", 4), "x-overflow": Field("S", b"reject-publish")},
    "length, buries": {"x-max-length": Field("l", 4), "x-overflow": Field("S", b"reject-publish-dlx"), **TO_DEAD},
    "octets": {"x-max-length-bytes": Field("l", 120)},
    "priorities and length": {"x-max-priority": Field("l", 2), "x-max-length": Field("l", 6)},
    "times to live": {"x-message-ttl": Field("l", 900), **TO_DEAD},
    "ring": {"x-ring-size": Field("l", 5)},
    "last values": {"x-last-value-key": Field("S", b"k")},
    "kept": {"x-non-destructive": Field("t", True)},
    "kept last values": {"x-last-value-key": Field("S", b"k"), "x-non-destructive": Field("t", True)},
    "kept ring": {"x-non-destructive": Field("t", True), "x-ring-size": Field("l", 5)},
    "quorum": {"x-queue-type": Field("S", b"quorum"), "x-delivery-limit": Field("l", 3)},
    "one active consumer": {"x-single-active-consumer": Field("t", True), "x-expires": Field("l", 60_000)},
}
SETTINGS: dict[str, list[Any]] = {
    "redelivery_delay_ms": [0, 100, 5000],
    "max_delivery_attempts": [-1, 2, 5],
    "dead_letter_address": ["", "dead"],
    "expiry_address": ["", "dead"],
    "default_group_first_key": ["first"],
    "memory_limit": [100, 400, 3000],
    "max_size_bytes": [0, 300],
    "max_size_messages": [0, 3],
}
#: What a policy says of `q`.
POLICIES: list[dict[str, Any]] = [
    {},
    {"max-length": 4},
    {"max-length-bytes": 90},
    {"max-length": 3, "overflow": "reject-publish"},
    {"message-ttl": 600},
    {"dead-letter-exchange": "", "dead-letter-routing-key": "dead", "max-length": 5},
]
#: Arguments of queues that keep what was read.
KEEPING = {"x-non-destructive", "x-last-value-key"}
#: What is done in slices, turns and windows is so in small ones: a queue is deep from its first messages on.
SMALL = [
    (tailed_store, "LOW", 2), (tailed_store, "HIGH", 4), (tailed_store, "LOAD_SLICE", 2),
    (tailed_store, "PAGE_SLICE", 2),
    (classic, "STRAIGHT_MIN", 2), (memory_budget, "SMALL", 0), (paged_run, "APART_MIN", 3), (paged_run, "RUN_MAX", 5),
    (levels, "WINDOW_MESSAGES", 3), (levels, "NEAR", 2), (sorted_list, "BLOCK", 3), (paged_index, "COMPACT_MIN", 3),
    (read_windows, "WINDOW_MESSAGES", 3), (settling, "REQUEUE_SLICE", 2), (session, "REQUEUE_SLICE", 2),
    (broker, "TURN_END_EFFORT", 4_000),
    (classic, "RUN_MAX", 3), (consumer_list, "RUN_MAX", 3), (consumer_list, "SHARE_MAX", 2),
    (queue_module, "EXPIRE_SLICE", 2),
    (bounds, "TRIM_SLICE", 2),
]  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in SMALL:
            patch.setattr(module, name, value)
        yield


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_ruled", [False, True], ids=["", "with settings"])
def test_depth_makes_no_difference_and_books_are_kept(kind: str, is_ruled: bool) -> None:
    chance = random.Random(f"{kind} {is_ruled}")
    for _ in range(examples(STORIES)):
        story = Story(KINDS[kind], chance, is_ruled=is_ruled)
        try:
            story.tell()
        except BaseException:
            print(*story.told, sep="\n")
            raise


class Story:
    """All is done in two worlds: one is in memory, in the other what can be is paged out, and all is metered.

    What not all messages have, some stories have: groups, expirations, delays. Where consumers share a session, groups
    or filters, and where a reader misses what a ring or a newer value took before it came to that, more than one answer
    is right: of such a story the books alone are looked at (not `is_exact`).
    """

    def __init__(self, arguments: FieldTable, chance: random.Random, *, is_ruled: bool) -> None:
        self.chance, self.arguments, self.is_ruled = chance, arguments, is_ruled
        self.has_groups, self.has_expirations, self.has_delays = (chance.random() < 0.3 for _ in range(3))
        self.has_filters = not self.has_groups and chance.random() < 0.3
        misses = "x-ring-size" in arguments or {"x-non-destructive", "x-last-value-key"} <= arguments.keys()
        self.is_exact = chance.random() < 0.6 and not (misses or self.has_groups or self.has_filters)
        said = self.settings()
        durable = "x-queue-type" in arguments or chance.random() < 0.7
        memory = chance.choice([0, 1500, 4000])
        self.number = 0
        self.is_displaced = "x-last-value-key" in arguments
        self.told = [f"{arguments}, {said}, {durable=}, {memory=}, {self.is_exact=}"]
        self.worlds = [World(arguments, said, memory=share, durable=durable) for share in (None, memory)]

    def tell(self) -> None:
        """Where more than one answer is right, few messages are more than a turn has time for.

        Begin with what there is to hand out, and to whom.
        """
        broker.TURN_END_EFFORT = 4_000 if self.is_exact else 4
        for _ in range(self.chance.randint(1, 4)):
            self.publish()
        for _ in range(self.chance.randint(0, 3)):
            self.consume()
        steps = [step for step, weight in self.WEIGHTS.items() for _ in range(weight)]
        for _ in range(STEPS):
            self.chance.choice(steps)(self)
        for world in self.worlds:
            world.client.close()
            world.end_turn()
            assert world.broker.statistics().unacked == 0
        self.compare()

    def both(self, what: str, act: Callable[[World], object]) -> None:
        """A step."""
        self.told.append(what)
        answers = []
        for world in self.worlds:
            answers.append(act(world))
            world.end_turn()
        assert answers[1] == answers[0] or not self.is_exact
        self.compare()

    def compare(self) -> None:
        """What is the same in both worlds is true of both if it is of one."""
        shallow, deep = self.worlds
        if self.is_exact:
            facts = shallow.facts()
            for about, fact in deep.facts().items():
                assert fact == facts[about], about
        else:
            shallow.check(is_displaced=self.is_displaced)
        deep.check(is_displaced=self.is_displaced)

    # -- in ---------------------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        if not self.is_ruled:
            return {}
        return {name: self.chance.choice(of) for name, of in SETTINGS.items() if self.chance.random() < 0.4}

    def bodies(self, count: int) -> list[bytes]:
        self.number += 1
        return [b"%d.%d" % (self.number, at) + bytes(self.chance.choice([0, 3, 50])) for at in range(count)]

    def name(self) -> str:
        return self.chance.choice(["q", "q", "q", "other", "dead"])

    def publish(self) -> None:
        """A run, perhaps to two queues; perhaps to be ready later."""
        choose = self.chance.choice
        bodies, to = self.bodies(choose([1, 1, 2, 3, 7])), choose(["q.x", "q.x", "q.both"])
        headers: FieldTable = {}
        if (key := choose([None, b"a", b"b"])) is not None:
            headers["k"] = Field("S", key)
        if self.has_delays and choose([True, False, False]):
            headers["x-delay"] = Field("l", 300)
            self.is_displaced = True
        properties: dict[str, Any] = {"delivery_mode": choose([2, 2, 1]), "priority": choose([None, None, 0, 1, 9])}
        if self.has_expirations:
            properties["expiration"] = choose([None, b"200", b"400", b"700", b"0"])
        if headers:
            properties["headers"] = headers
        self.both(f"publish {bodies} {properties} to {to}", lambda world: world.write(bodies, properties, to))

    def publish_groups(self) -> None:
        """One by one, of some groups."""
        if not self.has_groups:
            return self.publish()
        bodies = self.bodies(self.chance.randint(1, 5))
        groups = [self.chance.choice([None, b"a", b"b", b"c"]) for _ in bodies]

        def act(world: World) -> None:
            for body, group in zip(bodies, groups):
                headers = {} if group is None else {"JMSXGroupID": Field("S", group)}
                world.write([body], {"delivery_mode": 2, "headers": headers})

        return self.both(f"publish {bodies} of groups {groups}", act)

    def publish_mixed(self) -> None:
        """Of several kinds, read together."""
        choose, name = self.chance.choice, self.chance.choice(["q", "q", "other"])
        bodies = self.bodies(choose([2, 3, 8]))
        run = [(body, {"delivery_mode": choose([1, 2]), "priority": choose([None, 1, 2])}) for body in bodies]
        self.both(f"publish {run} to {name}", lambda world: world.publish_mixed(run, name))

    # -- out --------------------------------------------------------------------------------------------------------

    def get(self) -> None:
        name, who, no_ack = self.name(), self.chance.randrange(3), self.chance.choice([True, False])
        self.both(f"get {name} {who} {no_ack}", lambda world: world.fetch(name, no_ack=no_ack, who=who))

    def consume(self) -> None:
        self.number += 1
        choose, name, tag = self.chance.choice, "q" if self.is_exact else self.name(), f"t{self.number}"
        who, prefetch, no_ack, total = choose([0, 1, 2]), choose([0, 1, 2, 4]), choose([False, False, True]), False
        if not self.is_exact and "x-queue-type" not in self.arguments:
            total = choose([False, True])

        key = choose([b"a", b"b", None, None]) if self.has_filters else None

        def act(world: World) -> None:
            if len(world.sessions[who].consumers) < 2 - self.is_exact:
                world.join(tag, name, prefetch=prefetch, no_ack=no_ack, total=total, who=who, key=key)

        self.both(f"consume {name} {tag} {who=} {prefetch=} {no_ack=} {total=} {key=}", act)

    def cancel(self) -> None:
        who = self.chance.randrange(3)
        self.both(
            f"cancel {who}",
            lambda world: [world.sessions[who].cancel(tag) for tag in list(world.sessions[who].consumers)[:1]],
        )

    def read(self) -> None:
        """The client stops to read, or goes on."""
        is_read = self.chance.choice([True, True, False])

        def act(world: World) -> None:
            if is_read:
                world.stalled.clear()
                world.client.drained()
            else:
                world.stalled.add(world.client)
                world.client.paused = True

        self.both(f"read {is_read}", act)

    # -- back -------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        choose, who, which = self.chance.choice, self.chance.randrange(3), self.chance.randrange(10)
        how, multiple = choose(["ack", "nack", "nack", "away"]), choose([True, False])

        def act(world: World) -> None:
            holder = world.sessions[who]
            tags = list(holder.unacked)
            if not tags:
                return
            tag = tags[which % len(tags)]
            if how == "ack":
                holder.ack(tag, multiple=multiple)
            else:
                holder.reject(tag, multiple=multiple, requeue=how == "nack", why=NACKED)

        self.both(f"{how} {who=} {which=} {multiple=}", act)

    def give_back(self) -> None:
        """All that a session has, of much a slice in each turn."""
        how, who = self.chance.choice(["closed", "failed", "recover"]), self.chance.randrange(3)

        def act(world: World) -> None:
            holder = world.sessions[who]
            if how == "recover":
                holder.recover()
            else:
                holder.close(failed=how == "failed")
                world.sessions[who] = world.client.open_session()

        self.both(f"{how} {who}", act)

    # -- what happens more seldom -----------------------------------------------------------------------------------

    def purge(self) -> None:
        name = self.name()
        self.both(f"purge {name}", lambda world: world.named(name).purge())

    def delete(self) -> None:
        """And declare it again."""
        name = self.name()

        def act(world: World) -> int:
            count = world.vhost.queues.delete(name, world.client)
            world.declare(name)
            return count

        self.both(f"delete {name}", act)

    def set_ring_size(self) -> None:
        if self.is_exact or "x-non-destructive" in self.arguments:
            return
        size = self.chance.choice([None, 3, 5])
        self.both(f"ring of {size}", lambda world: reconfigure.set_ring_size(world.q, size))

    def configure(self) -> None:
        said = self.settings()
        self.both(f"settings {said}", lambda world: world.configure(said))

    def set_policy(self) -> None:
        """Another one of `q`, or none: what is there stays, unless the new limits say otherwise.

        Octets of transient messages in the temp store are counted with their headers.
        """
        definition = self.chance.choice(POLICIES)
        if self.keeps_books_alone() or self.is_exact and "max-length-bytes" in definition:
            return
        policy = Policy(vhost="/", name="p", pattern="^q$", apply_to="queues", definition=definition)
        self.both(
            f"policy {definition}",
            lambda world: world.broker.reloading.replace_policies(Policies([policy] if definition else [])),
        )

    def keeps_books_alone(self) -> bool:
        """Where messages of a queue that keeps them are dropped, readers may have read different ones."""
        return self.is_exact and bool(KEEPING & self.arguments.keys())

    def move(self) -> None:
        """An operator moves some messages from one queue to another."""
        if self.keeps_books_alone():
            return
        to = "other" if self.is_exact else self.chance.choice(["q", "other"])  # memory limits of `q` hold up a move
        name, limit = self.name(), self.chance.choice([1, 2, 9])
        odd = self.chance.choice([True, False])

        def is_wanted(message: Message) -> bool:
            return not odd or bool(message.id % 2)

        def act(world: World) -> object:
            queue = world.named(name)
            if name == to or queue.kind.move_refusal:
                return None
            moving = Moving(queue, world.client, Choice(is_wanted, limit=limit), to_queue(world.client, to), "moved")
            for _ in range(20):  # unless it waits for room
                if not moving.is_done:
                    moving.work(2)
                    world.end_turn()
            return moving.done

        self.both(f"move {limit} {odd=} of {name} to {to}", act)

    def transact(self) -> None:
        """The first session does what follows in transactions, and commits or rolls back now and then."""
        how = self.chance.choice(["begin", "publish", "commit", "commit", "roll back"])
        bodies, key = self.bodies(self.chance.choice([1, 3])), self.chance.choice(["q.x", "q.both"])

        def act(world: World) -> None:
            session = world.sessions[0]
            if session.confirms is not None or session.committing is not None:
                return
            if session.transaction is None:
                if how == "begin":
                    session.select_transactions()
            elif how == "publish":
                world.write(bodies, {"delivery_mode": 2}, key, session=0)
            elif how == "commit":
                commit = session.commit()
                while not commit.is_done:
                    world.end_turn()
                session.committed()
            elif how == "roll back":
                session.roll_back()

        self.both(f"transaction {how} {bodies} {key}", act)

    def reschedule(self) -> None:
        """An operator wants one that waits sooner, later or (None) gone."""
        which, delay_ms = self.chance.randrange(10), self.chance.choice([None, 0, 50, 7000])

        def act(world: World) -> object:
            waiting = world.q.scheduled.entries()
            if not waiting:
                return None
            id_ = waiting[which % len(waiting)][1].id
            if delay_ms is None:
                return scheduled.cancel(world.q, id_)
            return scheduled.reschedule(world.q, id_, delay_ms)

        self.both(f"reschedule {which} {delay_ms}", act)

    def advance(self) -> None:
        ms = self.chance.choice([1, 300, 400, 6000])
        self.both(f"advance {ms}", lambda world: world.advance(ms))

    WEIGHTS = {
        publish: 6, publish_groups: 3, publish_mixed: 3, get: 4, consume: 3, cancel: 1, read: 2, settle: 10,
        give_back: 2, purge: 1, delete: 1, set_ring_size: 1, configure: 1, set_policy: 1, move: 1,
        transact: 3, reschedule: 2, advance: 4,
    }  # fmt: skip
