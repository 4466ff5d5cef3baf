"""Records that a turn appends: of messages with their contents, and of names and objects (queues, bindings, ...)."""

from collections.abc import Sequence

from ...engine import ContentColumns, EventKind
from ..format.heap import (
    Bound,
    Declared,
    IdsSeen,
    content_prefix,
    encode_bound,
    encode_declared,
    encode_ids_seen,
    encode_runs,
    encode_text,
)
from ..format.needs import DUPLICATE_IDS, needs_of
from ..format.record import (
    ATTEMPT_MAX,
    BOUND,
    CODE_OF,
    DECLARED,
    DURABLE,
    EXCHANGE,
    IDS_SEEN,
    KEPT,
    OTHER_REASON,
    QUEUE,
    RANGE,
    REASON_CODES,
    RECORD_SIZE,
    RESTATED,
    TERMINAL_CODES,
    UNBOUND,
    UNDECLARED,
    Record,
)
from .turns import Turns

#: An acknowledgement gets no answer, so its record may wait for a later commit.
ACKED = EventKind.ACKED


class MessageRecords:
    """Appends records of messages to the turn under way."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def published(
        self,
        ids: Sequence[int],
        exchange_id: int,
        routing_key: bytes,
        contents: ContentColumns,
        *,
        queue_ids: Sequence[int] = (),
        expires_ms: int = 0,
        cause_id: int = 0,
        priority: int = 0,
        durable: bool = True,
    ) -> int:
        """Append a run of new messages with their contents; all other arguments are shared. O(messages).

        ids: rising. expires_ms: wall time by the message's own TTL, 0 never. cause_id: the dead message (dead letters).
        Returns: LSN of the first record; the others follow it. Contents are found by these LSNs.
        Raises: JournalFailed, JournalClosed, BadRecord (key over 255 octets).
        """
        turns = self._turns
        block = turns.block or turns.begin()
        turns.next_message_id = max(turns.next_message_id, ids[-1] + 1)
        return block.published(
            ids,
            content_prefix(routing_key, queue_ids, expires_ms, cause_id),
            contents,
            arg=expires_ms,
            flags=DURABLE if durable else 0,
            priorities=priority,
            address_ids=exchange_id,
        )

    def published_mixed(
        self,
        ids: Sequence[int],
        routes: Sequence[tuple[int, bytes, int]],
        contents: ContentColumns,
        *,
        queue_ids: Sequence[int],
    ) -> int:
        """Append durable messages without expiry that differ in exchange, routing key or priority.

        routes: exchange id, routing key and priority of each message. Returns: as `published`.
        """
        turns = self._turns
        block = turns.block or turns.begin()
        turns.next_message_id = max(turns.next_message_id, ids[-1] + 1)
        prefixes = {key: content_prefix(key, queue_ids, 0, 0) for key in {key for _, key, _ in routes}}
        exchange_ids, keys, priorities = zip(*routes)
        return block.published(
            ids,
            list(map(prefixes.__getitem__, keys)),
            contents,
            flags=DURABLE,
            priorities=priorities,
            address_ids=exchange_ids,
        )

    def enqueued(
        self,
        queue_id: int,
        ids: Sequence[int],
        content_lsn: int,
        sizes: Sequence[int],
        *,
        expires_ms: int = 0,
        priorities: int | Sequence[int] = 0,
        durable: bool = True,
        owner: int = 0,
    ) -> int:
        """Append that messages entered a queue. `content_lsn`: the result of `published` for the first of them.

        sizes: octets of each body. expires_ms: wall time in this queue (its own TTL or the message's), 0 never.
        priorities: one for all, or one for each. durable: persistent messages in a durable queue, which are restored.
        owner: number of the site that owns them.
        """
        turns = self._turns
        block = turns.block or turns.begin()
        if durable:
            turns.usage.enqueued(ids, content_lsn)
        flags = DURABLE if durable else 0
        return block.enqueued(
            queue_id, ids, content_lsn, sizes, arg=expires_ms, flags=flags, priorities=priorities, owner=owner
        )

    def happened(
        self,
        kind: EventKind,
        queue_id: int,
        ids: Sequence[int],
        *,
        durable: bool = True,
        kept: bool = False,
        reason: str = "",
        target_id: int = 0,
        deliveries: int = 0,
        uncounted: int = 0,
        due_ms: int = 0,
        consumer_id: int = 0,
        conn_id: int = 0,
        flags: int = 0,
    ) -> int:
        """Append any other event of messages, with equal records, one for each. Returns the LSN of the first.

        reason: a word of `REASONS`, or any text, which each record then holds. target_id: exchange of a dead letter.
        deliveries, uncounted, due_ms: the new values, for `requeued`, `scheduled` and `delivered`.
        """
        turns = self._turns
        block = turns.block or turns.begin()
        code = CODE_OF[kind]
        if kind is ACKED:
            turns.unawaited_count += len(ids)
        flags |= (DURABLE if durable else 0) | (KEPT if kept else 0)
        if code in TERMINAL_CODES and durable and not kept:
            turns.usage.settled(ids)
        reason_code = REASON_CODES.get(reason, OTHER_REASON)
        if reason_code == OTHER_REASON:
            heap, lsn = encode_text(reason), block.next_lsn
            for id_ in ids:
                other = Record(
                    code, 0, id_, due_ms, flags, 0, OTHER_REASON, target_id, queue_id, consumer_id, conn_id,
                    min(deliveries, ATTEMPT_MAX), 0, uncounted, heap,
                )  # fmt: skip
                block.add(other)
            return lsn
        return block.run(
            code,
            queue_id,
            ids,
            arg=due_ms,
            flags=flags,
            reason=reason_code,
            address_id=target_id,
            consumer_id=consumer_id,
            conn_id=conn_id,
            attempt=min(deliveries, ATTEMPT_MAX),
            link=uncounted,
        )

    def settled_range(
        self,
        kind: EventKind,
        queue_id: int,
        ids: Sequence[int],
        *,
        durable: bool = True,
        reason: str = "",
        consumer_id: int = 0,
        conn_id: int = 0,
    ) -> int:
        """Append a terminal event of many messages as one record: purge, delete. Returns its LSN.

        ids: all durable, or all transient, messages of the queue between the first and the last id, rising. reason: a
        word of `REASONS`; another text is not recorded.
        """
        assert CODE_OF[kind] in TERMINAL_CODES
        turns = self._turns
        block = turns.block or turns.begin()
        if durable:
            turns.usage.settled(ids)
        if kind is ACKED:
            turns.unawaited_count += 1
        reason_code = REASON_CODES.get(reason, 0)
        first, last = ids[0], ids[-1]
        flags = (DURABLE if durable else 0) | RANGE
        heap = b"" if last - first + 1 == len(ids) else encode_runs(ids)
        return block.add(
            Record(
                CODE_OF[kind], 0, first, last, flags, 0, reason_code, 0, queue_id, consumer_id, conn_id,
                size=len(ids), heap=heap,
            )
        )  # fmt: skip


_IDS = frozenset({DUPLICATE_IDS})


class ObjectRecords:
    """Appends records of names and objects to the turn under way. `changed_lsn`: the LSN after the last change."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.changed_lsn = 0

    def define(self, object_type: int, vhost_id: int, name: str) -> int:
        """The id of a name (`VHOST`, `EXCHANGE`, `QUEUE`, `CONSUMER`, ... of record.py); assigned if it has none."""
        id_ = self._turns.names.id_of(object_type, vhost_id, name)
        return self.define_another(object_type, vhost_id, name) if id_ is None else id_

    def define_another(self, object_type: int, vhost_id: int, name: str) -> int:
        """Assign a new id to a name that may have one: several connections or consumers can have the same name."""
        id_, record = self._turns.names.new(object_type, vhost_id, name)
        self._turns.append(record)
        return id_

    def forget(self, id_: int) -> None:
        """Stop defining a connection or consumer in new segments: it is gone."""
        self._turns.names.forget(id_)

    def retire(self, id_: int) -> None:
        """Retire the id of an exchange that left no `undeclared` record: later messages do not refer to it."""
        self._turns.names.retire(id_, self._turns.next_lsn)

    def declared(self, id_: int, declared: Declared, *, restated: bool = False) -> int:
        """Append that a queue, exchange, virtual host, ... exists. It is restored if it is durable. Returns the LSN."""
        return self._object(DECLARED, id_, declared, restated)

    def undeclared(self, id_: int, object_type: int, *, forgets: bool = True) -> int:
        """Append that an object was deleted with its bindings; earlier messages still find an exchange's name by id.

        A queue's messages are recorded as `deleted` before. All objects of a virtual host are deleted with it.
        `forgets=False`: later records still refer to the id.
        """
        lsn = self._object(UNDECLARED, id_, Declared(object_type, 0, "", b""), False)
        if forgets:
            self._turns.names.retire(id_, lsn)
        return lsn

    def _object(self, kind: int, id_: int, declared: Declared, restated: bool) -> int:
        object_type = declared.object_type
        self._turns.add_needs(needs_of(declared))
        record = Record(
            kind,
            flags=(DURABLE if declared.properties & 1 else 0) | (RESTATED if restated else 0),
            arg=0 if object_type in (QUEUE, EXCHANGE) else id_,
            queue_id=id_ if object_type == QUEUE else 0,
            address_id=id_ if object_type == EXCHANGE else 0,
            heap=encode_declared(declared),
        )
        return self._append(record)

    def bound(self, source_id: int, bound: Bound, *, durable: bool = True, restated: bool = False) -> int:
        """Append a binding from an exchange. Returns the LSN."""
        return self._binding(BOUND, source_id, bound, (DURABLE if durable else 0) | (RESTATED if restated else 0))

    def unbound(self, source_id: int, bound: Bound, *, durable: bool = True) -> int:
        """Append that a binding was deleted. Returns the LSN."""
        return self._binding(UNBOUND, source_id, bound, DURABLE if durable else 0)

    def _binding(self, kind: int, source_id: int, bound: Bound, flags: int) -> int:
        queue_id = bound.target_id if bound.object_type == QUEUE else 0
        record = Record(kind, flags=flags, address_id=source_id, queue_id=queue_id, heap=encode_bound(bound))
        return self._append(record)

    def _append(self, record: Record) -> int:
        lsn = self._turns.append(record)
        if not record.flags & RESTATED:
            self.changed_lsn = lsn + 1
        return lsn

    def cluster_changed(self, kind: int, term: int, text: str) -> int:
        """Append an event of a cluster's node (`text`: JSON). Returns the LSN."""
        return self._turns.append(Record(kind, arg=term, heap=encode_text(text)))

    def ids_seen(self, vhost_id: int, seen: IdsSeen, *, restated: bool = False) -> int:
        """Append duplicate ids that the broker remembers. Returns the octets of the record."""
        self._turns.add_needs(_IDS)
        heap = encode_ids_seen(seen)
        message_id = 0 if restated else seen.ids[0][1]
        flags = DURABLE | (RESTATED if restated else 0)
        self._turns.append(Record(IDS_SEEN, 0, message_id, vhost_id, flags, size=len(seen.ids), heap=heap))
        return RECORD_SIZE + len(heap)
