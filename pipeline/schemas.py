"""What is in each table of the lake, column by column: the contract between `ingest` and every job.

Times are microseconds since 1970 UTC, as Spark's `timestamp` (session time zone UTC). `?` in these pages is nullable
here. Text that a row has nothing to say in is "" where the column is not nullable. All tables but `segments` and
`checkpoints` are partitioned by `date`, the UTC day of `ts`, which is no column of the source.
Source: Spark page 3; rulings, "Events".
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow


class Column(NamedTuple):
    """`type`: Spark's simple name (bigint, int, smallint, tinyint, string, binary, timestamp)."""

    name: str
    type: str
    nullable: bool = False


Columns = tuple[Column, ...]


def columns(*texts: str) -> Columns:
    """Of `msg_id bigint, consumer string?`: what may be null has a question mark."""
    found = []
    for text in ", ".join(texts).split(", "):
        name, type_ = text.split(" ")
        found.append(Column(name, type_.rstrip("?"), type_.endswith("?")))
    return tuple(found)


EVENTS: Columns = (
    #: Of the journal's record. A record that stands for many messages (a purge, a deleted queue) is a row for each of
    #: them, all with its LSN; so (lsn, msg_id) is unique, and lsn alone is not.
    Column("lsn", "bigint"),
    Column("ts", "timestamp"),
    #: The event's word: published, enqueued, delivered, acked, ...; nothing that a checkpoint only says again.
    Column("kind", "string"),
    #: 0: the event is about no message. Unique for ever in a journal, rising in the order of publishing.
    Column("msg_id", "bigint"),
    Column("vhost", "string"),
    #: The exchange published to; of a dead letter its target.
    Column("address", "string"),
    Column("queue", "string"),
    Column("consumer", "string", True),
    #: 0: unknown.
    Column("conn_id", "int"),
    #: Of delivered, requeued and scheduled: deliveries so far that counted, this one too; so a first attempt is 1.
    Column("attempt", "smallint"),
    #: 1 durable, 2 kept (acked, but the queue keeps it), 4 range, 32 redelivered.
    Column("flags", "tinyint"),
    Column("priority", "tinyint"),
    #: rejected, expired, maxlen, delivery_limit; of `requeued` nacked, rejected, recovered, lost, closed, ...; the name
    #: of a connection, the tag of a consumer, settings as JSON. A `settings_changed` with reason and without vhost is
    #: the start of a broker with scope "all": transient messages (flag durable not set) of before are gone.
    Column("reason", "string", True),
    #: Milliseconds from `ts` until the message expires (published, enqueued) or is due (requeued, scheduled).
    Column("arg_ms", "bigint", True),
    #: Octets of body; known for published and enqueued, else 0.
    Column("size_bytes", "int"),
    Column("segment", "string"),
)

#: Opt-in: contents as they were published.
PAYLOADS: Columns = (
    Column("lsn", "bigint"),
    Column("ts", "timestamp"),
    Column("msg_id", "bigint"),
    #: The message that this one is a dead-lettered copy of; 0: none.
    Column("cause_id", "bigint"),
    Column("vhost", "string"),
    #: The exchange published to, and the routing key.
    Column("address", "string"),
    Column("routing_key", "string"),
    #: The `headers` property, and all others, as JSON; octets that are no UTF-8 are base64 in {"$binary": ...}.
    Column("headers_json", "string"),
    Column("properties_json", "string"),
    Column("body", "binary"),
    Column("segment", "string"),
)

#: What the journal itself says was in which durable queue, at its checkpoints: a row a message. `lsn` is that of the
#: snapshot record: what the events below it say of the queue must agree.
SNAPSHOTS = columns("lsn bigint, ts timestamp, queue string, vhost string, msg_id bigint")

#: A row a whole checkpoint: the snapshots with begin_lsn <= lsn < end_lsn are all that was in durable queues (an empty
#: queue has no row there).
CHECKPOINTS = columns("begin_lsn bigint, end_lsn bigint, ts timestamp")

#: A row a segment that ingest has begun with. `scope`: "durable" or "all"; deliveries and transient messages are
#: recorded in "all" alone, so what needs them is "not recorded" otherwise. `fsync`: never, interval, commit.
SEGMENTS = columns(
    "segment string, base_lsn bigint, ts timestamp, scope string, fsync string, program string",
)

TABLES: dict[str, Columns] = {
    "events": EVENTS,
    "payloads": PAYLOADS,
    "snapshots": SNAPSHOTS,
    "checkpoints": CHECKPOINTS,
    "segments": SEGMENTS,
}
#: Those that grow by rows a message.
BY_DATE = ("events", "payloads", "snapshots")


def chosen(table: str, names: Sequence[str] | None = None) -> Columns:
    """Columns of a table, all or those named, in the table's order. Raises: ValueError."""
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
    """As Spark reads it: `lsn bigint NOT NULL, ...`."""
    return ", ".join(f"{column.name} {column.type}{'' if column.nullable else ' NOT NULL'}" for column in wanted)


def arrow(wanted: Columns) -> "pyarrow.Schema":
    """As Arrow has it: the same names, types and nullability, or Spark refuses the batches."""
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
