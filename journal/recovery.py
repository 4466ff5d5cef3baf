"""Recovery: from segments to what the broker was: topology, and the messages of each queue with their states.

One forward pass from the begin of the last whole checkpoint (or the first segment). Every record says what is from then
on, so a message that a snapshot and the records around it both speak of comes out once and right. A queue is made of
columns (`RecoveredQueue`); contents stay on the disk and are known by LSN.
Source: Spark page, section 4; queues page C.5; rulings 21, 22; address-settings page 5.7 (delivery counts).
"""

import os
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from .block import Block
from .errors import BadRecord, Damaged
from .files import REAL, Files
from .heap import (
    IS_DURABLE,
    Bound,
    Declared,
    Define,
    Head,
    decode_bound,
    decode_content,
    decode_declared,
    decode_define,
    decode_head,
    decode_link,
    decode_text,
)
from .names import Names
from .record import (
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
    KEPT,
    MOVED,
    OPERATORS,
    PUBLISHED,
    QUEUE,
    RANGE,
    REQUEUED,
    SCHEDULED,
    SETTINGS_CHANGED,
    SNAPSHOT,
    TERMINAL_CODES,
    UNBOUND,
    UNDECLARED,
    VHOST,
    Fields,
)
from .recovered import FRESH, RecoveredQueue
from .segment import Scan, Segment, path_of, read_footer, segments_in
from .snapshot import load_part


@dataclass(slots=True)
class Recovered:
    """What the journal says is there."""

    journal_id: bytes = bytes(16)
    names: Names = field(default_factory=Names)
    #: id -> its declaration, in the order of declaring. The name and virtual host are in `names`.
    objects: dict[int, Declared] = field(default_factory=dict)
    #: (source exchange id, binding), in the order of binding.
    bindings: dict[tuple[int, Bound], None] = field(default_factory=dict)
    #: queue id -> its messages; a durable queue without messages may be absent.
    queues: dict[int, RecoveredQueue] = field(default_factory=dict)
    #: last text of `settings_changed`, by its `arg`.
    settings: dict[int, str] = field(default_factory=dict)
    next_message_id: int = 1
    next_lsn: int = 1
    checkpoint_begin: int = 0
    checkpoint_end: int = 0
    segments: list[Segment] = field(default_factory=list)
    #: octets of the newest segment that were cut: a write that a crash interrupted.
    torn_bytes: int = 0
    #: messages whose content a repair lost: they are not in `queues`.
    lost_messages: int = 0
    record_count: int = 0

    def queue(self, queue_id: int) -> RecoveredQueue:
        """The messages of a queue."""
        found = self.queues.get(queue_id)
        if found is None:
            found = self.queues[queue_id] = RecoveredQueue()
        return found


def recover(files: Files, directory: str) -> Recovered:
    """Read the journal in a directory; changes nothing.

    A torn tail is reported in `torn_bytes`; it starts at `segments[-1].size`. Raises: Damaged, OSError.
    """
    bases = segments_in(files, directory)
    found = Recovered()
    if not bases:
        return found
    found.next_lsn = bases[0]
    last = _scan_facts(files, directory, bases[-1])
    if last is None:  # the newest was being made when the power went: nothing was in it
        found.next_lsn = bases.pop()
        if not bases:
            return found
        last = _scan_facts(files, directory, bases[-1])
    begin, end = (last.checkpoint_begin, last.checkpoint_end) if last is not None else (0, 0)
    replay = _replay(files, directory, bases, begin)
    if any(first < end and begin < behind for first, behind in replay.gaps):
        replay = _replay(files, directory, bases, 0)  # a repair lost a part of the snapshot
        begin = end = 0
    replay.drop_lost()
    replay.found.checkpoint_begin, replay.found.checkpoint_end = begin, end
    return replay.found


def _replay(files: Files, directory: str, bases: list[int], begin: int) -> "_Replay":
    """All segments; records count from `begin` on."""
    found = Recovered()
    start = max(bisect_right(bases, begin) - 1, 0)
    if begin and begin < bases[start]:
        raise Damaged(
            os.path.basename(path_of(directory, bases[start])),
            0,
            f"the segment with the checkpoint at {begin} is missing",
        )
    replay = _Replay(found, begin, begin == 0)
    for index in range(start):
        _skip_segment(files, directory, bases[index], bases[index + 1], replay)
    for index in range(start, len(bases)):
        base_lsn, is_last = bases[index], index == len(bases) - 1
        if index > start and base_lsn != found.next_lsn:
            name = os.path.basename(path_of(directory, base_lsn))
            raise Damaged(name, 0, f"records {found.next_lsn} to {base_lsn - 1} before it are missing")
        _replay_segment(files, directory, base_lsn, is_last, replay)
    return replay


def _skip_segment(files: Files, directory: str, base_lsn: int, next_base: int, replay: "_Replay") -> None:
    """A segment from before the checkpoint: only its footer is read (its contents when somebody asks for them)."""
    handle = files.open(path_of(directory, base_lsn))
    try:
        segment = read_footer(files, handle)
        if segment is not None and segment.has_gaps:
            scan = Scan(files, handle, base_lsn)
            for _ in scan:
                pass
            replay.gaps += scan.gaps
    except BadRecord:
        segment = None
    finally:
        files.close(handle)
    name = os.path.basename(path_of(directory, base_lsn))
    if segment is None or segment.base_lsn != base_lsn:
        raise Damaged(name, 0, "no footer at its end: the segment is cut, or its end is damaged")
    if segment.end_lsn != next_base:
        raise Damaged(name, segment.size, f"records {segment.end_lsn} to {next_base - 1} behind it are missing")
    replay.found.segments.append(segment)


def ended_us(directory: str, files: Files = REAL) -> int:
    """The latest wall time (microseconds since 1970 UTC) in the newest segment there; 0: nothing is there.

    Raises: Damaged, OSError.
    """
    for base_lsn in reversed(segments_in(files, directory)):
        segment = _scan_facts(files, directory, base_lsn)
        if segment is not None:
            return segment.ts_max
    return 0


def _scan_facts(files: Files, directory: str, base_lsn: int) -> Segment | None:
    """What a segment is, block by block (its footer need not be there). None: it has no whole block."""
    handle = files.open(path_of(directory, base_lsn))
    try:
        scan = Scan(files, handle, base_lsn)
        segment: Segment | None = None
        for block in scan:
            if segment is None:
                try:
                    head = _head_of(block)
                except BadRecord as error:
                    raise Damaged(os.path.basename(path_of(directory, base_lsn)), 0, str(error)) from error
                segment = Segment(base_lsn, head.checkpoint_begin, head.checkpoint_end)
            segment.note(block)
        if segment is None:
            scan.check_tail(os.path.basename(path_of(directory, base_lsn)), is_last=True)
        elif scan.sealed:
            segment.sealed = True
        return segment
    finally:
        files.close(handle)


def _head_of(block: Block) -> Head:
    for fields in block.fields():
        if fields[4] == HEAD:
            return decode_head(block.heap_of(fields))
        break
    raise BadRecord("a segment that does not begin with its head")


def _replay_segment(files: Files, directory: str, base_lsn: int, is_last: bool, replay: "_Replay") -> None:
    name = os.path.basename(path_of(directory, base_lsn))
    handle = files.open(path_of(directory, base_lsn))
    found = replay.found
    try:
        scan = Scan(files, handle, base_lsn)
        segment = Segment(base_lsn)
        for block in scan:
            try:
                if not segment.size:
                    head = _head_of(block)
                    segment.checkpoint_begin, segment.checkpoint_end = head.checkpoint_begin, head.checkpoint_end
                segment.note(block)
                replay.block(block)
            except BadRecord as error:
                raise Damaged(name, block.offset, str(error)) from error
        replay.gaps += scan.gaps
        torn = scan.check_tail(name, is_last=is_last)
        segment.sealed = scan.sealed
        found.torn_bytes += torn
        found.segments.append(segment)
        found.next_lsn = max(scan.lsn, base_lsn)
    finally:
        files.close(handle)


class _Replay:
    """Applies records to a `Recovered`."""

    def __init__(self, found: Recovered, begin: int, salvages: bool) -> None:
        self.found = found
        self.salvages = salvages  # there is no whole checkpoint to start from: `moved` alone may tell of a message
        self.begin = begin
        self.gaps: list[tuple[int, int]] = []
        self._dropped: set[int] = set()  # queues and exchanges that went with their virtual host
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
            SETTINGS_CHANGED: self._settings_changed,
            SNAPSHOT: self._snapshot,
            CHECKPOINT: self._checkpoint,
        }

    def block(self, block: Block) -> None:
        """All records of a block. Records before the checkpoint's begin only give names and ids."""
        lsn, begin, handlers = block.header.base_lsn, self.begin, self._handlers
        queues, queue_of = self.found.queues, self.found.queue
        self.found.record_count += block.header.record_count
        for fields in block.fields():
            kind = fields[4]
            if lsn < begin:
                if kind in (DEFINE, HEAD):
                    handlers[kind](fields, lsn, block)
            elif kind == ENQUEUED:
                if fields[5] & DURABLE:
                    link = fields[16]
                    at = lsn - link if link else decode_link(block.heap_of(fields))
                    queue_of(fields[9]).add(fields[1], at, fields[14], fields[2], fields[6])
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
            lsn += 1

    def drop_lost(self) -> None:
        """Messages whose content is in a gap are not there; a queue whose name is in one gets another."""
        found = self.found
        for id_, declared in list(found.objects.items()) if self.gaps else ():
            if id_ not in found.names and declared.what in OPERATORS:
                del found.objects[id_]  # nobody gets rights under another name
            elif id_ not in found.names:
                vhosts = [other for other, object_ in found.objects.items() if object_.what == VHOST]
                found.names.set(id_, Define(declared.what, vhosts[0] if vhosts else 0, f"recovered.{id_}"))
        for queue in self.found.queues.values() if self.gaps else ():
            for message in list(queue.messages()):
                if any(first <= message.content_lsn < behind for first, behind in self.gaps):
                    queue.remove(message.id)
                    self.found.lost_messages += 1

    def _define(self, fields: Fields, lsn: int, block: Block) -> None:
        self.found.names.set(fields[2], decode_define(block.heap_of(fields)))

    def _head(self, fields: Fields, lsn: int, block: Block) -> None:
        self.found.journal_id = decode_head(block.heap_of(fields)).journal_id
        self.found.names.next_id = max(self.found.names.next_id, fields[2])
        self.found.next_message_id = max(self.found.next_message_id, fields[1])

    def _published(self, fields: Fields, lsn: int, block: Block) -> None:
        self.found.next_message_id = max(self.found.next_message_id, fields[1] + 1)

    def _delivered(self, fields: Fields, lsn: int, block: Block) -> None:
        if fields[5] & COUNTED and (queue := self.found.queues.get(fields[9])) is not None:
            state = queue.states.get(fields[1], FRESH)
            queue.change(fields[1], state._replace(deliveries=fields[12], due_ms=0))

    def _requeued(self, fields: Fields, lsn: int, block: Block) -> None:
        queue = self.found.queues.get(fields[9])
        if queue is not None and fields[5] & DURABLE:
            state = queue.states.get(fields[1], FRESH)
            queue.change(fields[1], state._replace(deliveries=fields[12], uncounted=fields[16], due_ms=fields[2]))

    def _scheduled(self, fields: Fields, lsn: int, block: Block) -> None:
        queue = self.found.queues.get(fields[9])
        if queue is not None and fields[5] & DURABLE:
            state = queue.states.get(fields[1], FRESH)
            counts = {"deliveries": fields[12], "uncounted": fields[16]} if fields[12] else {}
            queue.change(fields[1], state._replace(due_ms=fields[2], **counts))

    def _due(self, fields: Fields, lsn: int, block: Block) -> None:
        queue = self.found.queues.get(fields[9]) if fields[5] & DURABLE else None
        if queue is not None and (state := queue.states.get(fields[1])) is not None:
            queue.change(fields[1], state._replace(due_ms=0))

    def _moved(self, fields: Fields, lsn: int, block: Block) -> None:
        content = decode_content(block.heap_of(fields))
        for queue_id in content.queue_ids:
            queue = self.found.queue(queue_id)
            if not queue.move(fields[1], lsn) and self.salvages:
                queue.add(fields[1], lsn, fields[14], content.expires_ms)

    def _declared(self, fields: Fields, lsn: int, block: Block) -> None:
        declared = decode_declared(block.heap_of(fields))
        if declared.properties & IS_DURABLE:
            self.found.objects[fields[9] or fields[8] or fields[2]] = declared

    def _undeclared(self, fields: Fields, lsn: int, block: Block) -> None:
        id_ = fields[9] or fields[8] or fields[2]
        what = decode_declared(block.heap_of(fields)).what
        if what == VHOST:  # whatever is in it goes with it
            for inner in [inner for inner in self.found.names.ids_of(EXCHANGE, QUEUE) if self._is_in(inner, id_)]:
                self._drop(inner)
                self._dropped.add(inner)
        self._drop(id_)

    def _is_in(self, id_: int, vhost_id: int) -> bool:
        return self.found.names[id_].vhost_id == vhost_id

    def _drop(self, id_: int) -> None:
        found = self.found
        found.objects.pop(id_, None)
        found.queues.pop(id_, None)
        found.names.forget(id_)
        for source_id, bound in [key for key in found.bindings if id_ in (key[0], key[1].target_id)]:
            del found.bindings[source_id, bound]

    def _bound(self, fields: Fields, lsn: int, block: Block) -> None:
        if fields[5] & DURABLE:
            self.found.bindings[fields[8], decode_bound(block.heap_of(fields))] = None

    def _unbound(self, fields: Fields, lsn: int, block: Block) -> None:
        self.found.bindings.pop((fields[8], decode_bound(block.heap_of(fields))), None)

    def _settings_changed(self, fields: Fields, lsn: int, block: Block) -> None:
        if fields[5] & DURABLE:
            self.found.settings[fields[2]] = decode_text(block.heap_of(fields))

    def _snapshot(self, fields: Fields, lsn: int, block: Block) -> None:
        if fields[9] in self._dropped:
            return  # a checkpoint went on while its virtual host was taken down
        load_part(block.heap_of(fields), self.found.queue(fields[9]))

    def _checkpoint(self, fields: Fields, lsn: int, block: Block) -> None:
        self.found.next_message_id = max(self.found.next_message_id, fields[1])
