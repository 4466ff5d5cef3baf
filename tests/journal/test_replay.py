"""Every kind of record means the same whichever way recovery comes by it.

From its segment, from a later one, under a checkpoint that is being made, from a snapshot, after a repair, from columns
that are compacted; and cut anywhere, a turn is there or it is not. The table says what each kind means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from journal_workload import PATH, make_content, opened
from simulated_files import SimulatedFiles

from leveret.engine import TERMINAL
from leveret.engine.events import EventKind
from leveret.engine.messages.content import NATIVE
from leveret.journal import Bound, ContentReader, Declared, JournalOptions, MessageState, Recovered, recover
from leveret.journal.disk.segment import segments_in
from leveret.journal.format.heap import IS_DURABLE, IdsSeen, content_prefix
from leveret.journal.format.record import (
    CONNECTION,
    COUNTED,
    DURABLE,
    EXCHANGE,
    MOVED,
    OPERATOR_POLICY,
    PARAMETER,
    POLICY,
    QUEUE,
    USER,
    VHOST,
    Record,
)
from leveret.journal.recovery import recovered as recovered_queue
from leveret.journal.recovery.check import verify
from leveret.journal.recovery.recovered import FRESH
from leveret.journal.recovery.repair import repair

OPTIONS = JournalOptions(preallocate_size=0)
#: Cuts of what a story wrote: at each so many octets, and beside the ends.
CUT_STEP = 23


@dataclass
class Facts:
    """What is there. `queues`: name -> message id -> (body, routing key, octets of body, expiry, state)."""

    queues: dict[str, dict[int, tuple[bytes, bytes, int, int, MessageState]]] = field(default_factory=dict)
    objects: dict[tuple[int, str, str], tuple[int, str, bytes]] = field(default_factory=dict)
    bindings: list[tuple[str, str, bytes]] = field(default_factory=list)
    ids: dict[tuple[str, str], list[tuple[str, int]]] = field(default_factory=dict)
    next_message_id: int = 1

    def message(self, queue: str, id_: int, **changed: int) -> None:
        """Its state is another."""
        body, key, size, expires_ms, state = self.queues[queue][id_]
        self.queues[queue][id_] = (body, key, size, expires_ms, state._replace(**changed))

    def gone(self, queue: str, *ids: int) -> None:
        for id_ in ids:
            del self.queues[queue][id_]

    def no_queue(self, name: str) -> None:
        """With its bindings and messages."""
        del self.objects[QUEUE, "/", name], self.queues[name]
        self.bindings = [one for one in self.bindings if one[1] != name]


class Desk:
    """A journal with virtual hosts `/` and `other`, exchange `e`, and bound queues `q`, `r` and `s`.

    q has messages 1 to 6, of which 3 has a priority and 4 expires; r has 2, 3 and 6; s is of the other virtual host.
    """

    def __init__(self) -> None:
        self.files = SimulatedFiles()
        self.files.keeps_log = False
        self.journal = opened(self.files, OPTIONS)
        objects, messages = self.journal.objects, self.journal.messages
        self.lsns: dict[int, int] = {}
        self.vhost = objects.define(VHOST, 0, "/")
        self.other = objects.define(VHOST, 0, "other")
        for id_ in (self.vhost, self.other):
            objects.declared(id_, Declared(VHOST, IS_DURABLE, "", b""))
        self.exchange = self.declare(EXCHANGE, "e", kind="topic")
        self.q, self.r = self.declare(QUEUE, "q"), self.declare(QUEUE, "r")
        self.s = self.declare(QUEUE, "s", self.other)
        for queue, key in ((self.q, b"q"), (self.r, b"r"), (self.q, b"again")):
            objects.bound(self.exchange, Bound(QUEUE, queue, key, b""))
        for id_ in range(1, 7):
            targets = [self.q, self.r] if id_ in (2, 3, 6) else [self.q]
            self.publish(id_, *targets, priority=7 if id_ == 3 else 0, expires_ms=9_000_000 if id_ == 4 else 0)
        self.publish(7, self.s)
        messages.happened(EventKind.REQUEUED, self.q, [5], deliveries=1)
        objects.ids_seen(self.vhost, IdsSeen("e", 10, [("one", 1), ("two", 2)]))
        self.commit()

    def commit(self) -> None:
        assert self.journal.wait(self.journal.commit())

    def declare(self, what: int, name: str, vhost: int | None = None, *, kind: str = "", table: bytes = b"") -> int:
        """Of this virtual host if none is said; of none where it is 0."""
        id_ = self.journal.objects.define(what, self.vhost if vhost is None else vhost, name)
        self.journal.objects.declared(id_, Declared(what, IS_DURABLE, kind, table))
        return id_

    def publish(
        self, id_: int, *queues: int, priority: int = 0, expires_ms: int = 0, durable: bool = True, key: bytes = b"key"
    ) -> None:
        body = b"body %d" % id_
        lsn = self.journal.messages.published(
            [id_],
            self.exchange,
            key,
            NATIVE.columns([make_content(body)]),
            queue_ids=queues,
            expires_ms=expires_ms,
            priority=priority,
            durable=durable,
        )
        self.lsns[id_] = lsn
        for queue in queues:
            self.journal.messages.enqueued(
                queue, [id_], lsn, [len(body)], expires_ms=expires_ms, priorities=priority, durable=durable
            )

    def happened(self, kind: EventKind, id_: int, **more: Any) -> None:
        """To a message of q."""
        self.journal.messages.happened(kind, self.q, [id_], **more)


def base() -> Facts:
    """What a new desk's journal holds."""
    facts = Facts(next_message_id=8)
    facts.objects = {
        (VHOST, "/", "/"): (IS_DURABLE, "", b""),
        (VHOST, "other", "other"): (IS_DURABLE, "", b""),
        (EXCHANGE, "/", "e"): (IS_DURABLE, "topic", b""),
        (QUEUE, "/", "q"): (IS_DURABLE, "", b""),
        (QUEUE, "/", "r"): (IS_DURABLE, "", b""),
        (QUEUE, "other", "s"): (IS_DURABLE, "", b""),
    }
    facts.bindings = [("e", "q", b"q"), ("e", "r", b"r"), ("e", "q", b"again")]
    for name, ids in {"q": range(1, 7), "r": (2, 3, 6), "s": (7,)}.items():
        facts.queues[name] = {
            id_: (b"body %d" % id_, b"key", 6, 9_000_000 * (id_ == 4), MessageState(priority=7 * (id_ == 3)))
            for id_ in ids
        }
    facts.message("q", 5, deliveries=1)
    facts.ids = {("/", "e"): [("one", 1), ("two", 2)]}
    return facts


def facts_of(found: Recovered, files: SimulatedFiles, path: str = PATH) -> Facts:
    """What was recovered; contents are read."""
    names, facts = found.names, Facts(next_message_id=found.next_message_id)
    contents = ContentReader(path, files)
    for id_, declared in found.objects.items():
        key = declared.object_type, names.vhost_text(id_), names.text(id_)
        facts.objects[key] = declared.properties, declared.type, declared.arguments
        if declared.object_type == QUEUE:
            facts.queues[names.text(id_)] = {
                message.id: (
                    NATIVE.split(content.content)[1],
                    content.routing_key,
                    message.size,
                    message.expires_ms,
                    message.state,
                )
                for message, _, content in contents.messages(found.queues.get(id_, recovered_queue.RecoveredQueue()))
            }
    contents.close()
    facts.bindings = sorted(
        (names.text(source), names.text(bound.target_id), bound.routing_key) for source, bound in found.bindings
    )
    facts.ids = {(names.text(vhost), address): list(ids.newest(99)) for (vhost, address), ids in found.ids.items()}
    return facts


# -- what each kind means ----------------------------------------------------------------------------------------------

Act = Callable[[Desk], object]
Meaning = Callable[[Facts], object]
Story = tuple[list[Act], Meaning]


def _nothing(facts: Facts) -> None:
    """The record changes nothing that outlives a restart."""


def _new(*ids: int, queue: str = "q", **state: int) -> Meaning:
    def meaning(facts: Facts) -> None:
        for id_ in ids:
            facts.queues[queue][id_] = (b"body %d" % id_, b"key", len(b"body %d" % id_), 0, FRESH._replace(**state))
        facts.next_message_id = max(ids) + 1

    return meaning


def _next(id_: int) -> Meaning:
    return lambda facts: setattr(facts, "next_message_id", id_)


def _states(id_: int, **state: int) -> Meaning:
    return lambda facts: facts.message("q", id_, **state)


def _gone(queue: str, *ids: int) -> Meaning:
    return lambda facts: facts.gone(queue, *ids)


def _object(what: int, vhost: str, name: str, kind: str = "", table: bytes = b"") -> Meaning:
    def meaning(facts: Facts) -> None:
        facts.objects[what, vhost, name] = (IS_DURABLE, kind, table)
        if what == QUEUE:
            facts.queues[name] = {}

    return meaning


def _no(what: int, vhost: str, name: str) -> Meaning:
    return lambda facts: facts.objects.pop((what, vhost, name))


def _no_vhost(facts: Facts) -> None:
    for what, vhost, name in list(facts.objects):
        if vhost == "/":
            del facts.objects[what, vhost, name]
    facts.queues = {"s": facts.queues["s"]}
    facts.bindings, facts.ids = [], {}


def _no_exchange(facts: Facts) -> None:
    del facts.objects[EXCHANGE, "/", "e"]
    facts.bindings = []


def _declared_again(facts: Facts) -> None:
    facts.no_queue("q")
    facts.objects[QUEUE, "/", "q"] = (IS_DURABLE, "", b"")
    facts.queues["q"] = {}
    _new(9)(facts)


def _undeclare(what: int, id_of: Callable[[Desk], int]) -> Act:
    return lambda desk: desk.journal.objects.undeclared(id_of(desk), what)


def _declare_anew(desk: Desk) -> None:
    desk.q = desk.declare(QUEUE, "q")
    desk.publish(9, desk.q)


def _empty_first_segment(desk: Desk) -> None:
    """What is alive in it is moved forward."""
    desk.journal.begin_segment()
    assert desk.journal.wait(desk.journal.next_lsn)
    held = {id_: [desk.q, *([desk.r] if id_ in (2, 3, 6) else [])] for id_ in range(1, 7)} | {7: [desk.s]}
    for _ in desk.journal.old_segments.move_forward(1, held.__getitem__, desk.lsns.__setitem__):
        pass


def _operators(what: int, vhost: str) -> dict[str, Story]:
    def id_of(desk: Desk) -> int:
        return desk.journal.objects.define(what, desk.vhost if vhost else 0, "mine")

    def declare(table: bytes) -> Act:
        return lambda desk: desk.declare(what, "mine", None if vhost else 0, table=table)

    return {
        f"object {what}": ([declare(b"{}")], _object(what, vhost, "mine", table=b"{}")),
        f"object {what} changed": ([declare(b"{}"), declare(b"[]")], _object(what, vhost, "mine", table=b"[]")),
        f"object {what} gone": ([declare(b"{}"), _undeclare(what, id_of)], _nothing),
    }


def _terminal(kind: EventKind) -> dict[str, Story]:
    def range_of(ids: list[int] | range, **more: Any) -> Act:
        return lambda desk: desk.journal.messages.settled_range(kind, desk.r if 6 in ids else desk.q, ids, **more)

    word = kind.value
    stories: dict[str, Story] = {
        word: ([lambda desk: desk.happened(kind, 2)], _gone("q", 2)),
        f"{word}, a range": ([range_of(range(2, 5))], _gone("q", 2, 3, 4)),
        f"{word}, a range with holes": ([range_of([2, 3, 6])], _gone("r", 2, 3, 6)),
    }
    if kind is EventKind.ACKED:
        stories |= {
            "for a reason of its own": ([lambda desk: desk.happened(kind, 2, reason="none knows")], _gone("q", 2)),
            "gone, of transient messages": (
                [lambda desk: desk.happened(kind, 2, durable=False), range_of(range(3, 5), durable=False)],
                _nothing,
            ),
            "acked, and kept": ([lambda desk: desk.happened(kind, 2, kept=True)], _nothing),
        }
    return stories


REQUEUED, SCHEDULED, DUE, DELIVERED = EventKind.REQUEUED, EventKind.SCHEDULED, EventKind.DUE, EventKind.DELIVERED
STORIES: dict[str, Story] = {
    "published and enqueued": (
        [lambda desk: desk.publish(8, desk.q), lambda desk: desk.publish(12, desk.q)],
        _new(8, 12),
    ),
    "enqueued with a priority": ([lambda desk: desk.publish(8, desk.q, priority=3)], _new(8, priority=3)),
    "published alone": ([lambda desk: desk.publish(20)], _next(21)),
    "transient": ([lambda desk: desk.publish(20, desk.q, durable=False)], _next(21)),
    "enqueued late": ([lambda desk: desk.publish(20, desk.q), lambda desk: desk.publish(9, desk.q)], _new(9, 20)),
    "requeued": (
        [lambda desk: desk.happened(REQUEUED, 2, deliveries=3, uncounted=1)],
        _states(2, deliveries=3, uncounted=1),
    ),
    "requeued to wait": (
        [lambda desk: desk.happened(REQUEUED, 3, deliveries=1, due_ms=99_000)],
        _states(3, deliveries=1, due_ms=99_000),
    ),
    "requeued, and that counts for nothing": ([lambda desk: desk.happened(REQUEUED, 2, durable=False)], _nothing),
    "requeued at once after it waited": (
        [
            lambda desk: desk.happened(REQUEUED, 2, deliveries=1, due_ms=99_000),
            lambda desk: desk.happened(REQUEUED, 2, deliveries=2),
        ],
        _states(2, deliveries=2),
    ),
    "scheduled": ([lambda desk: desk.happened(SCHEDULED, 2, due_ms=99_000)], _states(2, due_ms=99_000)),
    "scheduled with what was counted": (
        [lambda desk: desk.happened(SCHEDULED, 5, due_ms=99_000)],
        _states(5, due_ms=99_000),
    ),
    "scheduled with a count": (
        [lambda desk: desk.happened(SCHEDULED, 5, due_ms=99_000, deliveries=4, uncounted=2)],
        _states(5, due_ms=99_000, deliveries=4, uncounted=2),
    ),
    "due": (
        [lambda desk: desk.happened(SCHEDULED, 5, due_ms=99_000), lambda desk: desk.happened(DUE, 5)],
        _nothing,
    ),
    "due, of a transient one": (
        [lambda desk: desk.happened(SCHEDULED, 5, due_ms=9), lambda desk: desk.happened(DUE, 5, durable=False)],
        _states(5, due_ms=9),
    ),
    "delivered": ([lambda desk: desk.happened(DELIVERED, 2, deliveries=1, durable=False)], _nothing),
    "delivered and counted": (
        [lambda desk: desk.happened(DELIVERED, 5, deliveries=2, uncounted=1, flags=COUNTED)],
        _states(5, deliveries=2, uncounted=1),
    ),
    "what happens to one that is gone": (
        [lambda desk: desk.happened(EventKind.ACKED, 2), lambda desk: desk.happened(REQUEUED, 2, deliveries=1)],
        _gone("q", 2),
    ),
    "moved": ([_empty_first_segment], _nothing),
    "a virtual host": ([lambda desk: desk.declare(VHOST, "third", 0)], _object(VHOST, "third", "third")),
    "a virtual host is gone": ([_undeclare(VHOST, lambda desk: desk.vhost)], _no_vhost),
    "an exchange": ([lambda desk: desk.declare(EXCHANGE, "f", kind="fanout")], _object(EXCHANGE, "/", "f", "fanout")),
    "an exchange is gone": ([_undeclare(EXCHANGE, lambda desk: desk.exchange)], _no_exchange),
    "a queue": ([lambda desk: desk.declare(QUEUE, "t")], _object(QUEUE, "/", "t")),
    "a queue, stated again": (
        [lambda desk: desk.declare(QUEUE, "s", desk.other, table=b"\0\0\0\0")],
        lambda facts: facts.objects.update({(QUEUE, "other", "s"): (IS_DURABLE, "", b"\0\0\0\0")}),
    ),
    "a queue is gone": ([_undeclare(QUEUE, lambda desk: desk.q)], lambda facts: facts.no_queue("q")),
    "a queue is declared again": ([_undeclare(QUEUE, lambda desk: desk.q), _declare_anew], _declared_again),
    "bound": (
        [lambda desk: desk.journal.objects.bound(desk.exchange, Bound(QUEUE, desk.r, b"#", b""))],
        lambda facts: facts.bindings.append(("e", "r", b"#")),
    ),
    "bound for now": (
        [lambda desk: desk.journal.objects.bound(desk.exchange, Bound(QUEUE, desk.r, b"#", b""), durable=False)],
        _nothing,
    ),
    "unbound": (
        [lambda desk: desk.journal.objects.unbound(desk.exchange, Bound(QUEUE, desk.q, b"q", b""))],
        lambda facts: facts.bindings.remove(("e", "q", b"q")),
    ),
    "duplicate ids": (
        [
            lambda desk: desk.journal.objects.ids_seen(desk.vhost, IdsSeen("e", 10, [("three", 3), ("one", 4)])),
            lambda desk: desk.journal.objects.ids_seen(desk.vhost, IdsSeen("e", 10, [("one", 2)]), restated=True),
        ],
        lambda facts: facts.ids.update({("/", "e"): [("two", 2), ("three", 3), ("one", 4)]}),
    ),
    "a client": ([lambda desk: desk.journal.objects.define_another(CONNECTION, desk.vhost, "c")], _nothing),
    **{name: story for kind in sorted(TERMINAL, key=lambda one: one.value) for name, story in _terminal(kind).items()},
    **{name: story for what in (USER, PARAMETER) for name, story in _operators(what, "").items()},
    **{name: story for what in (POLICY, OPERATOR_POLICY) for name, story in _operators(what, "/").items()},
}


# -- the ways ----------------------------------------------------------------------------------------------------------


def turns(desk: Desk, acts: list[Act]) -> None:
    for act in acts:
        act(desk)
        desk.commit()


def state_all(desk: Desk, *, begins: bool = True, ends: bool = True) -> None:
    """As a checkpoint does, which states what is there now."""
    found = recover(desk.files.crash(), PATH)
    journal = desk.journal
    if begins:
        journal.checkpoints.begin()
    for id_, declared in found.objects.items():
        journal.objects.declared(id_, declared, restated=True)
    for source_id, bound in found.bindings:
        journal.objects.bound(source_id, bound, restated=True)
    for id_, queue in found.queues.items():
        for _ in journal.checkpoints.snapshot(id_, queue.messages()):
            desk.commit()
    for (vhost_id, address), ids in found.ids.items():
        journal.objects.ids_seen(vhost_id, IdsSeen(address, 10, list(ids.newest(99))), restated=True)
    if ends:
        journal.checkpoints.end()
    desk.commit()


def _as_it_is(desk: Desk, acts: list[Act]) -> None:
    turns(desk, acts)


def _in_one_turn(desk: Desk, acts: list[Act]) -> None:
    for act in acts:
        act(desk)
    desk.commit()


def _a_segment_each(desk: Desk, acts: list[Act]) -> None:
    for act in acts:
        desk.journal.begin_segment()
        turns(desk, [act])
    desk.journal.begin_segment()
    desk.commit()


def _behind_a_checkpoint(desk: Desk, acts: list[Act]) -> None:
    desk.journal.begin_segment()
    state_all(desk)
    turns(desk, acts)


def _before_a_checkpoint(desk: Desk, acts: list[Act]) -> None:
    turns(desk, acts)
    desk.journal.begin_segment()
    state_all(desk)


def _before_a_checkpoint_in_its_segment(desk: Desk, acts: list[Act]) -> None:
    turns(desk, acts)
    state_all(desk)


def _while_it_is_stated(desk: Desk, acts: list[Act]) -> None:
    """What it did after it was stated; and the checkpoint's end."""
    desk.journal.begin_segment()
    state_all(desk, ends=False)
    turns(desk, acts)
    desk.journal.checkpoints.end()
    desk.commit()


def _before_it_is_stated(desk: Desk, acts: list[Act]) -> None:
    """The checkpoint has begun, and states what is there then."""
    desk.journal.begin_segment()
    desk.journal.checkpoints.begin()
    turns(desk, acts)
    state_all(desk, begins=False)


def _a_checkpoint_without_end(desk: Desk, acts: list[Act]) -> None:
    turns(desk, acts)
    state_all(desk, ends=False)


def _two_checkpoints(desk: Desk, acts: list[Act]) -> None:
    for act in acts:
        state_all(desk)
        turns(desk, [act])
        desk.journal.begin_segment()
    state_all(desk)


WAYS = {
    one.__name__.strip("_"): one
    for one in (
        _as_it_is,
        _in_one_turn,
        _a_segment_each,
        _behind_a_checkpoint,
        _before_a_checkpoint,
        _before_a_checkpoint_in_its_segment,
        _while_it_is_stated,
        _before_it_is_stated,
        _a_checkpoint_without_end,
        _two_checkpoints,
    )
}


def expected_of(story: str) -> Facts:
    facts = base()
    STORIES[story][1](facts)
    facts.bindings.sort()
    return facts


@pytest.mark.parametrize("way", WAYS)
def test_a_kind_means_the_same(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """After a power cut, a clean end and a repair; also where columns are compacted with each message that leaves."""
    for name, (acts, _) in STORIES.items():
        if name == "moved" and way == "in_one_turn":  # a segment begins between turns
            continue
        desk, expected = Desk(), expected_of(name)
        WAYS[way](desk, acts)
        for compact_min in (0, 4096):
            monkeypatch.setattr(recovered_queue, "COMPACT_MIN", compact_min)
            disk = desk.files.power_cut()
            assert facts_of(recover(disk, PATH), disk) == expected, name
        assert not verify(PATH, disk).faults, name
        repair(PATH, "out", disk)
        assert facts_of(recover(disk, "out"), disk, "out") == expected, name
        desk.journal.contents.close()
        desk.journal.close()
        assert facts_of(recover(desk.files, PATH), desk.files) == expected, name


def cuts(before: int, after: int) -> Iterator[int]:
    yield from range(before + 1, after, CUT_STEP)
    yield from (after - 1, after)


def test_a_turn_that_is_cut_is_there_or_is_not() -> None:
    """Wherever the file ends: nothing of the last turn, until all of it is there."""
    for name, (acts, _) in STORIES.items():
        desk = Desk()
        seen = [facts_of(recover(desk.files, PATH), desk.files)]
        for act in acts:
            base_lsn = segments_in(desk.files, PATH)[-1]
            path = f"{PATH}/{base_lsn:020d}.log"
            before = len(desk.files.content(path))
            turns(desk, [act])
            seen.append(facts_of(recover(desk.files, PATH), desk.files))
            if segments_in(desk.files, PATH)[-1] != base_lsn:
                continue
            data = desk.files.content(path)
            for size in cuts(before, len(data)):
                disk = desk.files.crash()
                disk.put(path, data[:size])
                found = recover(disk, PATH)
                assert facts_of(found, disk) == seen[-1 if size == len(data) else -2], (name, size)
                assert found.torn_bytes == (size - before if size < len(data) else 0)
        assert seen[-1] == expected_of(name), name


def test_most_of_the_table_changes_something() -> None:
    """A journal that forgets the story does not fulfil it."""
    assert sum(expected_of(name) != base() for name in STORIES) > len(STORIES) * 2 / 3


def test_a_queue_of_a_deleted_virtual_host_that_is_stated_again_is_not_there() -> None:
    """A checkpoint does that between the deletion of the virtual host and that of the queue."""
    desk = Desk()
    desk.journal.objects.undeclared(desk.other, VHOST, forgets=False)
    desk.journal.objects.declared(desk.s, Declared(QUEUE, IS_DURABLE, "", b""), restated=True)
    desk.commit()
    found = recover(desk.files, PATH)
    assert desk.s not in found.objects and desk.q in found.objects


def test_a_moved_message_without_another_record_keeps_its_priority() -> None:
    """A repair may have lost the record that put it into its queue."""
    desk = Desk()
    heap = content_prefix(b"key", (desk.q,), 0, 0) + make_content(b"x")
    desk.journal.turns.append(Record(MOVED, msg_id=50, flags=DURABLE, priority=7, address_id=desk.exchange, heap=heap))
    desk.commit()
    (last,) = [one for one in recover(desk.files, PATH).queues[desk.q].messages() if one.id == 50]
    assert last.state.priority == 7
