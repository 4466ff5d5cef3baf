"""What is in each job's table, column by column. Source: Spark page, section 3."""

from typing import Any

from ..schemas import Column, Columns

MESSAGE_FATE: Columns = (
    Column("msg_id", "bigint"),
    Column("vhost", "string"),
    Column("queue", "string"),
    Column("enqueued_ts", "timestamp", True),
    Column("first_delivered_ts", "timestamp", True),
    Column("finished_ts", "timestamp", True),
    #: A terminal event's word; `open`: in the queue; `ended`: transient, and the broker was started anew since.
    Column("fate", "string"),
    Column("attempts", "smallint"),
    Column("enqueues", "bigint"),
    Column("terminals", "bigint"),
)
#: `fault`: lost, duplicate, reordered, unexpected. `detail` is a sentence with the LSNs.
FAULTS: Columns = (
    Column("fault", "string"),
    Column("msg_id", "bigint"),
    Column("vhost", "string"),
    Column("queue", "string"),
    Column("lsn", "bigint"),
    Column("detail", "string"),
)
#: Milliseconds. queue: enqueued to first delivery; service: last delivery to ack; e2e: enqueued to ack. By the window
#: of enqueueing. `n`: messages that were delivered.
LATENCY: Columns = (
    Column("vhost", "string"),
    Column("queue", "string"),
    Column("window_start", "timestamp"),
    Column("window_s", "int"),
    Column("n", "bigint"),
    *(
        Column(f"{what}_ms_{point}", "double", True)
        for what in ("queue", "service", "e2e")
        for point in ("p50", "p95", "p99", "p999")
    ),
)
#: Messages in the queue, unacked and scheduled ones too. `bytes_end`: octets of body.
DEPTH: Columns = (
    Column("vhost", "string"),
    Column("queue", "string"),
    Column("window_start", "timestamp"),
    Column("window_s", "int"),
    Column("depth_end", "bigint"),
    Column("depth_min", "bigint"),
    Column("depth_max", "bigint"),
    Column("in_per_s", "double"),
    Column("out_per_s", "double"),
    Column("bytes_end", "bigint"),
)
#: A row a message that came back or died. `poison`: it died of its attempts, or had as many as were asked for.
REDELIVERY: Columns = (
    Column("vhost", "string"),
    Column("queue", "string"),
    Column("msg_id", "bigint"),
    Column("attempts", "smallint"),
    Column("requeues", "bigint"),
    Column("dead", "boolean"),
    Column("poison", "boolean"),
    Column("backoff_ms", "array<bigint>"),
    Column("last_consumer", "string", True),
    Column("last_reason", "string", True),
    Column("last_ts", "timestamp"),
)
#: What left unread. `cause`: evicted, replaced, expired, dropped, killed. `age_ms`: since it was enqueued.
LOSS: Columns = (
    Column("vhost", "string"),
    Column("queue", "string"),
    Column("window_start", "timestamp"),
    Column("cause", "string"),
    Column("n", "bigint"),
    Column("bytes", "bigint"),
    Column("age_ms_p50", "double", True),
    Column("age_ms_p99", "double", True),
    Column("age_ms_max", "double", True),
)
#: `share`: of the queue's deliveries. `service_ms`: delivery to ack.
FAIRNESS: Columns = (
    Column("vhost", "string"),
    Column("queue", "string"),
    Column("consumer", "string"),
    Column("conn_id", "int"),
    Column("deliveries", "bigint"),
    Column("share", "double"),
    Column("acked", "bigint"),
    Column("service_ms_p50", "double", True),
    Column("service_ms_p95", "double", True),
    Column("service_ms_max", "double", True),
)
#: `cause_id`: the message that this one is a copy of.
TRACE: Columns = (
    Column("lsn", "bigint"),
    Column("ts", "timestamp"),
    Column("msg_id", "bigint"),
    Column("cause_id", "bigint", True),
    Column("kind", "string"),
    Column("vhost", "string"),
    Column("address", "string"),
    Column("queue", "string"),
    Column("consumer", "string", True),
    Column("attempt", "smallint"),
    Column("reason", "string", True),
    Column("arg_ms", "bigint", True),
)
#: `target`: where the copies went, "" nowhere. `samples`: up to five message ids.
DEADLETTERS: Columns = (
    Column("vhost", "string"),
    Column("queue", "string"),
    Column("kind", "string"),
    Column("reason", "string", True),
    Column("target", "string"),
    Column("n", "bigint"),
    Column("first_ts", "timestamp"),
    Column("last_ts", "timestamp"),
    Column("attempts_max", "smallint"),
    Column("last_consumer", "string", True),
    Column("samples", "array<bigint>"),
)
#: `sent`: 0 chosen in a dry run, 1 confirmed by the broker.
REPLAY_LOG: Columns = (
    Column("replay_id", "string"),
    Column("msg_id", "bigint"),
    Column("source_lsn", "bigint"),
    Column("address", "string"),
    Column("ts", "timestamp"),
    Column("sent", "int"),
)
#: What the engine would have done with the same arrivals, beside what the journal says was done.
WHATIF: Columns = (
    Column("vhost", "string"),
    Column("queue", "string"),
    Column("what", "string"),
    Column("was", "bigint"),
    Column("would_be", "bigint"),
)


def conform(frame: Any, columns: Columns) -> Any:
    """The columns of a schema, in its order and of its types."""
    return frame.selectExpr(*(f"CAST(`{name}` AS {type_}) AS `{name}`" for name, type_, _ in columns))
