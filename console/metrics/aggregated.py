"""The page `/metrics`: sums over all objects, first RabbitMQ's families, then ours. Source: management page 12.1."""

from collections.abc import Generator, Iterable

from ...engine import BODY_SIZE_BUCKETS, Broker
from ..options import ConsoleOptions
from ..views.nodes import is_memory_alarm
from ..views.queues import EMPTY_QUEUE_OCTETS, MESSAGE_OCTETS
from . import families as f
from .cluster import cluster_page
from .exposition import Family, Sample, histogram, labelled, rendered
from .facts import JournalFigures, MetricsFacts, ProcessFigures
from .leveret_page import leveret_page
from .sums import ALL_TYPES, COUNTS, ChannelSums, QueueSums, channel_sums, queue_sums

PREFIX = "rabbitmq_"
AMQP, STREAM = '{protocol="amqp091"}', '{protocol="stream"}'
#: Dead-letter strategy -> whether messages that die under it are dead-lettered.
STRATEGIES = {"disabled": False, "at_most_once": True}


def aggregated_page(
    broker: Broker, options: ConsoleOptions, facts: MetricsFacts, *, shows_names: bool
) -> Generator[None, None, list[str]]:
    """The steps to the parts of the page. `shows_names`: also the few samples that name objects."""
    queues = yield from queue_sums(broker)
    channels = yield from channel_sums(broker)
    process, journal = facts.process(), facts.journal()
    yield
    parts = [
        identity(options, broker, "aggregated", PREFIX),
        node_page(broker, options, process, journal, PREFIX),
        _objects(queues, channels),
        _queues(queues),
        _channels(broker, queues, channels),
        global_page(broker, queues, channels),
        _sizes(broker),
    ]
    yield
    cluster = options.cluster()
    return [
        *parts,
        leveret_page(broker, queues, channels, options, facts.delays, process, journal, shows_names=shows_names),
        "" if cluster is None else cluster_page(cluster),
    ]


def table(prefix: str, group: tuple[Family, ...], values: Iterable[float]) -> str:
    """A group of families that have one value each, and no labels."""
    return "".join(rendered(prefix, family, [Sample(value)]) for family, value in zip(group, values, strict=True))


def identity(options: ConsoleOptions, broker: Broker, endpoint: str, prefix: str) -> str:
    """The families with the versions and the name of the node. Dashboards join them with all others."""
    name, cluster = options.control.ask("cluster-name", {})["name"], options.cluster()
    versions = versions_of(options.version, options.product_version, options.python_version)
    return identity_of(
        options.node, name, options.node if cluster is None else cluster.name, versions, endpoint, prefix
    )


def versions_of(version: str, product_version: str, python_version: str) -> dict[str, str]:
    """The labels for versions: RabbitMQ's as clients see it, our own, Python's."""
    return {
        "rabbitmq_version": version,
        "prometheus_plugin_version": product_version,
        "prometheus_client_version": product_version,
        "erlang_version": python_version,
        "product_version": product_version,
        "product_name": "Leveret",
    }


def identity_of(node: str, cluster: str, permanent: str, versions: dict[str, str], endpoint: str, prefix: str) -> str:
    """The families of `identity`. `cluster`: the cluster's name, which may change. `permanent`: one that does not."""
    build, identity = f.IDENTITY
    labels = {
        "rabbitmq_node": node,
        "rabbitmq_cluster": cluster,
        "rabbitmq_cluster_permanent_id": f"leveret-{permanent}",
        "rabbitmq_endpoint": endpoint,
    }
    samples = [Sample(1, labelled(labels))]
    return rendered(prefix, build, [Sample(1, labelled(versions))]) + rendered(prefix, identity, samples)


def churn_page(broker: Broker, prefix: str) -> str:
    now = broker.context.activity
    counts = (
        now.connections_opened,
        now.connections_closed,
        now.channels_opened,
        now.channels_closed,
        now.queues_declared,
        now.queues_created,
        now.queues_deleted,
    )
    return table(prefix, f.CHURN, counts)


def logins_page(broker: Broker, prefix: str) -> str:
    rows = {f'{{protocol="{protocol}"}}': counts for protocol, counts in broker.users.attempts.items()}
    every, right, wrong = f.LOGINS
    return "".join(
        [
            rendered(prefix, every, [Sample(sum(counts), labels) for labels, counts in rows.items()]),
            rendered(prefix, right, [Sample(counts[0], labels) for labels, counts in rows.items()]),
            rendered(prefix, wrong, [Sample(counts[1], labels) for labels, counts in rows.items()]),
        ]
    )


def node_page(
    broker: Broker, options: ConsoleOptions, process: ProcessFigures, journal: JournalFigures | None, prefix: str
) -> str:
    """Families about the node: process, disk, alarms, churn, logins."""
    is_memory_low = is_memory_alarm(broker)
    lacks_descriptors = 0 < process.descriptors_max <= process.descriptors
    sockets = len(broker.connections) + len(options.listeners())
    uptime_s = (broker.context.clock.wall_ms() - options.started_ms) / 1000
    persister = dict.fromkeys((family.name for family in f.PERSISTER), 0.0)
    if journal is not None:
        persister["io_write_ops_total"] = journal.commits
        persister["io_write_bytes_total"] = journal.written
        persister["io_sync_ops_total"] = journal.syncs
        persister["io_sync_time_seconds_total"] = journal.sync_s
    return "".join(
        [
            table(prefix, f.ALARMS, (lacks_descriptors, broker.flow.disk.is_full, is_memory_low)),
            churn_page(broker, prefix),
            table(prefix, f.NODE, process.node_values(sockets, uptime_s)),
            table(prefix, f.GARBAGE, (process.collections,)),
            table(prefix, f.PERSISTER, tuple(persister.values())),
            logins_page(broker, prefix),
        ]
    )


def _objects(queues: QueueSums, channels: ChannelSums) -> str:
    return table(PREFIX, f.OBJECTS, (channels.connections, channels.channels, queues.consumers, queues.queues))


def _queues(sums: QueueSums) -> str:
    octets, all_ = sums.octets, sums.ready + sums.unacked
    in_memory = octets.ready + octets.unacked - octets.paged
    without_bodies = sums.queues * EMPTY_QUEUE_OCTETS + (all_ - sums.paged) * MESSAGE_OCTETS
    values = {
        "queue_process_memory_bytes": in_memory + without_bodies,
        "queue_messages_ram": all_ - sums.paged,
        "queue_messages_ram_bytes": in_memory,
        "queue_messages_ready_ram": sums.ready - sums.paged,
        "queue_messages_unacked_ram": sums.unacked,
        "queue_messages_persistent": octets.messages_persistent,
        "queue_messages_persistent_bytes": octets.persistent,
        "queue_messages_bytes": octets.ready + octets.unacked,
        "queue_messages_ready_bytes": octets.ready,
        "queue_messages_unacked_bytes": octets.unacked,
        "queue_messages_paged_out": sums.paged,
        "queue_messages_paged_out_bytes": octets.paged,
        "queue_consumers": sums.consumers,
    }
    parts = [table(PREFIX, f.QUEUE_COARSE, (sums.ready, sums.unacked, all_))]
    for family in f.QUEUE_METRICS:  # a family that has no sum gets no sample
        samples = [Sample(values[family.name])] if family.name in values else []
        parts.append(rendered(PREFIX, family, samples))
    parts.append(table(PREFIX, f.QUEUE_COUNTERS, (0, 0)))
    return "".join([*parts, table(PREFIX, f.QUEUE_PUBLISHED, (into_queues(sums),))])


def into_queues(sums: QueueSums) -> int:
    """The number of messages that clients published, counted in each queue that they entered."""
    return sums.count("enqueued") - sums.count("own")


def published(broker: Broker) -> int:
    """The number of messages that clients published. `Counters.published` includes those of the broker itself."""
    return broker.context.counters.published - broker.context.activity.own


def _channels(broker: Broker, queues: QueueSums, sums: ChannelSums) -> str:
    activity = broker.context.activity
    counts = {name: queues.count(name) for name in COUNTS}
    _, consumed, no_ack, got, got_no_ack, get_empty, redelivered, acked = _by_type(counts)
    gauges = (
        sums.consumers,
        sums.unacked,
        sums.unconfirmed,
        sums.uncommitted,
        sums.acks_uncommitted,
        sums.prefetch,
        sums.prefetch_total,
    )
    counters = (
        published(broker),
        sums.confirmed,
        activity.returned,
        activity.dropped,
        got_no_ack,
        got,
        get_empty,
        no_ack,
        consumed,
        redelivered,
        acked,
    )
    return (
        table(PREFIX, f.CHANNEL_GAUGES, gauges)
        + table(PREFIX, f.CHANNEL_COUNTERS, counters)
        + table(PREFIX, f.CONNECTION_COARSE, (sums.octets_in, sums.octets_out))
        + table(PREFIX, f.CONNECTION_COUNTERS, (sums.reads, sums.writes))
        + table(PREFIX, f.CONNECTION_GAUGES, (sums.pending, sums.channels))
    )


def global_page(broker: Broker, queues: QueueSums, channels: ChannelSums) -> str:
    """The families by protocol and by type of queue, which are the same on all pages."""
    activity = broker.context.activity
    by_protocol = (
        published(broker),
        channels.confirmable,
        into_queues(queues),
        channels.confirmed,
        activity.dropped,
        activity.returned,
    )
    parts = [
        rendered(PREFIX, family, [Sample(value, AMQP), Sample(0, STREAM)])
        for family, value in zip(f.GLOBAL, by_protocol, strict=True)
    ]
    for family, value in zip(f.GLOBAL_GAUGES, (channels.publishers, queues.consumers), strict=True):
        parts.append(rendered(PREFIX, family, [Sample(value, AMQP), Sample(0, STREAM)]))
    rows = {kind: _by_type(queues.counts[kind]) for kind in ALL_TYPES}
    for at, family in enumerate(f.GLOBAL_BY_TYPE):
        samples = [Sample(rows[kind][at], f'{{protocol="amqp091",queue_type="{kind}"}}') for kind in ALL_TYPES]
        parts.append(rendered(PREFIX, family, samples))
    return "".join([*parts, _dead_letters(queues)])


def _by_type(counts: dict[str, int]) -> tuple[int, ...]:
    """The counts in the order of `GLOBAL_BY_TYPE`."""
    got, got_no_ack, no_ack, delivered = (counts[name] for name in ("got", "got_no_ack", "no_ack", "delivered"))
    return (
        delivered,
        delivered - got - no_ack + got_no_ack,
        no_ack - got_no_ack,
        got - got_no_ack,
        got_no_ack,
        counts["get_empty"],
        counts["redelivered"],
        max(0, counts["acknowledged"] - no_ack),
    )


def _sizes(broker: Broker) -> str:
    """The histogram of the sizes of bodies. They are counted from the first scrape on."""
    sizes = broker.published_sizes()
    samples = histogram(BODY_SIZE_BUCKETS, sizes.counts, sizes.octets, 'protocol="amqp091"')
    return rendered(PREFIX, f.MESSAGE_SIZE, samples)


def _dead_letters(queues: QueueSums) -> str:
    parts = []
    for family in f.DEAD_LETTERS:
        reason = family.name.removeprefix("global_messages_dead_lettered_").removesuffix("_total")
        samples = []
        for kind in ALL_TYPES:
            for strategy, is_dead_lettered in STRATEGIES.items():
                count = queues.deaths[kind].get((reason, is_dead_lettered), 0)
                samples.append(Sample(count, f'{{queue_type="{kind}",dead_letter_strategy="{strategy}"}}'))
        parts.append(rendered(PREFIX, family, samples))
    return "".join(parts)
