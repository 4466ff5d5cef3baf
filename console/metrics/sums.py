"""Sums over all queues, channels and connections, in steps.

Queues are summed by `map`, `sum` and `attrgetter`: over 10,000 queues a loop in Python would take as long as the page
may take altogether. Source: management page 12.1.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from ...engine import Broker, Message, Queue, Session
from ..views.queues import Octets

#: Queues, and channels, summed in one step, which takes about a millisecond.
QUEUES_A_STEP, CHANNELS_A_STEP = 500, 500
#: Maximum queues, and maximum messages in all of them together, whose bodies are measured. Others are estimated.
SAMPLED_QUEUES, SAMPLED_MESSAGES = 200, 1_000
#: Types of queues -> RabbitMQ's names. All other types are shown as classic.
TYPES = {"quorum": "rabbit_quorum_queue", "stream": "rabbit_stream_queue"}
CLASSIC = "rabbit_classic_queue"
LEASED = "amps"  # the type of queues whose store does not hold all ready messages
ALL_TYPES = (CLASSIC, *TYPES.values())

COUNTS = (
    "acknowledged", "delayed", "delivered", "dropped", "enqueued", "expired", "get_empty", "got", "got_no_ack",
    "killed", "lease_ended", "no_ack", "own", "redelivered", "replaced", "requeued",
)  # fmt: skip
_counts_of = attrgetter(*COUNTS)
#: Getters of attributes: a property would cost a call for each queue.
_events, _store, _type = map(attrgetter, ("events", "store", "type"))
_consumers, _scheduled = map(attrgetter, ("consumer_list.consumers", "scheduled"))
_counters, _deaths, _unacked = map(attrgetter, ("counters", "counters.deaths", "unacked"))  # of `Queue.events`
_ready = attrgetter("ready_count")

Deaths = dict[tuple[str, bool], int]


@dataclass(slots=True)
class QueueSums:
    """Sums over queues. `counts`: RabbitMQ's type -> counter -> sum. `deaths`: RabbitMQ's type -> `Counters.deaths`."""

    queues: int = 0
    ready: int = 0
    unacked: int = 0
    consumers: int = 0
    scheduled: int = 0
    leased: int = 0
    paged: int = 0
    octets: Octets = Octets()
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    deaths: dict[str, Deaths] = field(default_factory=dict)

    def count(self, name: str) -> int:
        """The sum of a counter over all types."""
        return sum(counts[name] for counts in self.counts.values())

    def all_deaths(self) -> Deaths:
        """The sums of deaths over all types."""
        found: Deaths = {}
        for deaths in self.deaths.values():
            _add_deaths(found, deaths)
        return found

    def _add(self, kind: str, counts: Iterable[int], deaths: Iterable[Deaths | None]) -> None:
        known = self.counts[kind]
        for name, count in zip(COUNTS, counts):
            known[name] += count
        for some in deaths:
            if some:
                _add_deaths(self.deaths[kind], some)


def _add_deaths(known: Deaths, more: Deaths) -> None:
    for key, count in more.items():
        known[key] = known.get(key, 0) + count


def queue_sums(broker: Broker) -> Generator[None, None, QueueSums]:
    """Sum over all queues. The counters include deleted queues."""
    sums = QueueSums()
    for kind in ALL_TYPES:
        sums.counts[kind] = dict.fromkeys(COUNTS, 0)
        sums.deaths[kind] = {}
    # The broker's counters are those of all deleted queues. What is not of a type in `TYPES` counts as classic.
    past = dict(zip(COUNTS, _counts_of(broker.context.counters)))
    past_deaths = dict(broker.context.counters.deaths or {})
    for type_, counters in broker.context.activity.gone.items():
        kind = TYPES.get(type_, CLASSIC)
        if kind != CLASSIC:
            sums._add(kind, _counts_of(counters), (counters.deaths,))
            past = {name: past[name] - count for name, count in zip(COUNTS, _counts_of(counters))}
            for key, count in (counters.deaths or {}).items():
                past_deaths[key] -= count
    sums._add(CLASSIC, past.values(), (past_deaths,))
    queues = list(broker.virtual_hosts.queues())
    busy: list[Queue] = []
    for start in range(0, len(queues), QUEUES_A_STEP):
        _add_some(sums, queues[start : start + QUEUES_A_STEP], busy)
        yield
    sums.octets = yield from _octets(busy, sums.ready, sums.unacked)
    return sums


def _add_some(sums: QueueSums, queues: Sequence[Queue], busy: list[Queue]) -> None:
    """Add some queues to the sums, and those of them that have messages to `busy`."""
    types = list(map(_type, queues))
    all_events = list(map(_events, queues))
    unacked = list(map(_unacked, all_events))
    ready = list(map(_ready, queues) if LEASED in types else map(len, map(_store, queues)))
    sums.queues += len(queues)
    sums.ready += sum(ready)
    sums.unacked += sum(unacked)
    sums.consumers += sum(map(len, map(_consumers, queues)))
    sums.scheduled += sum(map(len, map(_scheduled, queues)))
    for type_ in set(types):
        some = (
            all_events
            if types.count(type_) == len(types)
            else [events for events, its_type in zip(all_events, types) if its_type == type_]
        )
        columns = zip(*map(_counts_of, map(_counters, some)))
        sums._add(TYPES.get(type_, CLASSIC), map(sum, columns), filter(None, map(_deaths, some)))
        if type_ == LEASED:
            sums.leased += sum(map(_unacked, some))
    if any(ready) or any(unacked):
        found = [queue for queue, r, u in zip(queues, ready, unacked) if r or u]
        busy += found
        sums.paged += sum([queue.paged_count for queue in found])


def _octets(busy: list[Queue], ready: int, unacked: int) -> Generator[None, None, Octets]:
    """Estimate the octets of bodies in busy queues from some of them. `ready`, `unacked`: messages in all of them."""
    if not busy:
        return Octets()
    step = -(-len(busy) // SAMPLED_QUEUES)
    some = busy[::step]
    parts: list[Octets] = []
    counted_ready = counted_unacked = 0
    each = max(1, SAMPLED_MESSAGES // len(some))
    for at, queue in enumerate(some):
        parts.append(octets_of(queue, each))
        counted_ready += queue.ready_count
        counted_unacked += queue.unacked
        if at % 50 == 49:
            yield
    found = Octets(*map(sum, zip(*parts)))
    if step == 1:
        return found
    of_ready = ready / counted_ready if counted_ready else 0.0
    of_unacked = unacked / counted_unacked if counted_unacked else 0.0
    of_all = (ready + unacked) / max(1, counted_ready + counted_unacked)
    factors = (of_ready, of_unacked, of_all, of_all, of_ready)  # in the order of the fields
    return Octets(*(round(octets * factor) for octets, factor in zip(found, factors)))


def octets_of(queue: Queue, counted_max: int) -> Octets:
    """Estimate the octets of bodies in a queue from its first ready messages, or else from unacknowledged ones."""
    ready, unacked = queue.ready_count, queue.unacked
    messages: list[Message] = queue.first_messages(counted_max) if ready else []
    if not messages and unacked:
        messages = queue.first_unacked(counted_max)
    if not messages:
        return Octets()
    size = sum([one.envelope.framing.body_size(one.content) for one in messages]) / len(messages)
    share = sum([queue.stores(one.envelope) for one in messages]) / len(messages)
    paged = max(0, ready - queue.store.in_memory)
    return Octets(
        round(size * ready),
        round(size * unacked),
        round(size * share * (ready + unacked)),
        round(share * (ready + unacked)),
        round(size * paged),
    )


@dataclass(slots=True)
class ChannelSums:
    """Sums over open channels and connections. The counters include closed ones."""

    connections: int = 0
    channels: int = 0
    consumers: int = 0
    unacked: int = 0
    unconfirmed: int = 0
    uncommitted: int = 0
    acks_uncommitted: int = 0
    prefetch: int = 0
    prefetch_total: int = 0
    publishers: int = 0
    confirmable: int = 0
    confirmed: int = 0
    pending: int = 0
    octets_in: int = 0
    octets_out: int = 0
    reads: int = 0
    writes: int = 0
    blocked: int = 0


def channel_sums(broker: Broker) -> Generator[None, None, ChannelSums]:
    """Sum over all connections. A connection that closes meanwhile still counts, so that no counter falls."""
    past = broker.context.activity
    sums = ChannelSums(confirmable=past.confirmable, confirmed=past.confirmed)
    clients = list(broker.connections)
    infos = [client.connection_info for client in clients]
    sums.connections = len(clients)
    sums.octets_in = past.octets_in + sum([info.octets_in for info in infos])
    sums.octets_out = past.octets_out + sum([info.octets_out for info in infos])
    sums.reads = past.reads + sum([info.reads for info in infos])
    sums.writes = past.writes + sum([info.writes for info in infos])
    sessions = [session for client in clients for session in client.sessions]
    yield
    for start in range(0, len(sessions), CHANNELS_A_STEP):
        for session in sessions[start : start + CHANNELS_A_STEP]:
            _add_session(sums, session)
        yield
    sums.pending = sum(len(client.outbox) for client in clients)
    sums.blocked = sum(client.is_blocked for client in clients)
    return sums


def _add_session(sums: ChannelSums, session: Session) -> None:
    sums.channels += 1
    consumers = len(session.consumers)
    sums.consumers += consumers
    sums.unacked += len(session.unacked)
    sums.prefetch += session.prefetch
    sums.prefetch_total += session.prefetch_total
    confirms, transaction = session.confirms, session.transaction
    if confirms is not None:
        sums.confirmable += confirms.published
        sums.confirmed += confirms.acknowledged
        sums.unconfirmed += confirms.published - confirms.confirmed
    if transaction is not None:
        sums.uncommitted += transaction.count
        sums.acks_uncommitted += len(transaction.acked)
    sums.publishers += session.published > 0
