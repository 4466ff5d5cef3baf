"""The pages `/metrics/per-object` and `/metrics/detailed`: samples for each queue, channel and connection.

They are made in steps. Source: management page 12.2, 12.3.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple

from ...engine import Broker, Client, Exchange, Queue, Session, VirtualHost
from ..counters import session_values
from ..options import ConsoleOptions
from ..views.clients import channel_name
from ..views.queues import EMPTY_QUEUE_OCTETS, MESSAGE_OCTETS, head_timestamp
from . import families as f
from .aggregated import PREFIX, churn_page, global_page, identity, logins_page, node_page, table
from .exposition import GAUGE, Family, escaped, head, number
from .facts import MetricsFacts
from .sums import channel_sums, octets_of, queue_sums

DETAILED, CLUSTER = "rabbitmq_detailed_", "rabbitmq_cluster_"
#: Objects whose lines are made in one step. Maximum messages of a queue whose bodies are measured.
OBJECTS_A_STEP, MESSAGES_A_QUEUE = 50, 10
NAN = float("nan")
#: The number of counters about publishing, which are the first of `CHANNEL_COUNTERS`.
PUBLISHING = 4

#: Steps that return a page, in parts that are never joined.
Text = Generator[None, None, list[str]]
Row = Callable[[Any], tuple[float, ...]]

_STATUS = Family("vhost_status", GAUGE, "1: the virtual host exists")
_EXCHANGE = Family("exchange_name", GAUGE, "1: the exchange exists")
_BINDINGS = Family("exchange_bindings", GAUGE, "Bindings from the exchange")


def per_object_page(broker: Broker, options: ConsoleOptions, facts: MetricsFacts) -> Text:
    """The steps to the parts of the page `/metrics/per-object`."""
    queues = list(broker.virtual_hosts.queues())
    parts = [
        identity(options, broker, "per-object", PREFIX),
        node_page(broker, options, facts.process(), facts.journal(), PREFIX),
        table(PREFIX, f.OBJECTS, _totals(broker, queues)),
    ]
    yield
    sums = yield from queue_sums(broker)
    parts.append(global_page(broker, sums, (yield from channel_sums(broker))))
    shown = yield from _with_metrics(broker, queues)
    groups = (*f.QUEUE_COARSE, *f.QUEUE_METRICS, *f.QUEUE_COUNTERS, *f.QUEUE_PUBLISHED)
    parts += yield from _lines(PREFIX, groups, shown, _queue_labels, _whole_queue)
    groups = (*f.CHANNEL_GAUGES, *f.CHANNEL_COUNTERS)
    parts += yield from _lines(PREFIX, groups, _sessions(broker), _channel_labels, _whole_channel)
    groups = (*f.CONNECTION_COARSE, *f.CONNECTION_COUNTERS, *f.CONNECTION_GAUGES)
    parts += yield from _lines(PREFIX, groups, list(broker.connections), _client_labels, _whole_client)
    return parts


def detailed_page(
    broker: Broker, options: ConsoleOptions, facts: MetricsFacts, families: Iterable[str], vhosts: Sequence[str]
) -> Text:
    """The steps to the parts of the page `/metrics/detailed` with the requested families.

    Unknown families are ignored. `vhosts`: names of those whose queues and exchanges are shown; empty: all.
    """
    wanted = set(families)
    chosen = [vhost for vhost in broker.virtual_hosts.values() if not vhosts or vhost.name in vhosts]
    queues = yield from _with_metrics(broker, [queue for vhost in chosen for queue in vhost.queues.values()])
    shown = _Shown(broker, chosen, queues)
    parts = [identity(options, broker, "detailed", PREFIX)]  # dashboards join all families with it
    if wanted & {"node_metrics", "node_coarse_metrics", "node_persister_metrics"}:
        parts.append(node_page(broker, options, facts.process(), facts.journal(), DETAILED))
    elif "connection_churn_metrics" in wanted:
        parts.append(churn_page(broker, DETAILED))
    if "auth_attempt_metrics" in wanted:
        parts.append(logins_page(broker, DETAILED))
    yield
    if "queue_metrics" in wanted:
        wanted.discard("queue_consumer_count")  # `queue_metrics` has it, too
    for word, group in _GROUPS.items():
        if word in wanted:
            parts += yield from _lines(group.prefix, group.families, group.objects(shown), group.labels, group.row)
    return parts


def _lines(
    prefix: str, families: Sequence[Family], objects: Sequence[Any], labels: Callable[[Any], str], row: Row
) -> Text:
    """Families with a line for each object. All values of an object are read at the same time."""
    names = [prefix + family.name for family in families]
    columns: list[list[str]] = [[head(prefix, family)] for family in families]
    for start in range(0, len(objects), OBJECTS_A_STEP):
        for one in objects[start : start + OBJECTS_A_STEP]:
            label = labels(one)
            for name, column, value in zip(names, columns, row(one)):
                column.append(f"{name}{label} {value if type(value) is int else number(value)}\n")
        yield
    texts = []
    for column in columns:
        texts.append("".join(column))
        column.clear()
        yield
    return texts


def _totals(broker: Broker, queues: list[Queue]) -> tuple[float, ...]:
    channels = sum(len(client.sessions) for client in broker.connections)
    return len(broker.connections), channels, sum(len(queue.consumers) for queue in queues), len(queues)


def _with_metrics(broker: Broker, queues: list[Queue]) -> Generator[None, None, list[Queue]]:
    """The queues without those whose address-settings have `enable-metrics = false`."""
    if not broker.context.settings.hides_metrics:
        return queues
    found: list[Queue] = []
    for start in range(0, len(queues), OBJECTS_A_STEP):
        resolve = broker.context.settings.resolve
        some = queues[start : start + OBJECTS_A_STEP]
        found += [one for one in some if resolve(one.address, one.vhost_name).enable_metrics]
        yield
    return found


# -- labels and values ------------------------------------------------------------------------------------------------


def _queue_labels(queue: Queue) -> str:
    return f'{{vhost="{escaped(queue.vhost_name)}",queue="{escaped(queue.name)}"}}'


def _coarse_queue(queue: Queue) -> tuple[float, ...]:
    ready, unacked = queue.ready_count, queue.unacked
    return ready, unacked, ready + unacked


def _fine_queue(queue: Queue) -> tuple[float, ...]:
    """The values of a queue, in the order of `QUEUE_METRICS` and `QUEUE_COUNTERS`."""
    ready, unacked, consumers = queue.ready_count, queue.unacked, len(queue.consumers)
    if not ready and not unacked:
        free = int(consumers > 0)
        return consumers, free, free, EMPTY_QUEUE_OCTETS, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NAN, 0, 0
    octets = octets_of(queue, MESSAGES_A_QUEUE)
    paged = queue.paged_count
    all_octets = octets.ready + octets.unacked
    in_memory = ready + unacked - paged
    free = int(consumers > 0 and not ready)
    return (
        consumers,
        free,
        free,
        EMPTY_QUEUE_OCTETS + in_memory * MESSAGE_OCTETS + all_octets - octets.paged,
        in_memory,
        all_octets - octets.paged,
        ready - paged,
        unacked,
        octets.messages_persistent,
        octets.persistent,
        all_octets,
        octets.ready,
        octets.unacked,
        paged,
        octets.paged,
        _head_timestamp(queue),
        0,
        0,
    )


def _whole_queue(queue: Queue) -> tuple[float, ...]:
    return *_coarse_queue(queue), *_fine_queue(queue), _published_into(queue)


def _published_into(queue: Queue) -> int:
    return queue.counters.enqueued - queue.counters.own


def _head_timestamp(queue: Queue) -> float:
    found = head_timestamp(queue)
    return NAN if found is None else found


def _sessions(broker: Broker) -> list[Session]:
    return [session for client in broker.connections for session in client.sessions]


def _channel_labels(session: Session) -> str:
    return f'{{channel="{escaped(channel_name(session))}"}}'


def _channel(session: Session) -> tuple[float, ...]:
    confirms, transaction = session.confirms, session.transaction
    return (
        len(session.consumers),
        len(session.unacked),
        0 if confirms is None else confirms.published - confirms.confirmed,
        0 if transaction is None else transaction.count,
        0 if transaction is None else len(transaction.acked),
        session.prefetch,
        session.prefetch_total,
    )


def _counts_of_channel(session: Session) -> tuple[float, ...]:
    """The counters of a channel, in the order of `CHANNEL_COUNTERS`."""
    *publishes, acked, consumed, _, no_ack, got, get_empty, got_no_ack, redelivered = session_values(session)
    return *publishes, got_no_ack, got, get_empty, no_ack, consumed, redelivered, acked


def _whole_channel(session: Session) -> tuple[float, ...]:
    return *_channel(session), *_counts_of_channel(session)


def _client_labels(client: Client) -> str:
    return f'{{channel="{escaped(client.name)}"}}'


def _octets_of_client(client: Client) -> tuple[float, ...]:
    return client.connection_info.octets_in, client.connection_info.octets_out


def _client(client: Client) -> tuple[float, ...]:
    return client.connection_info.reads, client.connection_info.writes, len(client.outbox), len(client.sessions)


def _whole_client(client: Client) -> tuple[float, ...]:
    return *_octets_of_client(client), *_client(client)


# -- the groups of families of the detailed page -----------------------------------------------------------------------


class _Shown(NamedTuple):
    """The objects that a page may show. `vhosts`: the chosen ones. `queues`: their queues that have metrics."""

    broker: Broker
    vhosts: list[VirtualHost]
    queues: list[Queue]

    def exchanges(self) -> list[tuple[VirtualHost, Exchange]]:
        return [(vhost, exchange) for vhost in self.vhosts for exchange in vhost.exchanges.values()]


class _Group(NamedTuple):
    """Families that are requested together. `row`: makes their values for an object."""

    objects: Callable[[_Shown], Sequence[Any]]
    labels: Callable[[Any], str]
    families: Sequence[Family]
    row: Row
    prefix: str = DETAILED


def _vhost_labels(vhost: VirtualHost) -> str:
    return f'{{vhost="{escaped(vhost.name)}"}}'


def _exchange_labels(one: tuple[VirtualHost, Exchange]) -> str:
    vhost, exchange = one
    return f'{{vhost="{escaped(vhost.name)}",exchange="{escaped(exchange.name)}",type="{exchange.type}"}}'


#: For each kind of objects: how they are found, and how their labels are made.
_QUEUES = (lambda shown: shown.queues), _queue_labels
_CHANNELS = (lambda shown: _sessions(shown.broker)), _channel_labels
_CONNECTIONS = (lambda shown: list(shown.broker.connections)), _client_labels
_VHOSTS = (lambda shown: shown.vhosts), _vhost_labels
_EXCHANGES = _Shown.exchanges, _exchange_labels
#: The value of `family` in the query -> the group.
_GROUPS = {
    "queue_coarse_metrics": _Group(*_QUEUES, f.QUEUE_COARSE, _coarse_queue),
    "queue_metrics": _Group(*_QUEUES, (*f.QUEUE_METRICS, *f.QUEUE_COUNTERS), _fine_queue),
    "queue_consumer_count": _Group(*_QUEUES, f.QUEUE_METRICS[:1], lambda queue: (len(queue.consumers),)),
    "channel_queue_exchange_metrics": _Group(*_QUEUES, f.QUEUE_PUBLISHED, lambda queue: (_published_into(queue),)),
    "channel_exchange_metrics": _Group(
        *_CHANNELS, f.CHANNEL_COUNTERS[:PUBLISHING], lambda session: _counts_of_channel(session)[:PUBLISHING]
    ),
    "channel_queue_metrics": _Group(
        *_CHANNELS, f.CHANNEL_COUNTERS[PUBLISHING:], lambda session: _counts_of_channel(session)[PUBLISHING:]
    ),
    "channel_metrics": _Group(*_CHANNELS, f.CHANNEL_GAUGES, _channel),
    "connection_coarse_metrics": _Group(*_CONNECTIONS, f.CONNECTION_COARSE, _octets_of_client),
    "connection_metrics": _Group(*_CONNECTIONS, (*f.CONNECTION_COUNTERS, *f.CONNECTION_GAUGES), _client),
    "vhost_status": _Group(*_VHOSTS, (_STATUS,), lambda vhost: (1,), CLUSTER),
    "exchange_names": _Group(*_EXCHANGES, (_EXCHANGE,), lambda one: (1,), CLUSTER),
    "exchange_bindings": _Group(*_EXCHANGES, (_BINDINGS,), lambda one: (len(one[1].bindings),), CLUSTER),
}
