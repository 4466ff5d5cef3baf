"""The columns of each table of the lake: the contract between `ingest` and the jobs.

Times are Spark's `timestamp`, microseconds since 1970, with the session's time zone UTC. `?` means nullable. A text
without a value is "" if the column is not nullable. The tables `BY_DATE` are partitioned by `date`, the UTC day of
`ts`, which is not a column of the source.
Source: Spark page 3; rulings, "Events".
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow


class Column(NamedTuple):
    """A column. `type`: Spark's simple name (bigint, int, smallint, tinyint, string, binary, timestamp)."""

    name: str
    type: str
    nullable: bool = False


Columns = tuple[Column, ...]


def columns(*texts: str) -> Columns:
    """Parse texts such as `msg_id bigint, consumer string?`. The question mark means nullable."""
    found = []
    for text in ", ".join(texts).split(", "):
        name, type_ = text.split(" ")
        found.append(Column(name, type_.rstrip("?"), type_.endswith("?")))
    return tuple(found)


EVENTS: Columns = (
    #: The LSN of the record. A record for many messages (a purge, a deleted queue) is one row for each message, with
    #: the same LSN: (lsn, msg_id) is unique, lsn alone is not.
    Column("lsn", "bigint"),
    Column("ts", "timestamp"),
    #: The kind of event: published, enqueued, delivered, acked, ...; not the copies in a checkpoint.
    Column("kind", "string"),
    #: 0: an event without a message. Unique in a journal, and rises in the order of publishing.
    Column("msg_id", "bigint"),
    Column("vhost", "string"),
    #: The exchange to which it was published; for a dead letter its target.
    Column("address", "string"),
    Column("queue", "string"),
    Column("consumer", "string", True),
    #: 0: unknown.
    Column("conn_id", "int"),
    #: Events delivered, requeued, scheduled, lease_ended: the number of the delivery; the first is 1.
    Column("attempt", "smallint"),
    #: 1 durable, 2 kept (acked, but the queue keeps it), 4 range (the record is for many messages), 32 redelivered.
    Column("flags", "tinyint"),
    Column("priority", "tinyint"),
    #: Depends on the kind. Of a dead message why it died: rejected, expired, maxlen, delivery_limit. Of `requeued`:
    #: nacked, rejected, recovered, lost, closed, ...; of `lease_ended` also deadline, unsubscribed, taken_over,
    #: lifetime, site_lost. Of connections: the name. Of consumers: the tag. Of `blocked`: what a publisher waits for,
    #: as JSON. Of `declared`: the arguments of a queue as JSON. Of `settings_changed`: the settings as JSON. Of the
    #: events of a cluster (led, followed, in_sync_changed, held, suspended): the node and why, as JSON. Of
    #: `transferred`: from and to, as JSON.
    #: A `settings_changed` with reason and without vhost is the start of a broker with scope "all": earlier transient
    #: messages (flag durable not set) ended there.
    Column("reason", "string", True),
    #: Milliseconds from `ts` until the message expires (published, enqueued) or is due (requeued, scheduled).
    Column("arg_ms", "bigint", True),
    #: Octets of body; known for published and enqueued, else 0.
    Column("size_bytes", "int"),
    Column("segment", "string"),
    #: Events `published`: the message of which this one is a dead-lettered or moved copy; null: none, or an older
    #: release wrote the row.
    Column("cause_id", "bigint", True),
)

#: Opt-in: contents as they were published.
PAYLOADS: Columns = (
    Column("lsn", "bigint"),
    Column("ts", "timestamp"),
    Column("msg_id", "bigint"),
    #: The message of which this one is a dead-lettered copy; 0: none.
    Column("cause_id", "bigint"),
    Column("vhost", "string"),
    #: The exchange to which it was published, and the routing key.
    Column("address", "string"),
    Column("routing_key", "string"),
    #: The property `headers`, and all others, as JSON; octets that are not UTF-8 are base64 in {"$binary": ...}.
    Column("headers_json", "string"),
    Column("properties_json", "string"),
    Column("body", "binary"),
    Column("segment", "string"),
)

#: The messages in durable queues at the checkpoints of the journal: one row per message. `lsn`: of the snapshot record.
#: The events below it give the same contents of the queue.
SNAPSHOTS = columns("lsn bigint, ts timestamp, queue string, vhost string, msg_id bigint")

#: One row per complete checkpoint: the snapshots with begin_lsn <= lsn < end_lsn are all messages in durable queues (an
#: empty queue has no row there).
CHECKPOINTS = columns("begin_lsn bigint, end_lsn bigint, ts timestamp")

#: One row per segment. `scope`: "durable" or "all". Deliveries and transient messages are recorded only with "all";
#: without it jobs that need them report "not recorded". `fsync`: never, interval, commit.
SEGMENTS = columns(
    "segment string, base_lsn bigint, ts timestamp, scope string, fsync string, program string",
)

#: Holes of the journal: records that are damaged, missing, deleted before they were read, or lost before a repair.
#: `journal`: its id. `octets`: the unreadable part of the file; null: it is missing. `before_ts`, `after_ts`: times of
#: the records around the hole; null: not known.
HOLES = columns(
    "journal string, first_lsn bigint, last_lsn bigint, why string, segment string, file_offset bigint, octets bigint?",
    "before_ts timestamp?, after_ts timestamp?",
)

#: Columns that the lake adds to each table: the node's name and its journal's id. Both are null in rows that an older
#: release wrote: these are of the first node.
NODE = columns("node string?, journal string?")
#: One row for each node of the lake. `ts`: when it was added.
NODES = columns("node string, journal string, ts timestamp")

TABLES: dict[str, Columns] = {
    "events": EVENTS,
    "payloads": PAYLOADS,
    "snapshots": SNAPSHOTS,
    "checkpoints": CHECKPOINTS,
    "segments": SEGMENTS,
    "holes": HOLES,
}
#: Tables with rows for each message.
BY_DATE = ("events", "payloads", "snapshots")
#: Columns whose minimum and maximum in each file are in the lake's log, so that readers can skip files.
STATISTICS = (
    "lsn", "ts", "msg_id", "vhost", "queue", "base_lsn", "begin_lsn", "end_lsn", "last_lsn", "node", "journal",
)  # fmt: skip


def stored(table: str) -> Columns:
    """The columns of a table in the lake, without `date`. A name that is not in `TABLES` means the table of nodes."""
    if table not in TABLES:
        return NODES
    own = TABLES[table]
    return (*own, *(column for column in NODE if column.name not in [one.name for one in own]))


def chosen(table: str, names: Sequence[str] | None = None) -> Columns:
    """The columns of a table in its order: those with these names; None: all. Raises: ValueError."""
    if table not in TABLES:
        raise ValueError(f"there is no table {table!r}; there are {', '.join(TABLES)}")
    all_of_it = TABLES[table]
    if names is None:
        return all_of_it
    known = [column.name for column in all_of_it]
    for name in names:
        if name not in known:
            raise ValueError(f"table {table!r} has no column {name!r}; it has {', '.join(known)}")
    if not names:
        raise ValueError("no column is named")
    return tuple(column for column in all_of_it if column.name in names)


def ddl(wanted: Columns) -> str:
    """A schema for Spark: `lsn bigint NOT NULL, ...`."""
    return ", ".join(f"{column.name} {column.type}{'' if column.nullable else ' NOT NULL'}" for column in wanted)


def arrow(wanted: Columns) -> "pyarrow.Schema":
    """A schema for Arrow, with the names, types and nullability of `ddl`: otherwise Spark would refuse batches."""
    import pyarrow

    types = {
        "bigint": pyarrow.int64(),
        "int": pyarrow.int32(),
        "smallint": pyarrow.int16(),
        "tinyint": pyarrow.int8(),
        "string": pyarrow.string(),
        "binary": pyarrow.binary(),
        "timestamp": pyarrow.timestamp("us", tz="UTC"),
    }
    return pyarrow.schema([pyarrow.field(name, types[type_], nullable) for name, type_, nullable in wanted])
