"""Replay: rebuilds the broker's topology, and the messages of each queue with their states, from records.

It is one forward pass. Every record states what is true after it, so a message that is in a snapshot and in the records
around it is recovered once, with its last state. A queue is made of columns (`RecoveredQueue`); contents stay on disk,
and messages refer to them by LSN.
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
    ADDRESS_ID,
    ARG,
    ATTEMPT,
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
    FLAGS,
    HEAD,
    IDS_SEEN,
    KEPT,
    KIND,
    KIND_NAMES,
    LINK,
    MOVED,
    MSG_ID,
    OPERATOR_OBJECTS,
    OWNER,
    PRIORITY,
    PUBLISHED,
    QUEUE,
    QUEUE_ID,
    RANGE,
    REQUEUED,
    SCHEDULED,
    SIZE,
    SNAPSHOT,
    TERMINAL_CODES,
    TRANSFERRED,
    TS_US,
    UNBOUND,
    UNDECLARED,
    VHOST,
    Fields,
)
from .recovered import FRESH, RecoveredIds, RecoveredQueue
from .snapshot import load_part, moved_back

#: Kinds of objects whose names have only one id each.
HAVE_ONE_ID = (VHOST, EXCHANGE, QUEUE, *OPERATOR_OBJECTS)
#: Kinds of records that define, retire or move ids. Before the checkpoint only these are applied.
NAME_KINDS = frozenset({DEFINE, HEAD, UNDECLARED, MOVED})


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
    uncovered_bytes: int = 0  # after the checkpoint
    segments: list[SegmentSummary] = field(default_factory=list)
    #: octets of the torn tail of the newest segment: a write that a crash interrupted.
    torn_bytes: int = 0
    #: whether recorded times of a clock that ran ahead were moved back; the journal still has the old ones.
    has_moved_times: bool = False


class Replay:
    """Applies records to a `Recovered`.

    `begin`: LSN at which the last whole checkpoint begins; 0: there is none. `now_us`: wall time; records with a later
    time were written by a clock that ran ahead. `gaps`: lost records, as (first LSN, LSN after the last).
    """

    def __init__(self, found: Recovered, begin: int, now_us: int) -> None:
        self.found = found
        self._now_us = now_us
        self.begin = begin
        self.gaps: list[tuple[int, int]] = []
        self._dropped: set[int] = set()  # queues and exchanges that were deleted with their virtual host
        self._discarded = RecoveredQueue()  # takes messages of dropped queues
        self._namesakes: dict[Define, set[int]] = {}  # the ids of a name that has several
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
        """Apply the records of a block; of those before the checkpoint only the ones that concern names."""
        lsn, begin, handlers = block.header.base_lsn, self.begin, self._handlers
        if lsn >= self.found.checkpoint_end:
            self.found.uncovered_bytes += block.header.size
        queues, queue_of = self.found.queues, self._queue
        for fields in block.fields():
            kind = fields[KIND]
            if lsn < begin:
                if kind in NAME_KINDS:
                    handlers[kind](fields, lsn, block)
            elif kind == ENQUEUED:
                if fields[FLAGS] & DURABLE:
                    link = fields[LINK]
                    content_lsn = lsn - link if link else decode_link(block.heap_of(fields))
                    expires_ms = fields[ARG] and self._corrected_ms(fields, fields[ARG])
                    queue = queue_of(fields[QUEUE_ID])
                    queue.add(fields[MSG_ID], content_lsn, fields[SIZE], expires_ms, fields[PRIORITY])
                    if fields[OWNER]:
                        queue.note_owner(fields[MSG_ID], fields[OWNER])
            elif kind in TERMINAL_CODES:
                recovered = queues.get(fields[QUEUE_ID])
                if recovered is not None and fields[FLAGS] & (DURABLE | KEPT) == DURABLE:
                    if fields[FLAGS] & RANGE:
                        recovered.remove_range(fields[MSG_ID], fields[ARG])
                    else:
                        recovered.remove(fields[MSG_ID])
            else:
                handler = handlers.get(kind)
                if handler is not None:
                    handler(fields, lsn, block)
                elif fields[FLAGS] & DURABLE and kind not in KIND_NAMES:
                    raise BadRecord(f"a record of kind {kind}, which this program does not know: start a newer one")
            lsn += 1
        if block.header.flags & IS_HEAD and self.gaps:
            self._drop_unnamed()

    def _ahead_ms(self, fields: Fields) -> int:
        """Milliseconds by which the clock that wrote the record was ahead of now."""
        return max(0, fields[TS_US] - self._now_us) // 1000

    def _corrected_ms(self, fields: Fields, wall_ms: int) -> int:
        """A wall time of a record (0: none). If the clock that wrote it ran ahead, it is moved back by as much."""
        ahead_ms = self._ahead_ms(fields)
        if not (wall_ms and ahead_ms):
            return wall_ms
        self.found.has_moved_times = True
        return moved_back(wall_ms, ahead_ms)

    def _drop_unnamed(self) -> None:
        """Drop objects that the segment's head does not name: records that undeclared them are lost."""
        found = self.found
        for id_ in [id_ for id_ in {**found.objects, **found.queues} if id_ not in found.names]:
            self._drop(id_, 0)

    def resolve_names(self) -> None:
        """Where a name has several ids, keep the one that was declared last, and drop the others."""
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
        """Drop messages whose content is in a gap. Of objects whose names are lost, drop users, policies and the like;
        others get new names.
        """
        found = self.found
        for id_, declared in list(found.objects.items()) if self.gaps else ():
            if id_ not in found.names and declared.object_type in OPERATOR_OBJECTS:
                del found.objects[id_]  # users and policies must not get another name
            elif id_ not in found.names:
                vhosts = [other for other, object_ in found.objects.items() if object_.object_type == VHOST]
                found.names.set(id_, Define(declared.object_type, vhosts[0] if vhosts else 0, f"recovered.{id_}"))
        for queue in self.found.queues.values() if self.gaps else ():
            for message in list(queue.messages()):
                if any(first <= message.content_lsn < behind for first, behind in self.gaps):
                    queue.remove(message.id)

    def _queue(self, id_: int) -> RecoveredQueue:
        found = self.found.queues.get(id_)
        if found is None:
            found = self._discarded if id_ in self._dropped else self.found.queues.setdefault(id_, RecoveredQueue())
        return found

    def _define(self, fields: Fields, lsn: int, block: Block) -> None:
        id_, define, names = fields[ARG], decode_define(block.heap_of(fields)), self.found.names
        other = None if fields[MSG_ID] or define.object_type not in HAVE_ONE_ID else names.id_of(*define)
        if other is not None and other != id_:
            if block.header.flags & (IS_HEAD | IS_GAP):  # from a version that did not retire names, or a repair
                self._namesakes.setdefault(define, set()).update((other, id_))
            else:
                self._drop(other, lsn)  # it was undeclared without a record
        names.set(id_, define, fields[MSG_ID])

    def _head(self, fields: Fields, lsn: int, block: Block) -> None:
        self.found.journal_id = decode_head(block.heap_of(fields)).journal_id
        if not block.header.flags & IS_GAP:
            self.found.names.clear()  # the head is followed by all names that are still known
        self.found.names.next_id = max(self.found.names.next_id, fields[ARG])
        self.found.next_message_id = max(self.found.next_message_id, fields[MSG_ID])

    def _published(self, fields: Fields, lsn: int, block: Block) -> None:
        self.found.next_message_id = max(self.found.next_message_id, fields[MSG_ID] + 1)

    def _delivered(self, fields: Fields, lsn: int, block: Block) -> None:
        if fields[FLAGS] & COUNTED and (queue := self.found.queues.get(fields[QUEUE_ID])) is not None:
            state = queue.states.get(fields[MSG_ID], FRESH)
            queue.set_state(
                fields[MSG_ID], state._replace(deliveries=fields[ATTEMPT], uncounted=fields[LINK], due_ms=0)
            )

    def _requeued(self, fields: Fields, lsn: int, block: Block) -> None:
        queue = self.found.queues.get(fields[QUEUE_ID])
        if queue is not None and fields[FLAGS] & DURABLE:
            state = queue.states.get(fields[MSG_ID], FRESH)
            due_ms = self._corrected_ms(fields, fields[ARG])
            queue.set_state(
                fields[MSG_ID], state._replace(deliveries=fields[ATTEMPT], uncounted=fields[LINK], due_ms=due_ms)
            )

    def _scheduled(self, fields: Fields, lsn: int, block: Block) -> None:
        queue = self.found.queues.get(fields[QUEUE_ID])
        if queue is not None and fields[FLAGS] & DURABLE:
            state = queue.states.get(fields[MSG_ID], FRESH)
            counts = {"deliveries": fields[ATTEMPT], "uncounted": fields[LINK]} if fields[ATTEMPT] else {}
            queue.set_state(fields[MSG_ID], state._replace(due_ms=self._corrected_ms(fields, fields[ARG]), **counts))

    def _due(self, fields: Fields, lsn: int, block: Block) -> None:
        queue = self.found.queues.get(fields[QUEUE_ID]) if fields[FLAGS] & DURABLE else None
        if queue is not None and (state := queue.states.get(fields[MSG_ID])) is not None:
            queue.set_state(fields[MSG_ID], state._replace(due_ms=0))

    def _moved(self, fields: Fields, lsn: int, block: Block) -> None:
        if self.found.names.is_retired(fields[ADDRESS_ID]):
            self.found.names.retire(fields[ADDRESS_ID], lsn + 1)
        if lsn < self.begin:
            return
        content = decode_content(block.heap_of(fields))
        for queue_id in content.queue_ids:
            queue = self._queue(queue_id)
            if not queue.move(fields[MSG_ID], lsn) and not self.begin:  # perhaps the message has no other record
                expires_ms = self._corrected_ms(fields, content.expires_ms)
                queue.add(fields[MSG_ID], lsn, fields[SIZE], expires_ms, fields[PRIORITY])

    def _declared(self, fields: Fields, lsn: int, block: Block) -> None:
        declared = decode_declared(block.heap_of(fields))
        id_ = fields[QUEUE_ID] or fields[ADDRESS_ID] or fields[ARG]
        # A checkpoint may state a queue again whose virtual host is being deleted.
        if declared.properties & IS_DURABLE and id_ not in self._dropped:
            self.found.objects[id_] = declared

    def _undeclared(self, fields: Fields, lsn: int, block: Block) -> None:
        found, id_ = self.found, fields[QUEUE_ID] or fields[ADDRESS_ID] or fields[ARG]
        object_type = decode_declared(block.heap_of(fields)).object_type
        if object_type == VHOST:  # with all its objects
            for inner in [one for one in found.names.ids_of(EXCHANGE, QUEUE) if found.names[one].vhost_id == id_]:
                self._drop(inner, lsn)
                self._dropped.add(inner)
        if id_ in found.names:
            for other in self._namesakes.get(found.names[id_], ()):
                if other in found.objects:
                    self._drop(other, lsn)
        self._drop(id_, lsn)

    def _drop(self, id_: int, lsn: int) -> None:
        """Remove an object with its messages, bindings and duplicate ids, and retire its name.

        `lsn`: of the record that undeclared it; records before that may refer to the name.
        """
        found = self.found
        found.objects.pop(id_, None)
        found.queues.pop(id_, None)
        if found.ids and id_ in found.names and found.names[id_].object_type == VHOST:
            for key in [key for key in found.ids if key[0] == id_]:
                del found.ids[key]
        found.names.retire(id_, lsn)
        for source_id, bound in [one for one in found.bindings if id_ in (one[0], one[1].target_id)]:
            del found.bindings[source_id, bound]

    def _bound(self, fields: Fields, lsn: int, block: Block) -> None:
        if fields[FLAGS] & DURABLE:
            self.found.bindings[fields[ADDRESS_ID], decode_bound(block.heap_of(fields))] = None

    def _unbound(self, fields: Fields, lsn: int, block: Block) -> None:
        self.found.bindings.pop((fields[ADDRESS_ID], decode_bound(block.heap_of(fields))), None)

    def _snapshot(self, fields: Fields, lsn: int, block: Block) -> None:
        ahead_ms = self._ahead_ms(fields)
        self.found.has_moved_times |= ahead_ms > 0
        load_part(block.heap_of(fields), self._queue(fields[QUEUE_ID]), ahead_ms)

    def _transferred(self, fields: Fields, lsn: int, block: Block) -> None:
        if (queue := self.found.queues.get(fields[QUEUE_ID])) is not None:
            queue.transferred[fields[MSG_ID]] = fields[LINK]

    def _checkpoint(self, fields: Fields, lsn: int, block: Block) -> None:
        self.found.next_message_id = max(self.found.next_message_id, fields[MSG_ID])

    def _ids_seen(self, fields: Fields, lsn: int, block: Block) -> None:
        seen = decode_ids_seen(block.heap_of(fields))
        key = fields[ARG], seen.address
        recovered = self.found.ids.get(key)
        if recovered is None:
            recovered = self.found.ids[key] = RecoveredIds()
        recovered.add(seen)
