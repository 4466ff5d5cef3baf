"""The columns and the order of each job's table, and SQL that jobs share. Source: Spark page 3."""

from ..engines.protocol import Dialect
from ..schemas import Columns, columns

#: `fate`: the kind of the terminal event; or `open`: in the queue; `ended`: transient, and the broker was started
#: since; `unknown`: its end may be in a hole.
MESSAGE_FATE = columns(
    "msg_id bigint, vhost string, queue string, enqueued_ts timestamp?, first_delivered_ts timestamp?",
    "finished_ts timestamp?, fate string, attempts smallint, enqueues bigint, terminals bigint",
)
#: `fault`: lost, duplicate, reordered, unexpected. `detail`: a sentence with the LSNs. A lake with holes has also a
#: table `unknown` with the same columns: faults that the records of an earlier hole may explain.
FAULTS = columns(
    "fault string, msg_id bigint, vhost string, queue string, lsn bigint, detail string",
)
#: Only for a cluster with several leaders: duplicates that a takeover allows, which are not faults. `duplicate`:
#: `published again` (found with contents: message `first_id`, before the takeover, has the same message id) or
#: `delivered again`. `led_lsn`: the record of the takeover.
ALLOWED = columns(
    "duplicate string, msg_id bigint, first_id bigint, vhost string, queue string, lsn bigint, led_lsn bigint",
    "detail string",
)
#: Milliseconds, by the window in which messages were enqueued. queue: from enqueued to first delivery; service: from
#: last delivery to ack, with the wait in the client behind prefetched messages; e2e: from enqueued to ack. `n`:
#: delivered messages.
LATENCY = columns(
    "vhost string, queue string, window_start timestamp, window_s int, n bigint",
    *(f"{what}_ms_{point} double?" for what in ("queue", "service", "e2e") for point in ("p50", "p95", "p99", "p999")),
)
#: Messages in the queue, unacknowledged and scheduled ones included. `depth_min`, `depth_max`: at any time in the
#: window. `bytes_end`: octets of bodies.
DEPTH = columns(
    "vhost string, queue string, window_start timestamp, window_s int, depth_end bigint, depth_min bigint",
    "depth_max bigint, in_per_s double, out_per_s double, bytes_end bigint",
)
#: One row per message that was redelivered or died. `attempts`: as the broker counts, anew after a kill.
#: `redeliveries`: deliveries after the first one in this queue; of a stream or a non-destructive queue only those to
#: the same consumer, because each consumer gets a first one.
#: `leases_ended`: leases that did not end with an acknowledgement; returns among them count in `requeues`, too.
#: `poison`: the message used up its attempts; or --poison-attempts is reached by its attempts, or by its returns from
#: failing consumers (rejected, lost, lease ended). A message rejected for good before that is dead, not poison.
#: `backoff_ms`: for each return with a delay, in order, the milliseconds from its record until the message was due.
REDELIVERY = columns(
    "vhost string, queue string, msg_id bigint, attempts smallint, redeliveries bigint, requeues bigint",
    "leases_ended bigint, dead boolean, poison boolean, backoff_ms array<bigint>, last_consumer string?",
    "last_reason string?, last_ts timestamp",
)
#: Messages removed without an acknowledgement. `cause`: the kind of the event. `n`: lost messages; `bytes`: their
#: octets, null if not known. `moved`: a copy arrived in another queue, as a dead letter or by a move, and counts there.
#: `refused`: never in the queue, and the publisher knows. `discarded`: removed on purpose: by a ring, a last-value
#: queue, or the retention of a stream or a non-destructive queue; because a client or an operator purged or deleted the
#: queue, or an operator cancelled the message; or because an unused queue expired. `age_ms`: since enqueueing, of all
#: messages of the row.
LOSS = columns(
    "vhost string, queue string, window_start timestamp, cause string, n bigint, bytes bigint?",
    "moved bigint, refused bigint, discarded bigint",
    "age_ms_p50 double?, age_ms_p99 double?, age_ms_max double?",
)
#: `share`: the consumer's part of the queue's deliveries. `leases_ended`: its leases that did not end with its
#: acknowledgement. `service_ms`: from delivery to ack, with the wait in the client (see LATENCY).
FAIRNESS = columns(
    "vhost string, queue string, consumer string, conn_id int, connection string?, deliveries bigint, share double",
    "acked bigint",
    "leases_ended bigint, service_ms_p50 double?, service_ms_p95 double?, service_ms_max double?",
)
#: `until`, `waited_ms`: null while the connection still waits. A wait that was not over when a broker was started again
#: counts up to that start.
BLOCKED = columns(
    "vhost string, conn_id int, connection string, destination string, limit string, since timestamp",
    "until timestamp?, waited_ms bigint?",
)
#: `cause_id`: the message of which this one is a copy.
TRACE = columns(
    "lsn bigint, ts timestamp, msg_id bigint, cause_id bigint?, kind string, vhost string, address string",
    "queue string, consumer string?, attempt smallint, reason string?, arg_ms bigint?",
)
#: `outcome`: arrived (a copy was in the queues `arrived_in`), nowhere (the copy was routed to no queue, or its exchange
#: did not exist), gone (no copy was made), not recorded (copies are known only with `ingest --payloads`, and copies in
#: no queue only with scope "all"). `target`: the exchange of the copies; "": the default one; null: there is no copy.
#: `samples`: up to five message ids.
DEADLETTERS = columns(
    "vhost string, queue string, kind string, reason string?, outcome string, target string?",
    "arrived_in array<string>, n bigint, first_ts timestamp, last_ts timestamp, attempts_max smallint",
    "last_consumer string?, samples array<bigint>",
)
#: `sent`: 0: about to be sent; 1: confirmed by the broker. `node`: of the message; null in a lake with one node.
REPLAY_LOG = columns(
    "replay_id string, msg_id bigint, source_lsn bigint, address string, ts timestamp, sent int, node string?",
)
#: Counts for the same arrivals under other settings (`would_be`), beside the recorded ones (`was`). `margin`: the
#: possible error of `would_be`: the journal does not record the order within a millisecond, which matters in rings, in
#: queues with limits, priorities or last values, and where the broker stopped.
WHATIF = columns(
    "vhost string, queue string, what string, was bigint, would_be bigint, margin bigint",
)


def conform(dialect: Dialect, sql: str, wanted: Columns) -> str:
    """SQL whose columns have the order and types of a schema."""
    listed = ", ".join(f"CAST(`{name}` AS {dialect.type(type_)}) AS `{name}`" for name, type_, _ in wanted)
    return f"SELECT {listed} FROM ({sql}) AS answer"


#: SQL: the beginning of the window of a time in seconds.
WINDOW = "({second} - {second} % {window_s})"
#: SQL: milliseconds between two timestamps, with fractions.
MS_BETWEEN = "((unix_micros({end}) - unix_micros({begin})) / 1000)"
#: The order of each job's rows.
ORDERS = {
    "audit": "msg_id, vhost, queue, lsn, fault, detail",
    "unknown": "msg_id, vhost, queue, lsn, fault, detail",
    "allowed": "lsn, msg_id, duplicate, queue",
    "fates": "msg_id, vhost, queue",
    "latency": "vhost, queue, window_start",
    "depth": "vhost, queue, window_start",
    "redelivery": "poison DESC, attempts DESC, vhost, queue, msg_id",
    "loss": "vhost, queue, window_start, cause",
    "fairness": "vhost, queue, consumer, conn_id",
    "blocked": "until, waited_ms DESC, since, vhost, conn_id, destination, `limit`",
    "trace": "lsn, msg_id, kind, queue",
    "deadletters": "n DESC, vhost, queue, kind, reason, outcome, target, arrived_in",
    "whatif": "vhost, queue, what",
}
