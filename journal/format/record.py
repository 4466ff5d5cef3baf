"""The fixed part of a journal record: 64 octets, little-endian, the same for every kind.

| offset | field | type | meaning |
|---|---|---|---|
| 0 | ts_us | i64 | wall time, microseconds since 1970 UTC |
| 8 | msg_id | i64 | message id; 0: none |
| 16 | arg | i64 | by kind, see below |
| 24 | heap_off | u32 | where its heap entry starts in the block's heap |
| 28 | kind | u8 | `CODE_OF` |
| 29 | flags | u8 | `DURABLE` and its neighbors |
| 30 | priority | u8 | of the message |
| 31 | reason | u8 | `REASONS` |
| 32 | address_id | i32 | exchange published to, or the target of a dead letter; 0: none |
| 36 | queue_id | i32 | 0: none |
| 40 | consumer_id | i32 | 0: none |
| 44 | conn_id | i32 | 0: none |
| 48 | attempt | u16 | delivery count (saturates at 65535) |
| 50 | owner | u16 | enqueued: number of the site that owns the message, in the notes of its queue; 0: none |
| 52 | size | u32 | octets of body (message kinds); messages covered (with `RANGE`) |
| 56 | heap_len | u32 | octets of its heap entry; 0: none |
| 60 | link | u32 | by kind, see below |

`arg` by kind: published: expiry (wall ms, 0 never). enqueued: expiry in this queue (wall ms). requeued, scheduled: due
(wall ms, 0 now). moved: LSN of the record it copies. With `RANGE`: last message id. define: the id.
declared, undeclared: the id of an object that is neither queue nor exchange. ids_seen: the id of the virtual host.
checkpoint: LSN from which to replay. snapshot: octets of body in the part. head: the next free id.

`link` by kind: enqueued: own LSN minus that of the record with the content (0: see the heap). requeued: deliveries that
are not counted as attempts. transferred: number of the new owner.

The LSN of a record is not in it: it is the block's base LSN plus the record's index.
Source: Spark page 4; ruling 21.
"""

from struct import Struct
from typing import NamedTuple

from ...engine import TERMINAL, EventKind

RECORD = Struct("<qqqIBBBBiiiiHHIII")
RECORD_SIZE = 64
#: Positions of the fields in an unpacked record.
TS_US, MSG_ID, ARG, HEAP_OFF, KIND, FLAGS, PRIORITY, REASON, ADDRESS_ID = range(9)
QUEUE_ID, CONSUMER_ID, CONN_ID, ATTEMPT, OWNER, SIZE, HEAP_LEN, LINK = range(9, 17)
TIME_MAX = 2**63 - 1
assert RECORD.size == RECORD_SIZE

#: Layout of runs of like records, which differ only in the id and the time of the turn.
RUN_HEAD = Struct("<qq48s")
RUN_TAIL = Struct("<qIBBBBiiiiHHIII")
assert RUN_HEAD.size == RECORD_SIZE and RUN_TAIL.size == 48
#: Layout of like records with contents of one size, which also differ in their offset in the heap.
CONTENT_RECORD = Struct("<qqqI36s")
CONTENT_TAIL = Struct("<BBBBiiiiHHIII")
assert CONTENT_RECORD.size == RECORD_SIZE and CONTENT_TAIL.size == 36

# -- kinds ----------------------------------------------------------------------------------------------------------

#: Codes of the events. A code is never used for another kind.
CODE_OF: dict[EventKind, int] = {
    EventKind.PUBLISHED: 1,
    EventKind.ROUTED: 2,
    EventKind.UNROUTABLE: 3,
    EventKind.ENQUEUED: 4,
    EventKind.DELIVERED: 5,
    EventKind.REQUEUED: 6,
    EventKind.SCHEDULED: 7,
    EventKind.DUE: 8,
    EventKind.LEASE_ENDED: 9,
    EventKind.ACKED: 10,
    EventKind.EXPIRED: 11,
    EventKind.DEAD_LETTERED: 12,
    EventKind.KILLED: 13,
    EventKind.EVICTED: 14,
    EventKind.REPLACED: 15,
    EventKind.DROPPED: 16,
    EventKind.PURGED: 17,
    EventKind.DELETED: 18,
    EventKind.CANCELLED: 19,
    EventKind.MOVED: 20,
    EventKind.BLOCKED: 21,
    EventKind.UNBLOCKED: 22,
    EventKind.DECLARED: 23,
    EventKind.UNDECLARED: 24,
    EventKind.BOUND: 25,
    EventKind.UNBOUND: 26,
    EventKind.SETTINGS_CHANGED: 27,
    EventKind.CONNECTION_OPENED: 28,
    EventKind.CONNECTION_CLOSED: 29,
    EventKind.CONSUMER_ADDED: 30,
    EventKind.CONSUMER_REMOVED: 31,
    EventKind.LED: 32,
    EventKind.FOLLOWED: 33,
    EventKind.IN_SYNC_CHANGED: 34,
    EventKind.HELD: 35,
    EventKind.SUSPENDED: 36,
    EventKind.TRANSFERRED: 37,
}

# The journal's own kinds.
DEFINE = 64  # a name for an id; all live ones again at the start of each segment
HEAD = 65  # first record of a segment
FOOTER = 66  # last record of a sealed segment
SNAPSHOT = 67  # some of the messages of a queue
CHECKPOINT = 68  # the snapshot that began at `arg` is whole
IDS_SEEN = 70  # duplicate ids that an address remembers

PUBLISHED, ENQUEUED = CODE_OF[EventKind.PUBLISHED], CODE_OF[EventKind.ENQUEUED]
DELIVERED, REQUEUED = CODE_OF[EventKind.DELIVERED], CODE_OF[EventKind.REQUEUED]
SCHEDULED, DUE, MOVED = CODE_OF[EventKind.SCHEDULED], CODE_OF[EventKind.DUE], CODE_OF[EventKind.MOVED]
DECLARED, UNDECLARED = CODE_OF[EventKind.DECLARED], CODE_OF[EventKind.UNDECLARED]
BOUND, UNBOUND = CODE_OF[EventKind.BOUND], CODE_OF[EventKind.UNBOUND]
SETTINGS_CHANGED, TRANSFERRED = CODE_OF[EventKind.SETTINGS_CHANGED], CODE_OF[EventKind.TRANSFERRED]

#: Code -> name of the kind in texts.
KIND_NAMES: dict[int, str] = {
    **{code: kind.value for kind, code in CODE_OF.items()},
    DEFINE: "define",
    HEAD: "head",
    FOOTER: "footer",
    SNAPSHOT: "snapshot",
    CHECKPOINT: "checkpoint",
    IDS_SEEN: "ids_seen",
}

TERMINAL_CODES = frozenset(CODE_OF[kind] for kind in TERMINAL)

# -- flags ----------------------------------------------------------------------------------------------------------

DURABLE = 0x01  # a persistent message in a durable queue, or a durable object: recovery restores it
KEPT = 0x02  # acked, but the queue keeps it (non-destructive and stream queues)
RANGE = 0x04  # covers every message of the queue with msg_id <= id <= arg; `size` is their number
RESTATED = 0x08  # part of a checkpoint: states what exists; no event
COUNTED = 0x10  # delivered: the count was persisted before the delivery and is restored
REDELIVERED = 0x20  # delivered: with the redelivered flag
FLAG_NAMES = {
    DURABLE: "durable",
    KEPT: "kept",
    RANGE: "range",
    RESTATED: "restated",
    COUNTED: "counted",
    REDELIVERED: "redelivered",
}

# -- reasons --------------------------------------------------------------------------------------------------------

#: Code = index in this tuple, which only grows at the end. `OTHER_REASON`: the heap has the text.
REASONS = (
    "",
    "rejected",
    "expired",
    "maxlen",
    "delivery_limit",
    "nack",
    "reject",
    "recover",
    "closed",
    "lost",
    "cancelled",
    "duplicate",
    "full",
    "rollback",
    "timeout",
    "operator",
    "nacked",
    "recovered",
    "published",
    "deadline",
    "unsubscribed",
    "taken_over",
    "lifetime",
    "moved",
    "replayed",
    "discarded",
    "site_lost",
)
REASON_CODES = {word: code for code, word in enumerate(REASONS)}
OTHER_REASON = 255

#: Kinds of the objects of `declared`, `undeclared`, `bound` and DEFINE records.
VHOST, EXCHANGE, QUEUE, CONSUMER, CONNECTION, USER, PERMISSION, POLICY, OPERATOR_POLICY, PARAMETER = range(1, 11)
OBJECT_NAMES = {
    VHOST: "vhost",
    EXCHANGE: "exchange",
    QUEUE: "queue",
    CONSUMER: "consumer",
    CONNECTION: "connection",
    USER: "user",
    PERMISSION: "permission",
    POLICY: "policy",
    OPERATOR_POLICY: "operator_policy",
    PARAMETER: "parameter",
}

#: Kinds of the objects that operators set.
OPERATOR_OBJECTS = frozenset({USER, PERMISSION, POLICY, OPERATOR_POLICY, PARAMETER})

ATTEMPT_MAX = 0xFFFF


class Record(NamedTuple):
    """One record with its heap entry; its position gives the LSN."""

    kind: int
    ts_us: int = 0
    msg_id: int = 0
    arg: int = 0
    flags: int = 0
    priority: int = 0
    reason: int = 0
    address_id: int = 0
    queue_id: int = 0
    consumer_id: int = 0
    conn_id: int = 0
    attempt: int = 0
    size: int = 0
    link: int = 0
    heap: bytes = b""
    owner: int = 0

    @property
    def name(self) -> str:
        """Name of the kind; "kind N" for one of a later version."""
        return KIND_NAMES.get(self.kind, f"kind {self.kind}")

    def pack(self, heap_offset: int = 0) -> bytes:
        """The 64 octets; `heap_offset`: of the heap entry in the heap. Raises: struct.error (out of range)."""
        return RECORD.pack(
            self.ts_us, self.msg_id, self.arg, heap_offset, self.kind, self.flags, self.priority, self.reason,
            self.address_id, self.queue_id, self.consumer_id, self.conn_id, self.attempt, self.owner, self.size,
            len(self.heap), self.link,
        )  # fmt: skip


Fields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, int]


def from_fields(fields: Fields, heap: bytes) -> Record:
    """A record from the result of `RECORD.unpack` and its heap entry."""
    (
        ts_us, msg_id, arg, _, kind, flags, priority, reason,
        address, queue, consumer, conn, attempt, owner, size, _, link,
    ) = fields  # fmt: skip
    return Record(
        kind, ts_us, msg_id, arg, flags, priority, reason,
        address, queue, consumer, conn, attempt, size, link, heap, owner,
    )  # fmt: skip
