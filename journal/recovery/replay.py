"""Replay: rebuilds the broker's topology, and the messages of each queue with their states, from records.

It is one forward pass. Every record states what is true after it, so a message that is in a snapshot and in the records
around it is recovered once, with its last state. A queue is made of columns (`RecoveredQueue`); contents stay on the
disk, and messages refer to them by LSN.
Source: Spark page 4; queues page C.5; rulings 21, 22; address-settings page 5.7 (delivery counts).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from ..disk.segment import SegmentSummary
from ..format.block import IS_GAP, IS_HEAD, Block
from ..format.errors import BadRecord
from ..format.heap import (
    IS_DURABLE,
    Bound,
    Declared,
    Define,
    decode_bound,
    decode_content,
    decode_declared,
    decode_define,
    decode_head,
    decode_ids_seen,
    decode_link,
)
from ..format.names import Names
from ..format.record import (
    BOUND,
    CHECKPOINT,
    COUNTED,
    DECLARED,
    DEFINE,
    DELIVERED,
    DUE,
    DURABLE,
    ENQUEUED,
    EXCHANGE,
    HEAD,
    IDS_SEEN,
    KEPT,
    KIND_NAMES,
    MOVED,
    OPERATORS,
    PUBLISHED,
    QUEUE,
    RANGE,
    REQUEUED,
    SCHEDULED,
    SNAPSHOT,
    TERMINAL_CODES,
    TRANSFERRED,
    UNBOUND,
    UNDECLARED,
    VHOST,
    Fields,
)
from .recovered import FRESH, RecoveredIds, RecoveredQueue
from .snapshot import load_part, moved_back

#: Kinds of objects whose names have one id each.
HAVE_ONE_ID = (VHOST, EXCHANGE, QUEUE, *OPERATORS)
#: Kinds that define, retire or move ids; before the begin of the checkpoint only these are applied.
OF_NAMES = frozenset({DEFINE, HEAD, UNDECLARED, MOVED})


@dataclass(slots=True)
class Recovered:
    """The broker's durable state, as the journal states it."""

    journal_id: bytes = bytes(16)
    names: Names = field(default_factory=Names)
    #: id -> its declaration, in the order of declaring. The name and virtual host are in `names`.
    objects: dict[int, Declared] = field(default_factory=dict)
    #: (source exchange id, binding), in the order of binding.
    bindings: dict[tuple[int, Bound], None] = field(default_factory=dict)
    #: queue id -> its messages; a durable queue without messages may be absent.
    queues: dict[int, RecoveredQueue] = field(default_factory=dict)
    #: (virtual host id, address) -> the duplicate ids that it remembers.
    ids: dict[tuple[int, str], RecoveredIds] = field(default_factory=dict)
    next_message_id: int = 1
    next_lsn: int = 1
    #: the highest LSN below which a block calls the records durable.
    durable_lsn: int = 1
    checkpoint_begin: int = 0
    checkpoint_end: int = 0
    segments: list[SegmentSummary] = field(default_factory=list)
    #: octets of the torn tail of the newest segment: a write that a crash interrupted.
    torn_bytes: int = 0
    #: whether times of a clock that ran ahead were moved back, here and not in the journal.
    is_moved: bool = False


class Replay:
    """Applies records to a `Recovered`. `now_us`: wall time; later records were written by a clock that ran ahead."""

    def __init__(self, found: Recovered, begin: int, salvages: bool, now_us: int) -> None:
        self.found = found
        self._now_us = now_us
        self.salvages = salvages  # there is no whole checkpoint: `moved` may be the only record of a message
        self.begin = begin
        self.gaps: list[tuple[int, int]] = []
        self._dropped: set[int] = set()  # queues and exchanges that were deleted with their virtual host
        self._nowhere = RecoveredQueue()  # takes messages of dropped queues
        self._namesakes: dict[Define, set[int]] = {}  # ids of a name that has several
        self._handlers: dict[int, Callable[[Fields, int, Block], None]] = {
            DEFINE: self._define,
            HEAD: self._head,
            PUBLISHED: self._published,
            DELIVERED: self._delivered,
            REQUEUED: self._requeued,
            SCHEDULED: self._scheduled,
            DUE: self._due,
            MOVED: self._moved,
            DECLARED: self._declared,
            UNDECLARED: self._undeclared,
            BOUND: self._bound,
            UNBOUND: self._unbound,
            SNAPSHOT: self._snapshot,
            CHECKPOINT: self._checkpoint,
            IDS_SEEN: self._ids_seen,
            TRANSFERRED: self._transferred,
        }

    def block(self, block: Block) -> None:
        """Apply the records of a block. Those before the checkpoint's begin only define and retire names."""
        lsn, begin, handlers = block.header.base_lsn, self.begin, self._handlers
        queues, queue_of = self.found.queues, self._queue
        for fields in block.fields():
            kind = fields[4]
            if lsn < begin:
                if kind in OF_NAMES:
                    handlers[kind](fields, lsn, block)
            elif kind == ENQUEUED:
                if fields[5] & DURABLE:
                    link = fields[16]
                    at = lsn - link if link else decode_link(block.heap_of(fields))
                    expires_ms = fields[2] and self._by_now(fields, fields[2])
                    queue = queue_of(fields[9])
                    queue.add(fields[1], at, fields[14], expires_ms, fields[6])
                    if fields[13]:
                        queue.note_owner(fields[1], fields[13])
            elif kind in TERMINAL_CODES:
                settled = queues.get(fields[9])
                if settled is not None and fields[5] & (DURABLE | KEPT) == DURABLE:
                    if fields[5] & RANGE:
                        settled.remove_range(fields[1], fields[2])
                    else:
                        settled.remove(fields[1])
            else:
                handler = handlers.get(kind)
                if handler is not None:
                    handler(fields, lsn, block)
                elif fields[5] & DURABLE and kind not in KIND_NAMES:
                    raise BadRecord(f"a record of kind {kind}, which this program does not know: start a newer one")
            lsn += 1
        if block.header.flags & IS_HEAD and self.gaps:
            self._drop_unnamed()

    def _ahead_ms(self, fields: Fields) -> int:
        """Milliseconds by which the clock that wrote the record was ahead of now."""
        return max(0, fields[0] - self._now_us) // 1000

    def _by_now(self, fields: Fields, wall_ms: int) -> int:
        """A wall time of a record (0: none), moved back if the record is from the future, by as much."""
        ahead_ms = self._ahead_ms(fields)
        if not (wall_ms and ahead_ms):
            return wall_ms
        self.found.is_moved = True
        return moved_back(wall_ms, ahead_ms)

    def _drop_unnamed(self) -> None:
        """Drop objects that the segment's head does not name: they were undeclared in records that are lost."""
        found = self.found
        for id_ in [id_ for id_ in {**found.objects, **found.queues} if id_ not in found.names]:
            self._drop(id_, 0)

    def settle_names(self) -> None:
        """Give a name with several ids to the last declared one, and drop the others."""
        found, names = self.found, self.found.names
        if not self._namesakes:
            return
        alive: dict[Define, list[int]] = {}
        for id_ in names.ids_of(*HAVE_ONE_ID):
            if not names.is_retired(id_):
                alive.setdefault(names[id_], []).append(id_)
        for define, ids in alive.items():
            *others, last = sorted(ids, key=lambda id_: (id_ in found.objects, id_))
            for other in others:
                self._drop(other, found.next_lsn)
            names.set(last, define)

    def drop_lost(self) -> None:
        """Drop messages whose content is in a gap. A queue or exchange whose name is lost gets a new name."""
        found = self.found
        for id_, declared in list(found.objects.items()) if self.gaps else ():
            if id_ not in found.names and declared.what in OPERATORS:
                del found.objects[id_]  # users and policies must not get another name
            elif id_ not in found.names:
                vhosts = [other for other, object_ in found.objects.items() if object_.what == VHOST]
                found.names.set(id_, Define(declared.what, vhosts[0] if vhosts else 0, f"recovered.{id_}"))
        for queue in self.found.queues.values() if self.gaps else ():
            for message in list(queue.messages()):
                if any(first <= message.content_lsn < behind for first, behind in self.gaps):
                    queue.remove(message.id)

    def _queue(self, id_: int) -> RecoveredQueue:
        found = self.found.queues.get(id_)
        if found is None:
            found = self._nowhere if id_ in self._dropped else self.found.queues.setdefault(id_, RecoveredQueue())
        return found

    def _define(self, fields: Fields, lsn: int, block: Block) -> None:
        id_, define, names = fields[2], decode_define(block.heap_of(fields)), self.found.names
        other = None if fields[1] or define.what not in HAVE_ONE_ID else names.id_of(*define)
        if other is not None and other != id_:
            if block.header.flags & (IS_HEAD | IS_GAP):  # from a version that did not retire names, or a repair
                self._namesakes.setdefault(define, set()).update((other, id_))
            else:
                self._drop(other, lsn)  # no record says that it is gone
        names.set(id_, define, fields[1])

    def _head(self, fields: Fields, lsn: int, block: Block) -> None:
        self.found.journal_id = decode_head(block.heap_of(fields)).journal_id
        if not block.header.flags & IS_GAP:
            self.found.names.clear()  # names that were forgotten without a record are not among the following
        self.found.names.next_id = max(self.found.names.next_id, fields[2])
        self.found.next_message_id = max(self.found.next_message_id, fields[1])

    def _published(self, fields: Fields, lsn: int, block: Block) -> None:
        self.found.next_message_id = max(self.found.next_message_id, fields[1] + 1)

    def _delivered(self, fields: Fields, lsn: int, block: Block) -> None:
        if fields[5] & COUNTED and (queue := self.found.queues.get(fields[9])) is not None:
            state = queue.states.get(fields[1], FRESH)
            queue.change(fields[1], state._replace(deliveries=fields[12], uncounted=fields[16], due_ms=0))

    def _requeued(self, fields: Fields, lsn: int, block: Block) -> None:
        queue = self.found.queues.get(fields[9])
        if queue is not None and fields[5] & DURABLE:
            state = queue.states.get(fields[1], FRESH)
            due_ms = self._by_now(fields, fields[2])
            queue.change(fields[1], state._replace(deliveries=fields[12], uncounted=fields[16], due_ms=due_ms))

    def _scheduled(self, fields: Fields, lsn: int, block: Block) -> None:
        queue = self.found.queues.get(fields[9])
        if queue is not None and fields[5] & DURABLE:
            state = queue.states.get(fields[1], FRESH)
            counts = {"deliveries": fields[12], "uncounted": fields[16]} if fields[12] else {}
            queue.change(fields[1], state._replace(due_ms=self._by_now(fields, fields[2]), **counts))

    def _due(self, fields: Fields, lsn: int, block: Block) -> None:
        queue = self.found.queues.get(fields[9]) if fields[5] & DURABLE else None
        if queue is not None and (state := queue.states.get(fields[1])) is not None:
            queue.change(fields[1], state._replace(due_ms=0))

    def _moved(self, fields: Fields, lsn: int, block: Block) -> None:
        if self.found.names.is_retired(fields[8]):
            self.found.names.retire(fields[8], lsn + 1)
        if lsn < self.begin:
            return
        content = decode_content(block.heap_of(fields))
        for queue_id in content.queue_ids:
            queue = self._queue(queue_id)
            if not queue.move(fields[1], lsn) and self.salvages:
                queue.add(fields[1], lsn, fields[14], self._by_now(fields, content.expires_ms))

    def _declared(self, fields: Fields, lsn: int, block: Block) -> None:
        declared = decode_declared(block.heap_of(fields))
        if declared.properties & IS_DURABLE:
            self.found.objects[fields[9] or fields[8] or fields[2]] = declared

    def _undeclared(self, fields: Fields, lsn: int, block: Block) -> None:
        found, id_ = self.found, fields[9] or fields[8] or fields[2]
        what = decode_declared(block.heap_of(fields)).what
        if what == VHOST:  # with all its objects
            for inner in [inner for inner in found.names.ids_of(EXCHANGE, QUEUE) if self._is_in(inner, id_)]:
                self._drop(inner, lsn)
                self._dropped.add(inner)
        if id_ in found.names:
            for other in self._namesakes.get(found.names[id_], ()):
                if other in found.objects:
                    self._drop(other, lsn)
        self._drop(id_, lsn)

    def _is_in(self, id_: int, vhost_id: int) -> bool:
        return self.found.names[id_].vhost_id == vhost_id

    def _drop(self, id_: int, lsn: int) -> None:
        """Remove an object. `lsn`: of the record that says so; messages before it may refer to the name."""
        found = self.found
        found.objects.pop(id_, None)
        found.queues.pop(id_, None)
        if found.ids and id_ in found.names and found.names[id_].what == VHOST:
            for place in [place for place in found.ids if place[0] == id_]:
                del found.ids[place]
        found.names.retire(id_, lsn)
        for source_id, bound in [key for key in found.bindings if id_ in (key[0], key[1].target_id)]:
            del found.bindings[source_id, bound]

    def _bound(self, fields: Fields, lsn: int, block: Block) -> None:
        if fields[5] & DURABLE:
            self.found.bindings[fields[8], decode_bound(block.heap_of(fields))] = None

    def _unbound(self, fields: Fields, lsn: int, block: Block) -> None:
        self.found.bindings.pop((fields[8], decode_bound(block.heap_of(fields))), None)

    def _snapshot(self, fields: Fields, lsn: int, block: Block) -> None:
        ahead_ms = self._ahead_ms(fields)
        self.found.is_moved |= ahead_ms > 0
        load_part(block.heap_of(fields), self._queue(fields[9]), ahead_ms)

    def _transferred(self, fields: Fields, lsn: int, block: Block) -> None:
        if (queue := self.found.queues.get(fields[9])) is not None:
            queue.transferred[fields[1]] = fields[16]

    def _checkpoint(self, fields: Fields, lsn: int, block: Block) -> None:
        self.found.next_message_id = max(self.found.next_message_id, fields[1])

    def _ids_seen(self, fields: Fields, lsn: int, block: Block) -> None:
        seen = decode_ids_seen(block.heap_of(fields))
        place = fields[2], seen.address
        recovered = self.found.ids.get(place)
        if recovered is None:
            recovered = self.found.ids[place] = RecoveredIds()
        recovered.add(seen)
