"""The conformance kit of stores: every verb, in any order, against lists.

`check_store` tells stories; `Kind` says what a store can. The model is a list of messages for each level, in
order of delivery; where messages are, in memory or paged out, it does not know: that is the store's business. Each
story has its own frequencies of the verbs, so that rare ones follow each other. Hypothesis took 20 times as long for a
step, and stories of 30 steps seldom had two things of a kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from effort import examples
from store_owner import StoreOwner

from leveret.engine import Envelope, Message
from leveret.engine.invariants.stores import counts_of
from leveret.engine.messages.content import NATIVE, PropertySummary, encode_header
from leveret.engine.messages.field_table import Field
from leveret.engine.messages.message import UNLIMITED
from leveret.engine.stores.memory_budget import OVERHEAD
from leveret.engine.stores.memory_share import MemoryCap
from leveret.engine.stores.paged_index import PagedEntry
from leveret.engine.stores.paged_run import octets_paged
from leveret.engine.stores.storage import Storage
from leveret.engine.stores.store import LEVEL_STEP, Removed
from leveret.engine.stores.tailed_store import TailedStore
from leveret.testing.memory_pager import MemoryPager, MemoryTempStore

#: Stories of a kind of store, and steps of a story.
STORIES, STEPS = 200, 80
#: The header whose values are the keys of last values.
KEY = "key"
KEYS = (b"a", b"b", b"c")
EXPIRIES = (0, 0, 0, 3, 6)


@dataclass(frozen=True, slots=True)
class Kind:
    """What a store can, beside what all can.

    `in_order`: it holds messages by id, wherever they are put. `keeps`: deliveries are copies: none of its messages has
    ever been delivered. `replaces`: `append` and `put_back` know last values.
    `reads_only`: nothing is taken out but all at once. `counts`: octets of bodies. `has_tail`: messages may be paged
    out to a tail, and are there after a restart.
    """

    level_max: int = 0
    in_order: bool = False
    keeps: bool = False
    replaces: bool = False
    reads_only: bool = False
    counts: bool = False
    has_tail: bool = False


Make = Callable[[StoreOwner], Any]  # a `Store` with what its `Kind` says


def check_store(make: Make, kind: Kind, *, memory: int | None, spool_octets: int) -> None:
    """Every verb against lists. `memory`: octets of a pager; None: there is none. `spool_octets`: of the temp store."""
    for seed in range(examples(STORIES)):
        story = Story(make, kind, memory, spool_octets, Random(seed))
        try:
            story.tell()
        except BaseException:
            print(f"story {seed}:", *story.told, sep="\n")
            raise


class StandInBound:
    """As a meter has it: what is in memory is used, also what is out, or just coming."""

    def __init__(self, story: Story, limit: int, in_messages: bool, message_octets_min: int) -> None:
        self._story = story
        self.limit = limit
        self.in_messages = in_messages
        self.message_octets_min = message_octets_min

    @property
    def room(self) -> int:
        story = self._story
        known = [*story.here, *story.out.values()]
        count = len(known) + story.coming_count + story.owner.in_memory
        if self.in_messages:
            return self.limit - count
        octets = sum(len(one.content) for one in known) + story.coming + story.owner.in_memory_octets
        return self.limit - max(octets, count * self.message_octets_min)


class Story:
    """One store and its model. `told`: what was done."""

    def __init__(self, make: Make, kind: Kind, memory: int | None, spool_octets: int, chance: Random) -> None:
        self.chance = chance
        self.told: list[str] = []
        self.kind = kind
        self.pager = None if memory is None else MemoryPager(memory)
        self.temp = MemoryTempStore(spool_octets)
        storage = Storage()
        storage.pager = self.pager
        storage.open_temp = lambda: self.temp
        self.owner = StoreOwner(storage)
        self.store = self.owner.store = make(self.owner)
        owners = [StoreOwner(storage) for _ in range(2)]
        self.rivals = [make(owner) for owner in owners]  # queues that want memory, too
        for owner, rival in zip(owners, self.rivals, strict=True):
            owner.store = rival
        self.levels: list[list[Message]] = [[] for _ in range(kind.level_max + 1)]
        self.out: dict[int, Message] = {}
        self.gone: list[int] = []  # positions
        self.next_id = 1
        self.now_ns = 1
        self.first_offset = 0
        self.displaced = False  # messages stand elsewhere than their ids say
        self.has_spooled = False
        self.counts = kind.counts
        self.coming = 0  # octets of what the store is just getting
        self.coming_count = 0
        self.had_cap = False
        self.is_metered = False

    def tell(self) -> None:
        """A story: each verb has its own frequency, and some have none."""
        self.restart()
        verbs = [
            self.append_run, self.append, self.put_back, self.put_somewhere, self.take, self.head_octets,
            self.evict_head, self.expire, self.drop_all, self.page_out, self.page_again, self.a_rival_grows,
            self.set_may_page, self.settle, self.limit_memory, self.load, self.load_straight, self.count_octets,
            self.scan, self.take_at,
        ]  # fmt: skip
        weights = [self.chance.choice((0, 1, 1, 4)) for _ in verbs]
        for verb in self.chance.choices([self.append_run, *verbs], [2, *weights], k=STEPS):
            self.told.append(verb.__name__)
            verb()
            self.counts_are_right()
            self.order_is_right()
            self.expiry_is_right()

    def sizes(self) -> list[int]:
        """Octets of bodies of a run."""
        return [self.chance.randint(0, 200) for _ in range(self.chance.randint(1, 12))]

    @property
    def pageable(self) -> TailedStore | None:
        """The store, if it has a tail."""
        return self.store if self.kind.has_tail else None

    # -- the model ----------------------------------------------------------------------------------------------------

    @property
    def here(self) -> list[Message]:
        """All, in order of delivery."""
        return [message for level in reversed(self.levels) for message in level]

    def level_of(self, message: Message) -> list[Message]:
        """Where a message stands."""
        return self.levels[self.level_number(message)]

    def level_number(self, message: Message) -> int:
        """Of its priority."""
        return min(message.envelope.summary.priority or 0, self.kind.level_max)

    def position(self, message: Message) -> int:
        if self.kind.reads_only:
            return self.first_offset + self.levels[0].index(message) + 1
        return (self.kind.level_max - self.level_number(message)) * LEVEL_STEP + message.id

    def scanned(self) -> list[tuple[int, Message]]:
        """All, in the order of scans."""
        return sorted(((self.position(message), message) for message in self.here), key=lambda one: one[0])

    def remove(self, messages: Sequence[Message]) -> None:
        """They are out of the model; positions of theirs are remembered."""
        for message in messages:
            self.gone.append(self.position(message))
            self.level_of(message).remove(message)

    def find(self, id_: int) -> Message:
        """The model's message with this id."""
        return next(message for message in self.here if message.id == id_)

    def made(self, envelope: Envelope, size: int, expires_ns: int, key: bytes | None) -> Message:
        """A message of the store, journaled where it is persistent, and its double for the model."""
        id_, self.next_id = self.next_id, self.next_id + 1
        content = self.make_content(size, id_, key)
        if self.pager is not None and envelope.summary.persistent:
            self.pager.journal[id_] = (envelope, content)
        self.has_spooled = self.has_spooled or not envelope.summary.persistent
        message = self.store.new_message(id_, content, envelope)
        self.coming += len(content)
        self.coming_count += 1
        message.expires_ns = expires_ns
        if expires_ns:
            self.store.expiring = True
        return message

    @staticmethod
    def make_content(size: int, id_: int, key: bytes | None) -> bytes:
        """With its id for a body, and more."""
        body = b"%d" % id_ + bytes(size)
        return NATIVE.join(encode_header(len(body), {} if key is None else {"headers": {KEY: Field("S", key)}}), body)

    def envelope(self, priority: int, is_persistent: bool, key: bytes | None) -> Envelope:
        """Of a run. Streams store all that comes."""
        return Envelope(
            "e",
            f"key {self.next_id % 2}",
            PropertySummary(is_persistent or self.kind.reads_only, priority, has_headers=key is not None),
        )

    def double(self, message: Message) -> Message:
        """A message as the model has it."""
        double = Message(message.id, message.content, message.envelope, None, message.deliveries)
        double.expires_ns, double.uncounted = message.expires_ns, message.uncounted
        return double

    @staticmethod
    def look(message: Message) -> tuple[object, ...]:
        """What has to be the same, wherever a message was."""
        return (
            message.id,
            message.envelope.routing_key,
            message.body,
            message.expires_ns,
            message.deliveries,
            message.uncounted,
        )

    def same(self, found: Sequence[Message], expected: Sequence[Message]) -> None:
        """Messages of the store are those of the model."""
        assert [self.look(one) for one in found] == [self.look(one) for one in expected]

    def key_of(self, message: Message) -> bytes | None:
        """A message's last-value key."""
        field = message.envelope.headers(message.content).get(KEY)
        return None if field is None else bytes(field.value)  # type: ignore[arg-type]

    def older_of(self, message: Message) -> Message | None:
        """The model's message of the same key."""
        key = self.key_of(message)
        if not self.kind.replaces or key is None:
            return None
        return next((one for one in self.here if self.key_of(one) == key), None)

    # -- in -----------------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """What the journal had: runs of sizes, gap before them, priority, deliveries, expiry."""
        chance = self.chance
        runs = [
            (
                self.sizes(),
                chance.randint(0, 1),
                chance.randint(0, 3),
                chance.choice((0, 0, 2)),
                chance.choice(EXPIRIES),
            )
            for _ in range(chance.randint(0, 3))
        ]
        self.is_metered = chance.random() < 0.5
        pageable = self.pageable
        if pageable is None:
            return
        pageable.limit_memory(None, is_metered=self.is_metered)
        if self.pager is None:
            return
        for sizes, gap, priority, deliveries, expires_ns in runs:
            self.next_id += gap
            first_id, envelope = self.next_id, self.envelope(priority, True, None)
            doubles = [self.double(self.made(envelope, size, expires_ns, None)) for size in sizes]
            self.came()
            bodies = [len(one.body) for one in doubles]
            self.owner.paged_out(
                len(doubles), sum(len(one.content) for one in doubles), octets_paged(bodies, None), are_stored=True
            )
            pageable.restore_run(
                first_id,
                [len(one.body) for one in doubles],
                [expires_ns] * len(doubles) if expires_ns else None,
                level=min(priority, self.kind.level_max),
                deliveries=deliveries,
            )
            for double in doubles:
                double.deliveries = deliveries
                self.level_of(double).append(double)

    def append_run(self) -> None:
        """New messages in one run, with a gap before them where other queues got something."""
        chance = self.chance
        sizes = self.sizes()
        priority, persistent, gap = chance.randint(0, 3), chance.random() < 0.5, chance.randint(0, 2)
        self.next_id += gap
        first_id, envelope = self.next_id, self.envelope(priority, persistent, None)
        made = [self.made(envelope, size, 0, None) for size in sizes]
        if self.kind.reads_only:
            for one in made:
                self.store.add(one, 0)
            self.store.measure()
        else:
            self.store.append_run(first_id, envelope, [one.content for one in made])
        self.came()
        for one in made:
            self.level_of(one).append(self.double(one))
        self.keeps_to_cap()

    def append(self) -> None:
        """One new message."""
        if self.kind.reads_only:
            return
        chance = self.chance
        size, priority, persistent = chance.randint(0, 300), chance.randint(0, 3), chance.random() < 0.5
        expires_in, key = chance.choice(EXPIRIES), chance.choice((None, *KEYS))
        expires_ns = self.now_ns + expires_in if expires_in else 0
        one = self.made(self.envelope(priority, persistent, key), size, expires_ns, key)
        double, older = self.double(one), self.older_of(one)
        replaced = self.store.append(one)
        self.came()
        if older is None:
            assert replaced is None
            self.level_of(one).append(double)
        else:
            assert replaced is not None
            assert (replaced.id, replaced.body) == (older.id, older.body)
            self.replace(older, double)
        self.keeps_to_cap()

    def came(self) -> None:
        """What was made has come."""
        self.coming = self.coming_count = 0

    def replace(self, older: Message, newer: Message) -> None:
        """At the same place."""
        for level in self.levels:
            if older in level:
                level[level.index(older)] = newer
        self.gone.append(older.id)
        self.displaced = True

    def put_back(self) -> None:
        """Some of what is out comes back."""
        if not self.out:
            return
        chance = self.chance
        counted = chance.random() < 0.5
        ids = chance.sample(sorted(self.out), chance.randint(1, min(6, len(self.out))))
        messages = [self.out.pop(id_) for id_ in sorted(ids, reverse=True)]
        for message in messages:
            if not self.kind.keeps:
                message.deliveries += 1
                message.uncounted += not counted
        doubles = [self.double(message) for message in messages]
        fresh: list[Message] = []
        superseded: list[Message] = []
        keys: set[bytes] = set()
        for double in doubles:
            older, key = self.older_of(double), self.key_of(double) if self.kind.replaces else None
            if key in keys:
                superseded.append(double)
            elif older is None:
                fresh.append(double)
            elif older.id > double.id:
                superseded.append(double)
            else:
                superseded.append(older)
                self.replace(older, double)
            if key is not None:
                keys.add(key)
        gone, passed = self.store.put_back(messages)
        assert [(one.id, one.body) for one in gone] == [(one.id, one.body) for one in superseded]
        for level in self.levels:
            self.merge(level, [one for one in fresh if self.level_of(one) is level])
        assert passed >= 0

    def merge(self, level: list[Message], messages: list[Message]) -> None:
        """Each message goes before the first that is newer."""
        for message in messages:
            level.insert(next((at for at, one in enumerate(level) if one.id > message.id), len(level)), message)

    def put_somewhere(self) -> None:
        """A message whose wait is over, at the head or the end, whatever its id says."""
        if not self.out:
            return
        chance = self.chance
        is_first = chance.random() < 0.5
        message = self.out[chance.choice(sorted(self.out))]
        if self.older_of(message) is not None:
            return
        del self.out[message.id]
        double, level = self.double(message), self.level_of(message)
        if is_first and not self.kind.keeps:
            self.store.put_first(message)
            level.insert(0, double)
        else:
            self.store.put_last(message)
            level.append(double)
        if self.kind.in_order:
            level.sort(key=lambda one: one.id)
        elif [one.id for one in level] != sorted(one.id for one in level):
            self.displaced = True

    # -- out ----------------------------------------------------------------------------------------------------------

    def took(self, removed: Removed, expected: Sequence[Message], *, with_content: bool) -> None:
        """Messages left store and model."""
        everything = {one.id: self.look(one) for one in expected}
        assert [one.id for one in removed.messages] == [
            one.id for one in expected if one.id in {message.id for message in removed.messages}
        ]
        for message in removed.messages:
            assert self.look(message) == everything.pop(message.id)
        for left in removed.unread:
            assert isinstance(left, PagedEntry)
            assert left.expires_ns == everything.pop(left.id)[3]
        assert not everything
        assert not removed.unread or (self.kind.in_order and not with_content)
        self.remove(expected)

    def take(self) -> None:
        """A consumer gets some."""
        if self.kind.reads_only or self.kind.keeps:
            return
        chance = self.chance
        limit, room = chance.randint(0, 15), chance.choice((0, 1, 100, 700, UNLIMITED))
        here, before = self.here, self.store.in_memory
        taken = self.store.take(limit, room)
        self.same(taken, here[: len(taken)])
        assert len(taken) <= min(limit, before)
        assert bool(taken) == bool(limit and before)
        if room == UNLIMITED:
            assert len(taken) == min(limit, before)
        assert sum(len(one.content) for one in taken[:-1]) < max(room, 1)
        self.remove(here[: len(taken)])
        for message in taken:
            self.out[message.id] = message

    def head_octets(self) -> None:
        """Of those at hand."""
        if self.kind.reads_only or self.kind.keeps:
            return
        count = self.chance.randint(0, 8)
        expected = [len(message.content) for message in self.store]
        assert self.store.head_octets(count) == sum(expected[:count])

    def evict_head(self) -> None:
        """Too many."""
        if self.kind.reads_only:
            return
        chance = self.chance
        count, with_content = chance.randint(0, 8), chance.random() < 0.5
        expected = self.here[:count]
        self.took(self.store.evict_head(count, with_content=with_content), expected, with_content=with_content)

    def expire(self) -> None:
        """Time passes: expired heads go, at once or in slices."""
        if self.kind.reads_only:
            return
        chance = self.chance
        nanoseconds, with_content = chance.randint(0, 4), chance.random() < 0.5
        octets, count = chance.choice((1, 300, UNLIMITED)), chance.choice((1, 3, UNLIMITED))
        self.now_ns += nanoseconds
        expected: list[Message] = []
        for level in self.levels:
            for message in level:
                if not 0 < message.expires_ns <= self.now_ns:
                    break
                expected.append(message)
        found = 0
        while True:
            removed = self.store.expire(self.now_ns, with_content=with_content, count_max=count, octets_max=octets)
            taken = len(removed.messages) + len(removed.unread)
            self.took(removed, expected[found : found + taken], with_content=with_content)
            found += taken
            assert taken <= count
            if not 0 < self.store.next_expiry_ns <= self.now_ns:
                break
            assert taken
        assert found == len(expected)

    def drop_all(self) -> None:
        """A purge; nothing is read."""
        if self.pager is not None:
            self.pager.is_broken = self.temp.is_broken = True
        gone = self.store.drop_all()
        ids = [message.id for message in gone.ready]
        ids += [id_ for run, _ in gone.runs for id_ in run] + [message.id for message in gone.paged]
        assert sorted(ids) == sorted(message.id for message in self.here)
        assert len(ids) == len(gone.ready) + gone.paged_count
        self.first_offset += len(ids)
        while len(gone.ready):
            gone.ready.pop()
        for level in self.levels:
            level.clear()
        self.gone.clear()
        self.owner.forget_paged()
        if self.kind.keeps:
            assert self.store.windows.octets == 0
        if self.pager is not None:
            self.pager.is_broken = self.temp.is_broken = False
            assert self.owner.storage.memory.charge_of(self.store) == 0
        assert self.temp.used == 0 or any(rival.is_deep for rival in self.rivals)

    # -- memory -------------------------------------------------------------------------------------------------------

    def page_out(self) -> None:
        """Another queue needs memory."""
        octets = self.chance.randint(0, 3000)
        pageable = self.pageable
        if pageable is None or self.pager is None and not self.had_cap:
            return
        held = pageable.held_octets
        freed = pageable.page_out(octets)
        assert 0 <= freed <= held
        assert freed == 0 or pageable.is_deep

    def page_again(self) -> None:
        """The temp store has more room than before, or less, and what it did not take is offered again."""
        room = self.chance.choice((None, 0, 10_000))
        if room is not None:
            self.temp.give_room(room)
        while self.pageable is not None and self.pageable.page_again() and not self.temp.has_failed:
            pass

    def a_rival_grows(self) -> None:
        """Other queues want memory."""
        sizes = self.sizes()
        if self.pager is None or self.kind.reads_only:
            return
        rival = self.rivals[self.next_id % 2]
        envelope = self.envelope(0, True, None)
        made = [self.made(envelope, size, 0, None) for size in sizes]
        rival.append_run(made[0].id, envelope, [one.content for one in made])
        if len(rival) > 30:
            rival.drop_all()

    def set_may_page(self) -> None:
        """The queue counts octets, or does not any more."""
        allowed = self.chance.random() < 0.5
        if self.pageable is not None:
            self.pageable.share.set_may_page(allowed)
            self.pageable.limit_memory(self.pageable.share.cap, is_metered=self.is_metered)

    def settle(self) -> None:
        """At the end of a dispatch."""
        pageable = self.pageable
        if pageable is None:
            return
        while pageable.enforce_quota():
            pass
        assert pageable.share.quota >= 0
        share = pageable.share
        # One message that was loaded for a waiting consumer may exceed the cap.
        if share.cap is not None and share.may_page and pageable.in_memory > 1 and not self.has_refused:
            assert share.cap.is_met

    def limit_memory(self) -> None:
        """The queue has a cap, or none any more."""
        if not (self.kind.has_tail and self.is_metered):
            return
        chance = self.chance
        limits = [
            (chance.choice((0, 100, 600, 2000)), chance.random() < 0.5, chance.choice((0, 64)))
            for _ in range(chance.randint(0, 2))
        ]
        bounds = [
            StandInBound(self, limit // 50 if in_messages else limit, in_messages, 0 if in_messages else each)
            for limit, in_messages, each in limits
        ]
        self.had_cap = True
        self.has_spooled = self.has_spooled or self.pager is None
        assert self.pageable is not None
        self.pageable.limit_memory(MemoryCap(bounds) if bounds else None, is_metered=True)
        self.settle()

    @property
    def has_refused(self) -> bool:
        """Whether messages stay in memory that have to leave it: the temp store has no room, or is not for them."""
        return any(isinstance(part, Message) for part in self.store.paged_parts())

    def keeps_to_cap(self) -> None:
        """New messages that are too much are not at hand."""
        pageable, here = self.pageable, list(self.store)
        cap = None if pageable is None or not pageable.share.may_page else pageable.share.cap
        if cap is not None and here and here[-1].id == self.next_id - 1:
            assert cap.is_met

    def load(self) -> None:
        """Between turns."""
        chance = self.chance
        straight, waiting = chance.random() < 0.5, chance.random() < 0.5
        store = self.pageable
        if store is None:
            return
        if store.share.cap is None or not store.share.may_page:
            if store.is_low() and store.wants_more(straight, waiting):
                before = store.in_memory
                store.load()
                assert store.in_memory > before
            return
        self.settle()
        for _ in range(len(self.here) + 1):
            if not store.is_low() or not store.wants_more(False, waiting):
                break
            before, room = store.in_memory, store.share.cap.room()
            store.load()
            brought = list(store)[before:]
            assert 1 <= len(brought) <= max(1, room[0])
            assert sum(len(one.body) for one in brought[:-1]) <= room[1]
            store.enforce_quota()
            assert store.in_memory == before + len(brought)  # else it would be loaded again, for ever
        else:
            raise AssertionError("there is no end to loading")

    def load_straight(self) -> None:
        """Consumers take some of what is paged out as if it were new."""
        if not self.kind.has_tail or self.store.in_memory or self.store.expiring or self.is_metered:
            return
        chance = self.chance
        count, octets, taken_max = chance.randint(1, 20), chance.randint(1, 2000), chance.randint(0, 20)
        here = self.here
        taken: list[Message] = []

        def hand_over(first_id: int, envelope: Envelope, contents: Sequence[bytes]) -> int:
            fitting = min(len(contents), taken_max - len(taken))
            taken.extend(Message(first_id + at, content, envelope) for at, content in enumerate(contents[:fitting]))
            return fitting

        assert self.pageable is not None
        self.pageable.load_straight(count, octets, hand_over)
        self.same(taken, here[: len(taken)])
        assert len(taken) + self.store.in_memory <= count
        self.remove(here[: len(taken)])

    def count_octets(self) -> None:
        """A limit on octets is new, or none is left."""
        if not self.kind.has_tail or self.has_spooled and (self.pager is not None or self.had_cap):
            return
        self.counts = self.chance.random() < 0.5
        assert self.pageable is not None
        store = self.store = self.owner.store = self.pageable.converted(self.owner, counts_octets=self.counts)
        assert store.counts_octets is self.counts

    # -- selection, browsing, replay ----------------------------------------------------------------------------------

    def scan(self) -> None:
        """From the head, or behind a message, be it here or gone; what is missing is read until all was seen."""
        chance = self.chance
        count = chance.randint(1, 10)
        everything = self.scanned()
        after = chance.choice([0, *[position for position, _ in everything], *self.gone])
        expected = [one for one in everything if one[0] > after]
        was_missing = False
        while expected:
            before = self.store.in_memory, len(self.store)
            found, missing = self.store.scan(after, count)
            assert len(found) == min(count, len(expected)) or missing
            assert [position for position, _ in found] == [position for position, _ in expected[: len(found)]]
            if self.kind.reads_only:
                assert [one.body for _, one in found] == [one.body for _, one in expected[: len(found)]]
            else:
                self.same([one for _, one in found], [one for _, one in expected[: len(found)]])
                assert [self.store.position_of(one) for _, one in found] == [position for position, _ in found]
            after = found[-1][0] if found else after
            assert found or missing and not was_missing
            was_missing = missing
            if missing:
                self.store.load_at(after, count)
                assert self.store.scan(after, count).found
            assert (self.store.in_memory, len(self.store)) == before
            del expected[: len(found)]
        assert self.store.scan(after, count) == ([], False)

    def take_at(self) -> None:
        """Some, wherever they are; some of them are gone."""
        if self.kind.reads_only:
            return
        positions = [self.position(message) for message in self.here]
        wanted = self.chance.choices([*positions, *self.gone, 1 << 50], k=self.chance.randint(0, 8))
        expected = [message for message in self.here if self.position(message) in wanted]
        removed = self.store.take_at(wanted)
        self.took(removed, expected, with_content=False)
        self.out |= {message.id: message for message in removed.messages}

    # -- what is there ------------------------------------------------------------------------------------------------

    def counts_are_right(self) -> None:
        """How many, and how many octets."""
        store, here = self.store, self.here
        assert len(store) == len(here)
        assert store.in_memory == len(store.ready) == len(list(store))
        assert store.has_tail == bool(store.paged_parts())
        assert store.held_octets == sum(len(message.content) + OVERHEAD for message in store)
        assert store.level_max == self.kind.level_max
        if self.counts:
            sizes = [message.envelope.framing.body_size(message.content) for message in here]
            assert self.has_spooled or store.body_octets == sum(sizes)
        if self.pager is None and not self.had_cap:
            assert not store.is_deep
            assert store.in_memory == len(here)
        if self.kind.has_tail and self.is_metered:
            self.paged_is_right()
        assert not [*counts_of(store)]
        memory = self.owner.storage.memory
        assert memory.total == sum(map(memory.charge_of, (store, *self.rivals)))

    def paged_is_right(self) -> None:
        """The owner was told of what is paged out, to the octet."""
        parts = [part for part in self.store.paged_parts() if not isinstance(part, Message)]
        ids = {id_ for part in parts for id_ in part.ids}
        owner = self.owner
        assert owner.paged == -owner.in_memory == len(ids)
        assert owner.paged_octets == sum(octets_paged(part.sizes[:], part.location) for part in parts)
        assert -owner.in_memory_octets == sum(len(one.content) for one in self.here if one.id in ids)

    def order_is_right(self) -> None:
        """What is at hand, then what is paged out, level by level."""
        here = list(self.store)
        paged: list[tuple[int, int]] = []  # level, id
        for part in self.store.paged_parts():
            if isinstance(part, Message):
                paged.append((self.level_number(part), part.id))
            else:
                paged += [(part.level, id_) for id_ in part.ids]
        if self.kind.in_order:
            assert sorted([*(one.id for one in here), *(id_ for _, id_ in paged)]) == [one.id for one in self.here]
            return
        if self.kind.reads_only:
            assert [*(id_ for _, id_ in paged), *(one.id for one in here)] == [one.id for one in self.here]
            return
        self.same(here, self.here[: len(here)])
        assert [id_ for _, id_ in paged] == [one.id for one in self.here[len(here) :]]

    def expiry_is_right(self) -> None:
        """When the next head expires."""
        heads = [level[0].expires_ns for level in self.levels if level]
        if self.kind.in_order:
            heads = [one.expires_ns for one in self.here[:1]]
        if not self.kind.reads_only:
            assert self.store.next_expiry_ns == min(filter(None, heads), default=0)
            assert self.store.expiring or not any(one.expires_ns for one in self.here)
