"""The journal read as an auditor reads it, by what its format page says alone: does it balance, and is it the ledger's?

Every message is enqueued once in a queue and leaves it once; what was enqueued, or is in the last checkpoint, and has
not left since, is what the broker has.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from simulated_files import SimulatedFiles

from leveret.journal import JournalReader
from leveret.journal.disk.directory import read_format
from leveret.journal.format.heap import decode_declared, decode_runs
from leveret.journal.format.record import (
    CHECKPOINT,
    DECLARED,
    DURABLE,
    ENQUEUED,
    IDS_SEEN,
    KEPT,
    KIND_NAMES,
    PARAMETER,
    QUEUE,
    RANGE,
    RESTATED,
    SNAPSHOT,
    UNDECLARED,
    VHOST,
    Record,
)
from leveret.journal.recovery.check import verify

from .disk import DATA
from .ledger import Broken, QueueName

TERMINAL = frozenset(range(10, 20))
_MAY_COME_ALONE = frozenset({code for code, word in KIND_NAMES.items() if word == "dropped"})
_COUNTS = Struct("<4xIII")  # of a snapshot: messages, runs, states


def audit(files: SimulatedFiles) -> dict[QueueName, set[int]]:
    """The ids of the durable messages of each queue. Raises: Broken, OSError."""
    report = verify(DATA, files)
    if report.faults:
        raise Broken(f"the journal is damaged: {'; '.join(map(str, report.faults))}")
    reader = JournalReader(DATA, files)
    records = list(reader.records(trust_open=True))
    begin = max((record.arg for _, record in records if record.kind == CHECKPOINT), default=0)
    books = JournalBooks(is_whole=bool(records) and records[0][0] == 1)
    needed: set[str] = set()
    for lsn, record in records:
        books.enter(record, counts=lsn >= begin, reader=reader)
        needed |= _needed(record)
    if unsaid := needed - read_format(DATA, files).needs:
        raise Broken(f"the journal has {sorted(unsaid)}, and its file `format` does not say so")
    names = reader.names
    return {
        (names.text(names[queue_id].vhost_id), names[queue_id].name): ids for queue_id, ids in books.live.items() if ids
    }


def _needed(record: Record) -> set[str]:
    """What a program must know to understand a record (journal-format.md, "The directory")."""
    if record.kind == IDS_SEEN:
        return {"duplicate ids"}
    if record.kind != DECLARED:
        return set()
    declared = decode_declared(record.heap)
    is_leased = declared.object_type == QUEUE and b"x-queue-typeS\0\0\0\4amps" in declared.arguments
    return {"leased queues"} if is_leased else {"parameters"} if declared.object_type == PARAMETER else set()


class JournalBooks:
    """`live`: queue id -> ids of messages. `is_whole`: the journal has all its records still."""

    def __init__(self, *, is_whole: bool) -> None:
        self.live: dict[int, set[int]] = {}
        self._is_whole = is_whole
        self._came: dict[int, set[int]] = {}
        self._left: dict[int, set[int]] = {}
        self._queues: dict[int, set[int]] = {}  # of each virtual host
        self._ended: set[int] = set()

    def enter(self, record: Record, *, counts: bool, reader: JournalReader) -> None:
        """`counts`: it is not older than the last checkpoint."""
        kind, queue_id = record.kind, record.queue_id
        if kind == ENQUEUED and not record.flags & RESTATED:
            came = self._came.setdefault(queue_id, set())
            if record.msg_id in came:
                raise Broken(f"the journal has message {record.msg_id} enqueued in {queue_id} twice")
            came.add(record.msg_id)
            if counts and record.flags & DURABLE and queue_id not in self._ended:
                self.live.setdefault(queue_id, set()).add(record.msg_id)
        elif kind in TERMINAL and not record.flags & (KEPT | RESTATED):
            self._leave(record)
        elif kind == SNAPSHOT and counts and queue_id not in self._ended:
            self.live.setdefault(queue_id, set()).update(_ids_of_part(record.heap))
        elif kind == UNDECLARED:
            self._undeclare(record, reader)

    def _leave(self, record: Record) -> None:
        queue_id = record.queue_id
        live = self.live.get(queue_id, set())
        came, left = self._came.get(queue_id, set()), self._left.setdefault(queue_id, set())
        ids: set[int] = {record.msg_id}
        if record.flags & RANGE and record.heap:
            ids = {first + at for first, count in decode_runs(record.heap) for at in range(count)}
        elif record.flags & RANGE:
            ids = (_between(record, live) | _between(record, came)) - left
        if twice := ids & left:
            raise Broken(f"the journal has messages {sorted(twice)[:5]} leave queue {queue_id} twice")
        # What was transient and came while the disk was full has no record of that.
        is_known = self._is_whole and record.kind not in _MAY_COME_ALONE and record.flags & DURABLE
        if is_known and (never := ids - came):
            raise Broken(f"{record.name} of messages {sorted(never)[:5]} in queue {queue_id}, which never came there")
        left |= ids
        live -= ids

    def _undeclare(self, record: Record, reader: JournalReader) -> None:
        what = decode_declared(record.heap).object_type
        if what == QUEUE:
            self.live.pop(record.queue_id, None)
        elif what == VHOST:
            names = reader.names
            for id_ in names.ids_of(QUEUE):
                if names[id_].vhost_id == record.arg:
                    self.live.pop(id_, None)
                    self._ended.add(id_)


def _between(record: Record, ids: set[int]) -> set[int]:
    """Those of a range."""
    first, last = record.msg_id, record.arg
    if last - first < len(ids):
        return ids.intersection(range(first, last + 1))
    return {id_ for id_ in ids if first <= id_ <= last}


def _ids_of_part(heap: bytes) -> Iterator[int]:
    _, runs, _ = _COUNTS.unpack_from(heap)
    firsts = Struct(f"<{runs}q").unpack_from(heap, 16)
    counts = Struct(f"<{runs}I").unpack_from(heap, 16 + 16 * runs)
    for first, count in zip(firsts, counts):
        yield from range(first, first + count)
