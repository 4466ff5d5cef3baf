"""Families that only Leveret has, and those of any process."""

from collections import Counter
from operator import attrgetter

from ...engine import Broker, Client
from ..options import ConsoleOptions
from .buckets import Buckets
from .exposition import COUNTER, GAUGE, HISTOGRAM, UNTYPED, Family, Sample, histogram, labelled, rendered
from .facts import JournalFigures, ProcessFigures
from .sums import ChannelSums, QueueSums

PREFIX = "leveret_"
_paused = attrgetter("paused")
STATES = ("running", "full", "failed")


def leveret_page(
    broker: Broker,
    queues: QueueSums,
    channels: ChannelSums,
    options: ConsoleOptions,
    delays: Buckets,
    process: ProcessFigures,
    journal: JournalFigures | None,
    *,
    shows_names: bool,
) -> str:
    """The families with the prefix `leveret_`, and those of the process.

    `shows_names`: limits and waiting clients by address, and readers of the journal by name; else there are only the
    broker's limits, waiting clients by limit, and no readers.
    """
    # fmt: off
    parts = [
        build_info(options.product_version),
        _one("vhosts", GAUGE, "Virtual hosts", len(broker.virtual_hosts)),
        _one("queue_scheduled", GAUGE, "Scheduled messages", queues.scheduled),
        _one("queues_paused", GAUGE, "Queues that an operator has paused",
            sum(map(_paused, broker.virtual_hosts.queues()))),
        _one("queue_in_lease", GAUGE, "Messages of leased queues that are leased", queues.leased),
        _one("leases_ended_total", COUNTER, "Leases that expired, were broken or taken over",
            queues.count("lease_ended")),
        _one("ring_replaced_total", COUNTER, "Messages that newer ones replaced, in rings and as last values",
            queues.count("replaced")),
        _one("requeued_total", COUNTER, "Deliveries that were requeued at once", queues.count("requeued")),
        _one("redelivered_after_delay_total", COUNTER, "Deliveries that were requeued with a delay",
            queues.count("delayed")),
        _one("expired_total", COUNTER, "Messages that expired", queues.count("expired")),
        _one("dropped_total", COUNTER, "Messages refused by limits or as duplicates", queues.count("dropped")),
        _deaths(queues),
        _one("dead_letters_unroutable_total", COUNTER, "Dead letters that reached no queue and were dropped",
            broker.context.unroutable_letters.count),
        _one("alarm_replication", GAUGE, "1 while too few nodes of the cluster have the journal, and publishers wait",
            broker.flow.replication.is_full),
        *_flow(broker, channels, shows_names),
        _one("deadlines", GAUGE, "Deadlines that are set", len(broker.context.deadlines)),
        _many("turn_delay_seconds", HISTOGRAM,
            "Delays of the event loop, measured once a second",
            histogram(delays.bounds, delays.counts, delays.total)),
    ]
    # fmt: on
    if journal is not None:
        parts += _journal(journal, shows_names)
    return "".join(parts) + process_table(process, options.started_ms)


def build_info(product_version: str) -> str:
    return _one("build_info", UNTYPED, "The version", 1, labelled({"version": product_version}))


def _one(name: str, kind: str, text: str, value: float, labels: str = "") -> str:
    return rendered(PREFIX, Family(name, kind, text), [Sample(value, labels)])


def _many(name: str, kind: str, text: str, samples: list[Sample]) -> str:
    return rendered(PREFIX, Family(name, kind, text), samples)


def _deaths(queues: QueueSums) -> str:
    died = queues.all_deaths()
    reasons = ("delivery_limit", "expired", "maxlen", "rejected")
    letters = [Sample(died.get((reason, True), 0), f'{{reason="{reason}"}}') for reason in reasons]
    ends = [Sample(died.get((reason, False), 0), f'{{reason="{reason}"}}') for reason in reasons]
    return _many("dead_lettered_total", COUNTER, "Messages that were dead-lettered", letters) + _many(
        "died_total", COUNTER, "Messages that were dropped instead of dead-lettered", ends
    )


def _flow(broker: Broker, channels: ChannelSums, shows_names: bool) -> list[str]:
    waiting: Counter[str] = Counter()
    for one in broker.flow.blocked():
        assert isinstance(one.client, Client)
        named = {"vhost": one.client.vhost.name, "address": one.destination} if shows_names else {}
        waiting[labelled({**named, "why": one.limit})] += 1
    blocked = [Sample(count, labels) for labels, count in sorted(waiting.items())]
    nodes = [
        (node, labelled({"address": node.destination, "limit": node.limit_name}))
        for node in broker.flow.nodes()
        if shows_names or node.vhost is None
    ]
    used = [Sample(node.used, labels) for node, labels in nodes]
    limits = [Sample(node.limit, labels) for node, labels in nodes]
    return [
        _many("blocked_producers", GAUGE, "Connections whose publishes wait, by limit", blocked),
        _one("blocked_connections", GAUGE, "Connections that may not publish now", channels.blocked),
        _one("held_bytes", GAUGE, "Octets of publishes that wait, in memory", broker.flow.parked.octets),
        _many("limit_used", GAUGE, "Use of a limit, in octets or messages", used),
        _many("limit_max", GAUGE, "The limit, in octets or messages", limits),
        _one(
            "over_limit_total",
            COUNTER,
            "Messages of the broker itself, such as dead letters, over a full limit",
            broker.flow.over_limit,
        ),
    ]


def _journal(journal: JournalFigures, shows_names: bool) -> list[str]:
    readers = sorted(journal.reader_kept.items()) if shows_names else []
    states = [Sample(journal.state == state, f'{{state="{state}"}}') for state in STATES]
    return [
        _many("journal_state", GAUGE, "1 for the state that the journal is in", states),
        _one("journal_written_bytes_total", COUNTER, "Octets written", journal.written),
        _one("journal_commits_total", COUNTER, "Blocks written", journal.commits),
        _many(
            "journal_sync_seconds",
            HISTOGRAM,
            "Seconds that syncs took",
            histogram(journal.sync_bounds, list(journal.sync_counts), journal.sync_s),
        ),
        _one("journal_segments", GAUGE, "Segment files", journal.segments),
        _one("journal_messages", GAUGE, "Messages in the journal, counted in each queue", journal.messages),
        _one("journal_backlog_bytes", GAUGE, "Octets that wait to be written", journal.backlog),
        _one("journal_unsynced_bytes", GAUGE, "Octets that a power failure would lose", journal.unsynced),
        _many(
            "journal_reader_bytes",
            GAUGE,
            "Octets that are kept for one reader of the pipeline alone",
            [Sample(size, labelled({"reader": name})) for name, size in readers],
        ),
        _one("journal_readers_dropped_total", COUNTER, "Readers dropped at a limit", journal.readers_dropped),
    ]


def process_table(process: ProcessFigures, started_ms: int) -> str:
    """The families of a process, as Prometheus' client libraries name them."""
    rows = (
        Family("cpu_seconds_total", COUNTER, "CPU time, user and system"),
        Family("resident_memory_bytes", GAUGE, "Resident memory"),
        Family("open_fds", GAUGE, "Open file descriptors"),
        Family("max_fds", GAUGE, "Limit of file descriptors"),
        Family("start_time_seconds", GAUGE, "When it started, since 1970"),
    )
    values = (process.cpu_s, process.memory, process.descriptors, process.descriptors_max, started_ms / 1000)
    return "".join(rendered("process_", family, [Sample(value)]) for family, value in zip(rows, values, strict=True))
