"""Counters of objects as tuples of integers, and their names in RabbitMQ. Source: management page 5.2, 14."""

from collections.abc import Generator, Iterable, Sequence
from operator import attrgetter

from ..engine import Broker, Client, PastSessions, Queue, Session, VirtualHost
from .steps import map_in_steps

#: Queues counted in one step, which takes less than a millisecond.
QUEUES_A_STEP = 500

#: The numbers of ready and of unacknowledged messages.
Lengths = tuple[int, int]
#: Steps that return counters.
Values = Generator[None, None, tuple[int, ...]]

PUBLISHES = ("publish", "confirm", "return_unroutable", "drop_unroutable")
DELIVERIES = ("ack", "deliver", "deliver_get", "deliver_no_ack", "get", "get_empty", "get_no_ack", "redeliver")
LENGTHS = ("messages", "messages_ready", "messages_unacknowledged")
OCTETS = ("recv_oct", "send_oct")
CHURN = (
    "channel_closed",
    "channel_created",
    "connection_closed",
    "connection_created",
    "queue_created",
    "queue_declared",
    "queue_deleted",
)
DISK = ("disk_reads", "disk_writes")

QUEUE_NAMES = ("publish", *DELIVERIES, *LENGTHS)
EXCHANGE_NAMES = ("publish_in", "publish_out")
SESSION_NAMES = (*PUBLISHES, *DELIVERIES)
CLIENT_NAMES = OCTETS
VHOST_NAMES = (*PUBLISHES, *DELIVERIES, *LENGTHS, *OCTETS)
BROKER_NAMES = (*PUBLISHES, *DELIVERIES, *LENGTHS, *CHURN, *DISK)


def queue_values(queue: Queue) -> tuple[int, ...]:
    """The counters of a queue, in the order of `QUEUE_NAMES`."""
    counts = queue.counters
    ready, unacked = queue.ready_count, queue.unacked
    get_no_ack, get = counts.got_no_ack, counts.got - counts.got_no_ack
    no_ack = counts.no_ack - get_no_ack
    return (
        counts.enqueued - counts.own,  # without what the broker itself published, such as dead letters
        max(0, counts.acknowledged - counts.no_ack),
        counts.delivered - counts.got - no_ack,
        counts.delivered,
        no_ack,
        get,
        counts.get_empty,
        get_no_ack,
        counts.redelivered,
        ready + unacked,
        ready,
        unacked,
    )


def session_values(session: Session | PastSessions) -> tuple[int, ...]:
    """The counters of a channel, or of all closed channels, in the order of `SESSION_NAMES`."""
    get_no_ack, get = session.got_no_ack, session.got - session.got_no_ack
    no_ack = session.no_ack - get_no_ack
    return (
        session.published,
        session.confirmed,
        session.returned,
        session.dropped,
        session.acked,
        session.delivered - session.got - no_ack,
        session.delivered,
        no_ack,
        get,
        session.get_empty,
        get_no_ack,
        session.redelivered,
    )


def _sum(rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*rows)))


_ready, _unacked, _consumers = (
    attrgetter("ready_count"),
    attrgetter("events.unacked"),
    attrgetter("consumer_list.consumers"),
)


def lengths_of(queues: Iterable[Queue]) -> Generator[None, None, Lengths]:
    """Count the messages in these queues, in steps."""
    found = list(queues)
    ready = unacked = 0
    for start in range(0, len(found), QUEUES_A_STEP):
        some = found[start : start + QUEUES_A_STEP]
        ready += sum(map(_ready, some))
        unacked += sum(map(_unacked, some))
        yield
    return ready, unacked


def consumers_of(queues: Iterable[Queue]) -> Generator[None, None, int]:
    """Count the consumers of these queues, in steps."""
    found = list(queues)
    count = 0
    for start in range(0, len(found), QUEUES_A_STEP):
        count += sum(map(len, map(_consumers, found[start : start + QUEUES_A_STEP])))
        yield
    return count


def vhost_values(vhost: VirtualHost, clients: Sequence[Client], lengths: Lengths) -> Values:
    """The counters of a virtual host, in the order of `VHOST_NAMES`, in steps. `clients`: all of the broker."""
    mine = [client for client in clients if client.vhost is vhost]
    past = session_values(vhost.context.past_sessions)  # before the steps: a session that closes in between counts once
    sessions = yield from map_in_steps(session_values, [session for client in mine for session in client.sessions])
    ready, unacked = lengths
    return (
        *_sum([past, *sessions]),
        ready + unacked,
        ready,
        unacked,
        sum(client.connection_info.octets_in for client in mine),
        sum(client.connection_info.octets_out for client in mine),
    )


def broker_values(broker: Broker, lengths: Lengths) -> Values:
    """The counters of the broker, in the order of `BROKER_NAMES`, in steps. O(sessions)."""
    past = session_values(broker.context.past_sessions)  # as in `vhost_values`
    open_now = [session for client in broker.connections for session in client.sessions]
    sessions = yield from map_in_steps(session_values, open_now)
    ready, unacked = lengths
    return (
        *_sum([past, *sessions]),
        ready + unacked,
        ready,
        unacked,
        *churn_values(broker),
        *(0 for _ in DISK),  # not counted
    )


def churn_values(broker: Broker) -> tuple[int, ...]:
    """The counters of opened and closed objects, in the order of `CHURN`."""
    activity = broker.context.activity
    return (
        activity.channels_closed,
        activity.channels_opened,
        activity.connections_closed,
        activity.connections_opened,
        activity.queues_created,
        activity.queues_declared,
        activity.queues_deleted,
    )
