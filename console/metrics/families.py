"""RabbitMQ's families, in groups, with our help texts (management page 12.1)."""

from .exposition import COUNTER, GAUGE, HISTOGRAM, UNTYPED, Family


def _families(kind: str, **helps: str) -> tuple[Family, ...]:
    suffix = "_total" if kind == COUNTER else ""
    return tuple(Family(name + suffix, kind, text) for name, text in helps.items())


IDENTITY = _families(
    UNTYPED,
    build_info="Versions: of RabbitMQ as clients see it, and our own",
    identity_info="Node and cluster; exactly one series an instance",
)
ALARMS = _families(
    UNTYPED,
    alarms_file_descriptor_limit="1 while connections are refused because no descriptor is free",
    alarms_free_disk_space_watermark="1 while the disk is full or fails, and publishers wait",
    alarms_memory_used_watermark="1 while publishers wait for memory, or by an operator's order",
)
CHURN = _families(
    COUNTER,
    connections_opened="Connections opened",
    connections_closed="Connections closed by either side",
    channels_opened="Channels opened",
    channels_closed="Channels closed by either side",
    queues_declared="Successful queue.declare, also of queues that were there",
    queues_created="Queues created",
    queues_deleted="Queues deleted for any reason",
)
OBJECTS = _families(
    GAUGE,
    connections="Open connections",
    channels="Open channels",
    consumers="Subscriptions",
    queues="Queues",
)
NODE = _families(
    GAUGE,
    process_open_fds="Open file descriptors",
    process_open_tcp_sockets="Open connections and listeners",
    process_resident_memory_bytes="Resident memory of the process",
    disk_space_available_bytes="Free space where the data are",
    erlang_processes_used="Tasks of the event loop",
    process_max_fds="Limit of file descriptors",
    process_max_tcp_sockets="Limit of sockets, which is the limit of descriptors",
    resident_memory_limit_bytes="Octets of memory beyond which messages are paged out or publishers wait",
    disk_space_available_limit_bytes="Octets that the journal leaves free on the disk",
    erlang_uptime_seconds="Seconds since the start",
)
GARBAGE = _families(COUNTER, erlang_gc_runs="Runs of the garbage collector")
PERSISTER = _families(
    COUNTER,
    io_read_ops="Reads of the journal (not counted: 0)",
    io_read_bytes="Octets read (not counted: 0)",
    io_write_ops="Blocks that the journal wrote",
    io_write_bytes="Octets that the journal wrote",
    io_sync_ops="Syncs of the journal",
    io_seek_ops="Always 0: the journal is only appended to",
    io_reopen_ops="Always 0: nothing is reopened",
    schema_db_ram_tx="Always 0: there is no such database",
    schema_db_disk_tx="Always 0: there is no such database",
    msg_store_read="Always 0: there is no message store beside the journal",
    msg_store_write="Always 0: there is no message store beside the journal",
    queue_index_read_ops="Always 0: there is no index of queues beside the journal",
    queue_index_write_ops="Always 0: there is no index of queues beside the journal",
    io_read_time_seconds="Seconds of reading (not counted: 0)",
    io_write_time_seconds="Seconds of writing (not counted: 0)",
    io_sync_time_seconds="Seconds of syncing the journal",
    io_seek_time_seconds="Always 0: the journal is only appended to",
)
LOGINS = _families(
    COUNTER,
    auth_attempts="Logins",
    auth_attempts_succeeded="Logins that succeeded",
    auth_attempts_failed="Logins that failed",
)
#: Families of queues. At /metrics they are sums.
QUEUE_COARSE = _families(
    GAUGE,
    queue_messages_ready="Messages that wait for a consumer",
    queue_messages_unacked="Messages delivered and not settled",
    queue_messages="Messages ready and unacknowledged",
)
QUEUE_METRICS = _families(
    GAUGE,
    queue_consumers="Subscriptions to the queue",
    queue_consumer_capacity="1 where there are consumers and no message waits for one, else 0",
    queue_consumer_utilisation="The same as the capacity",
    queue_process_memory_bytes="Memory of the queue and its messages, estimated",
    queue_messages_ram="Messages in memory",
    queue_messages_ram_bytes="Octets of bodies in memory, estimated where nothing limits them",
    queue_messages_ready_ram="Ready messages in memory",
    queue_messages_unacked_ram="Unacknowledged messages in memory",
    queue_messages_persistent="Messages that a restart brings back, estimated",
    queue_messages_persistent_bytes="Octets of bodies that a restart brings back, estimated",
    queue_messages_bytes="Octets of all bodies, estimated where nothing limits them",
    queue_messages_ready_bytes="Octets of bodies of ready messages, estimated",
    queue_messages_unacked_bytes="Octets of bodies of unacknowledged messages, estimated",
    queue_messages_paged_out="Messages that are only on disk",
    queue_messages_paged_out_bytes="Octets of bodies that are only on disk, estimated",
    queue_head_message_timestamp="Timestamp of the first message, if it has one",
)
QUEUE_COUNTERS = _families(
    COUNTER,
    queue_disk_reads="Always 0: reads are not counted by queue",
    queue_disk_writes="Always 0: the journal writes for all queues together",
)
QUEUE_PUBLISHED = _families(COUNTER, queue_messages_published="Messages that came into queues")
CHANNEL_GAUGES = _families(
    GAUGE,
    channel_consumers="Subscriptions of channels",
    channel_messages_unacked="Messages delivered on channels and not settled",
    channel_messages_unconfirmed="Publishes that are not confirmed yet",
    channel_messages_uncommitted="Publishes that wait for a commit",
    channel_acks_uncommitted="Acknowledgements that wait for a commit",
    consumer_prefetch="Prefetch of later consumers of the channels",
    channel_prefetch="Prefetch that all consumers of a channel share",
)
CHANNEL_COUNTERS = _families(
    COUNTER,
    channel_messages_published="Publishes",
    channel_messages_confirmed="Publishes that were confirmed",
    channel_messages_unroutable_returned="Unroutable publishes that were returned",
    channel_messages_unroutable_dropped="Unroutable publishes that were dropped",
    channel_get="Messages got without acknowledgement",
    channel_get_ack="Messages got with acknowledgement",
    channel_get_empty="Gets from empty queues",
    channel_messages_delivered="Messages delivered to consumers without acknowledgement",
    channel_messages_delivered_ack="Messages delivered to consumers with acknowledgement",
    channel_messages_redelivered="Messages delivered again",
    channel_messages_acked="Messages acknowledged",
)
CONNECTION_COARSE = _families(
    COUNTER,
    connection_incoming_bytes="Octets received",
    connection_outgoing_bytes="Octets sent",
)
CONNECTION_COUNTERS = _families(
    COUNTER,
    connection_incoming_packets="Reads from connections",
    connection_outgoing_packets="Writes to connections",
)
CONNECTION_GAUGES = _families(
    GAUGE,
    connection_pending_packets="Deliveries and answers that wait to be sent",
    connection_channels="Channels of connections",
)
GLOBAL = _families(
    COUNTER,
    global_messages_received="Publishes of clients",
    global_messages_received_confirm="Publishes of clients that want confirms",
    global_messages_routed="Publishes that reached a queue",
    global_messages_confirmed="Publishes that were confirmed",
    global_messages_unroutable_dropped="Unroutable publishes that were dropped",
    global_messages_unroutable_returned="Unroutable publishes that were returned",
)
GLOBAL_GAUGES = _families(
    GAUGE,
    global_publishers="Open channels that have published",
    global_consumers="Subscriptions",
)
GLOBAL_BY_TYPE = _families(
    COUNTER,
    global_messages_delivered="Messages delivered, to consumers and gets",
    global_messages_delivered_consume_manual_ack="Messages delivered to consumers with acknowledgement",
    global_messages_delivered_consume_auto_ack="Messages delivered to consumers without acknowledgement",
    global_messages_delivered_get_manual_ack="Messages got with acknowledgement",
    global_messages_delivered_get_auto_ack="Messages got without acknowledgement",
    global_messages_get_empty="Gets from empty queues",
    global_messages_redelivered="Messages delivered again",
    global_messages_acknowledged="Messages acknowledged",
)
DEAD_LETTERS = _families(
    COUNTER,
    global_messages_dead_lettered_maxlen="Messages that died because a queue was full",
    global_messages_dead_lettered_expired="Messages that expired",
    global_messages_dead_lettered_rejected="Messages that died because a consumer rejected them",
    global_messages_dead_lettered_delivery_limit="Messages that died after too many deliveries",
    global_messages_dead_lettered_confirmed="Always 0: dead letters are published, not confirmed",
)
MESSAGE_SIZE = Family("message_size_bytes", HISTOGRAM, "Sizes of bodies that clients published since the first scrape")
