"""The columns of each job's table. Source: Spark page 3."""

from ..engines.protocol import Dialect
from ..schemas import Columns, columns

#: `fate`: the kind of the terminal event; `open`: in the queue; `ended`: transient, and the broker was restarted since;
#: `unknown`: what came of it may be in a hole.
MESSAGE_FATE = columns(
    "msg_id bigint, vhost string, queue string, enqueued_ts timestamp?, first_delivered_ts timestamp?",
    "finished_ts timestamp?, fate string, attempts smallint, enqueues bigint, terminals bigint",
)
#: `fault`: lost, duplicate, reordered, unexpected. `detail` is a sentence with the LSNs. The table `unknown`, of a lake
#: with holes, has the same columns: what would be a fault if a hole did not begin before, whose records may explain it.
FAULTS = columns(
    "fault string, msg_id bigint, vhost string, queue string, lsn bigint, detail string",
)
#: Of a cluster that more than one node has led: what came twice since a takeover may do that, and is no fault.
#: `duplicate`: `published again` (with contents: the same message id, by message `first_id` before the takeover) or
#: `delivered again`. `led_lsn`: the record of the takeover.
ALLOWED = columns(
    "duplicate string, msg_id bigint, first_id bigint, vhost string, queue string, lsn bigint, led_lsn bigint",
    "detail string",
)
#: Milliseconds. queue: enqueued to first delivery; service: last delivery to ack; e2e: enqueued to ack. By the window
#: of enqueueing. `n`: messages that were delivered. service includes the wait in the client, behind those messages that
#: its prefetch brought before.
LATENCY = columns(
    "vhost string, queue string, window_start timestamp, window_s int, n bigint",
    *(f"{what}_ms_{point} double?" for what in ("queue", "service", "e2e") for point in ("p50", "p95", "p99", "p999")),
)
#: Messages in the queue, unacked and scheduled ones too. `depth_min`, `depth_max`: of every moment of the window.
#: `bytes_end`: octets of body.
DEPTH = columns(
    "vhost string, queue string, window_start timestamp, window_s int, depth_end bigint, depth_min bigint",
    "depth_max bigint, in_per_s double, out_per_s double, bytes_end bigint",
)
#: One row per message that was redelivered or died. `attempts`: as the broker counted them; after a kill it begins
#: anew. `leases_ended`: how many of its leases ended otherwise than by an
#: acknowledgement (those that were returns count among `requeues`, too). `poison`: its attempts were used up, or
#: reached the given number, or consumers failed with it (gave it back, were lost with it, let its lease end) as often.
#: One that was rejected for good before that is dead, and no poison. `backoff_ms`: `arg_ms` of each return with a
#: delay, in their order: from the time of its record until the message was due again, which is at most the delay.
REDELIVERY = columns(
    "vhost string, queue string, msg_id bigint, attempts smallint, requeues bigint, leases_ended bigint",
    "dead boolean, poison boolean, backoff_ms array<bigint>, last_consumer string?, last_reason string?",
    "last_ts timestamp",
)
#: Messages removed otherwise than by an acknowledgement. `cause`: the kind of the event. `n`: those that were lost;
#: `bytes`: their octets, null if not known. `moved`: a copy arrived in another queue (a dead letter, or one that was
#: moved); what becomes of that is in the rows of that queue. `refused`: never in the queue, and the publisher was told.
#: `discarded`: removed on purpose, by a ring, a queue of last values, the retention of a stream or of a non-destructive
#: queue, or an operator (purged, deleted, cancelled). `age_ms`: of all of them, since they were enqueued.
LOSS = columns(
    "vhost string, queue string, window_start timestamp, cause string, n bigint, bytes bigint?",
    "moved bigint, refused bigint, discarded bigint",
    "age_ms_p50 double?, age_ms_p99 double?, age_ms_max double?",
)
#: `share`: of the queue's deliveries. `leases_ended`: of this consumer's leases those that its acknowledgement did not
#: end. `service_ms`: delivery to ack, with the wait in the client (see LATENCY).
FAIRNESS = columns(
    "vhost string, queue string, consumer string, conn_id int, connection string?, deliveries bigint, share double",
    "acked bigint",
    "leases_ended bigint, service_ms_p50 double?, service_ms_p95 double?, service_ms_max double?",
)
#: `until`, `waited_ms`: null while the connection still waits.
BLOCKED = columns(
    "vhost string, conn_id int, connection string, destination string, limit string, since timestamp",
    "until timestamp?, waited_ms bigint?",
)
#: `cause_id`: the message that this one is a copy of.
TRACE = columns(
    "lsn bigint, ts timestamp, msg_id bigint, cause_id bigint?, kind string, vhost string, address string",
    "queue string, consumer string?, attempt smallint, reason string?, arg_ms bigint?",
)
#: `outcome`: arrived (a copy is or was in the queues `arrived_in`), nowhere (no queue took it, or its exchange was not
#: there), gone (no copy was made), not recorded (copies are known only with `ingest --payloads`, and those that no
#: queue took only with scope "all"). `target`: the exchange of the copies, "" the default one, null without a copy.
#: `samples`: up to five message ids.
DEADLETTERS = columns(
    "vhost string, queue string, kind string, reason string?, outcome string, target string?",
    "arrived_in array<string>, n bigint, first_ts timestamp, last_ts timestamp, attempts_max smallint",
    "last_consumer string?, samples array<bigint>",
)
#: `sent`: 0 chosen and about to be sent, 1 confirmed by the broker. `node`: whose message; null in a lake of one.
REPLAY_LOG = columns(
    "replay_id string, msg_id bigint, source_lsn bigint, address string, ts timestamp, sent int, node string?",
)
#: What the engine would have done with the same arrivals, beside what the journal recorded. `untold`: by how many
#: `would_be` may be wrong, because it is not recorded in which order things happened within a millisecond; it matters
#: where one message makes another go, or goes before it: in rings, and queues with limits, priorities or last values.
WHATIF = columns(
    "vhost string, queue string, what string, was bigint, would_be bigint, untold bigint",
)


def conform(dialect: Dialect, sql: str, wanted: Columns) -> str:
    """The columns of a schema, in its order and of its types."""
    listed = ", ".join(f"CAST(`{name}` AS {dialect.type(type_)}) AS `{name}`" for name, type_, _ in wanted)
    return f"SELECT {listed} FROM ({sql}) AS answer"


#: The begin of a window of `window_s` seconds, from a time in seconds.
WINDOW = "({second} - {second} % {window_s})"
#: Milliseconds between two timestamps, with its microseconds.
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
