"""Records of messages: `published` with their contents, `enqueued`, and all later events."""

from collections.abc import Sequence

from ...engine import Cut, EventKind
from ..format.heap import content_prefix, encode_runs, encode_text
from ..format.record import (
    ATTEMPT_MAX,
    CODE_OF,
    DURABLE,
    KEPT,
    OTHER_REASON,
    RANGE,
    REASON_CODES,
    TERMINAL_CODES,
    TRANSACTION,
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
        contents: Cut,
        *,
        queue_ids: Sequence[int] = (),
        expires_ms: int = 0,
        cause_id: int = 0,
        priority: int = 0,
        conn_id: int = 0,
        durable: bool = True,
    ) -> int:
        """Append a run of new messages with their contents; all other arguments are shared. O(messages).

        ids: rising. expires_ms: wall time by the message's own TTL, 0 never. cause_id: the message that it copies.
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
            conn_id=conn_id,
        )

    def published_mixed(
        self,
        ids: Sequence[int],
        routes: Sequence[tuple[int, bytes, int]],
        contents: Cut,
        *,
        queue_ids: Sequence[int],
    ) -> int:
        """Append durable messages without expiry that differ in exchange, routing key or priority.

        routes: exchange id, routing key and priority of each message; most of them are alike. Returns: as `published`.
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
    ) -> int:
        """Append that messages entered a queue. `content_lsn`: the result of `published` for the first of them.

        sizes: octets of each body. expires_ms: wall time in this queue (its own TTL or the message's), 0 never.
        priorities: one for all, or one for each. durable: persistent messages in a durable queue, which are restored.
        """
        turns = self._turns
        block = turns.block or turns.begin()
        if durable:
            turns.ledger.enqueued(ids, content_lsn)
        return block.enqueued(
            queue_id, ids, content_lsn, sizes, arg=expires_ms, flags=DURABLE if durable else 0, priorities=priorities
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
        """Append any other event, with one record for each message, all alike. Returns the LSN of the first.

        reason: a word of `REASONS`, or any text (which each record then holds). target_id: exchange of a dead letter.
        deliveries, uncounted, due_ms: of `requeued`, `scheduled`, `delivered`: absolute, not differences.
        """
        turns = self._turns
        block = turns.block or turns.begin()
        code = CODE_OF[kind]
        if kind is ACKED:
            turns.patient_count += len(ids)
        flags |= (DURABLE if durable else 0) | (KEPT if kept else 0)
        if code in TERMINAL_CODES and durable and not kept:
            turns.ledger.settled(ids)
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

        ids: all durable, or all transient, messages of the queue between the first and the last id, rising.
        """
        assert CODE_OF[kind] in TERMINAL_CODES
        turns = self._turns
        block = turns.block or turns.begin()
        if durable:
            turns.ledger.settled(ids)
        if kind is ACKED:
            turns.patient_count += 1
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

    def transaction(self, *, opens: bool) -> None:
        """Append the begin or the end of a transaction. Its turn is one block, so it is durable whole or not at all."""
        turns = self._turns
        (turns.block or turns.begin()).add(Record(TRANSACTION, arg=int(opens)))
