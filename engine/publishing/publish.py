"""Puts messages into the queues of their routes: runs, mixed runs, dead letters, retained messages of an address.

Source: behaviour page 2.3, 2.11; address-settings page 3.1, 3.6.
"""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from operator import attrgetter

from ..context import HostContext
from ..exchanges.routed import Routed
from ..messages.dead_letter import ORIG_ADDRESS, ORIG_MESSAGE_ID, DeadLetter, hornetq_headers
from ..messages.event import emit_mixed
from ..messages.field_table import Field, FieldTable
from ..messages.message import Envelope
from ..queues.queue import Queue
from ..rules.expiry_policy import NO_EXPIRY_POLICY
from ..rules.limits import DROP
from ..rules.queue_rules import AutoCreatedQueue
from .auto_created import targets_of
from .publish_events import MixedPublishedEvent, PublishedEvent
from .route import ALL_TAKEN, ChosenRoute, Outcome, Route
from .service import ServiceExchange


def publish_run(
    host: HostContext,
    route: Route,
    envelope: Envelope,
    contents: Sequence[bytes],
    due_ns: int | None = None,
    cause: str | None = None,
) -> Outcome:
    """Give a run its ids, and put it into the queues of its route. `due_ns`: when it becomes ready; None: now.

    `Turn.effort` rises, so that a frontend with much to publish can end its turn: by messages times queues if there are
    several queues; by 1 + its queues for each message that is routed on its own. `cause`: why the broker
    itself publishes the run; its queues must be known.
    """
    broker = host.broker
    count = len(contents)
    first_id = broker.next_id
    broker.next_id = first_id + count
    counters = broker.counters
    counters.published += count
    queues, exchange = route.queues, route.exchange
    exchange.published_in += count
    if queues is None:
        return _publish_each(host, route, envelope, contents, first_id, due_ns)
    if broker.listeners:
        ids = range(first_id, first_id + count)
        broker.emit(PublishedEvent(host.name, envelope.exchange, ids, envelope, contents, queues, cause))
    if queues:
        counters.routed += count
        exchange.published_out += count * len(queues)
        durability = broker.storage.durability
        if durability is not None and durability.has_failed:
            return _publish_after_journal_failure(envelope, contents, first_id, queues, due_ns)
        if len(queues) == 1:
            refused = queues[0].enqueue(first_id, envelope, contents, due_ns)
            return Outcome((), refused) if refused else ALL_TAKEN
        broker.turn.effort += count * len(queues)
        refused_by_any = {offset for queue in queues for offset in queue.enqueue(first_id, envelope, contents, due_ns)}
        return Outcome((), sorted(refused_by_any)) if refused_by_any else ALL_TAKEN
    if isinstance(route.exchange, ServiceExchange):
        route.exchange.handle(envelope, contents)
        return ALL_TAKEN
    counters.unroutable += count
    return Outcome(contents, ())


def publish_onward(
    host: HostContext, route: Route, envelope: Envelope, contents: Sequence[bytes], due_ns: int | None = None
) -> Outcome:
    """Publish a run of one message that the broker itself forwards, and that waits for no room."""
    broker = host.broker
    if broker.flow.is_on:
        queues = route.queues
        if queues is None:
            queues = host.router.reach(route.exchange, Routed(envelope.keys, envelope, contents[0], broker.chance))
            route = ChosenRoute(route, queues)  # another look-up could find other queues, as of a shared address
        broker.flow.note_own(queues, envelope)
    return publish_run(host, route, envelope, contents, due_ns)


def _publish_after_journal_failure(
    envelope: Envelope, contents: Sequence[bytes], first_id: int, queues: Iterable[Queue], due_ns: int | None
) -> Outcome:
    """Publish after the journal has failed. Queues refuse or drop messages that they would have to store."""
    refused: set[int] = set()
    for queue in queues:
        if queue.stores(envelope):
            if queue.rules.size.disk_policy != DROP:
                refused.update(range(len(contents)))
            queue.events.refused_by_journal(len(contents))
        else:
            refused.update(queue.enqueue(first_id, envelope, contents, due_ns))
    return Outcome((), sorted(refused)) if refused else ALL_TAKEN


def _publish_each(
    host: HostContext, route: Route, envelope: Envelope, contents: Sequence[bytes], first_id: int, due_ns: int | None
) -> Outcome:
    counters = host.broker.counters
    unroutable = []
    refused = []
    chance = host.broker.chance
    for offset, content in enumerate(contents):
        queues = host.router.reach(route.exchange, Routed(envelope.keys, envelope, content, chance))
        if host.broker.listeners:
            ids = (first_id + offset,)
            host.broker.emit(PublishedEvent(host.name, envelope.exchange, ids, envelope, (content,), queues))
        host.broker.turn.effort += 1 + len(queues)
        if queues:
            counters.routed += 1
            route.exchange.published_out += len(queues)
            durability = host.broker.storage.durability
            if durability is not None and durability.has_failed:
                outcome = _publish_after_journal_failure(envelope, (content,), first_id + offset, queues, due_ns)
                outcomes: list[Sequence[int]] = [outcome[1]]
            else:
                outcomes = [queue.enqueue(first_id + offset, envelope, (content,), due_ns) for queue in queues]
            if any(outcomes):
                refused.append(offset)
        else:
            unroutable.append(content)
    counters.unroutable += len(unroutable)
    return Outcome(unroutable, refused)


def publish_unroutable(host: HostContext, envelope: Envelope, contents: Sequence[bytes], site: str | None) -> None:
    """Publish unroutable messages to the dead-letter address of their address, if it has one and
    `send-to-dla-on-no-route` is set for it (address-settings 3.1).

    `site`: the publisher's; None: the broker's.
    """
    address = host.broker.options.address_of(envelope.exchange, envelope.routing_key)
    settings = host.broker.settings.resolve(address, host.name)
    if not settings.send_to_dla_on_no_route or not settings.dead_letter_address:
        return
    resources = None
    if settings.auto_create_dead_letter_resources:
        resources = AutoCreatedQueue(settings.dead_letter_queue_prefix, settings.dead_letter_queue_suffix)
    target, makes_missing = settings.dead_letter_address, settings.auto_create_missing_queues
    with host.broker.sites.at(site or host.broker.sites.own):
        for name, key in targets_of(host, target, address, resources, makes_missing=makes_missing):
            exchange = host.exchanges.get(name)
            route = None if exchange is None else host.router.route_of(exchange, key)
            taken = 0 if route is None else _republish(host, envelope, contents, address, route)
            for _ in range(len(contents) - taken):
                host.broker.unroutable_letters.note(host.name, "", target)


def _republish(host: HostContext, envelope: Envelope, contents: Sequence[bytes], address: str, route: Route) -> int:
    """Publish a run by another route, with its origin in headers. Returns the number of routed messages."""
    taken = 0
    origin: FieldTable = {ORIG_ADDRESS: Field("S", address.encode())}
    for content in contents:
        added = {**origin, ORIG_MESSAGE_ID: Field("l", host.broker.next_id)}
        if host.broker.options.legacy_hornetq_headers:
            added |= hornetq_headers(added)
        moved = Envelope(route.exchange.name, route.routing_key, envelope.for_added_headers().summary)
        moved.expiration_ms, moved.expiry_is_settled = envelope.expiration_ms, True
        host.broker.activity.own += 1
        taken += not publish_onward(host, route, moved, (envelope.spliced(content, added),)).unroutable
    return taken


def publish_dead_letter(host: HostContext, letter: DeadLetter) -> tuple[int, int]:
    """Publish a dead letter, except to queues where it would begin a cycle. If its exchange is gone, it is dropped.

    Returns the number of queues on its route, and of those to which it was given; they may refuse it.
    """
    exchange = host.exchanges.get(letter.envelope.exchange)
    if exchange is None:
        return 0, 0
    broker, sites = host.broker, host.broker.sites
    routed = Routed(letter.envelope.keys, letter.envelope, letter.content, broker.chance)
    reached = host.router.reach(exchange, routed)
    if not reached and sites.now != sites.own and sites.group_of(sites.now) is None:
        # The group of this site is not known yet, so that its queues are not seen: look as this node does.
        with sites.at(sites.own):
            reached = host.router.reach(exchange, routed)
    policy = host.router.arrival_rules(exchange.name, letter.envelope.routing_key).expiry
    envelope = letter.envelope
    if policy is not NO_EXPIRY_POLICY:
        envelope = envelope.with_expiration(policy.applied_to(envelope.expiration_ms))
    queues = [queue for queue in reached if not letter.would_cycle(queue.name)]
    publish_own(host, queues, envelope, letter.content, letter.reason)
    return len(reached), len(queues)


def retain(host: HostContext, address: str, count: int, envelope: Envelope, content: bytes) -> None:
    """Retain the last `count` messages of an address for queues created later (address-settings page 3.6)."""
    kept = host.retained.get(address)
    if kept is None or kept.maxlen != count:
        kept = host.retained[address] = deque(kept or (), maxlen=count)
    kept.append((envelope, content))


def replay_retained(host: HostContext, queue: Queue, address: str) -> None:
    """Give a new queue the retained messages of its address that today's bindings route to it. Their exchange must
    still exist.
    """
    for envelope, content in tuple(host.retained.get(address, ())):
        exchange = host.exchanges.get(envelope.exchange)
        broker = host.broker
        message = Routed(envelope.keys, envelope, content, broker.chance)
        if exchange is None or queue not in host.router.reach(exchange, message):
            continue
        publish_own(host, (queue,), envelope, content, "retroactive")
        broker.scheduler.mark(queue)


def publish_own(host: HostContext, queues: Sequence[Queue], envelope: Envelope, content: bytes, cause: str) -> None:
    """Publish a message of the broker itself into these queues. `cause`: the reason for events.

    `Activity.own` counts it, because RabbitMQ's statistics omit such publishes; `Counters.own` of each queue counts it
    there, if the queue takes it.
    """
    broker = host.broker
    id_ = broker.next_id
    broker.next_id = id_ + 1
    broker.counters.published += 1
    broker.activity.own += 1
    if broker.listeners:
        broker.emit(PublishedEvent(host.name, envelope.exchange, (id_,), envelope, (content,), queues, cause))
    broker.counters.routed += bool(queues)
    broker.counters.unroutable += not queues
    if broker.flow.is_on:
        broker.flow.note_own(queues, envelope)
    for queue in queues:
        counters = queue.counters
        before = counters.enqueued
        queue.enqueue(id_, envelope, (content,))
        counters.own += counters.enqueued - before


_EXCHANGE = attrgetter("exchange")


def publish_mixed(
    host: HostContext, queue: Queue, envelopes: Sequence[Envelope], contents: Sequence[bytes]
) -> Sequence[int]:
    """Give a mixed run its ids, and put it into the one queue of all its messages.

    The messages must be plain (`Envelope.is_plain`), their addresses without rules, and the journal must not have
    failed. Returns the offsets of messages that the queue refused.
    """
    broker = host.broker
    count = len(contents)
    first_id = broker.next_id
    broker.next_id = first_id + count
    broker.counters.published += count
    broker.counters.routed += count
    if broker.listeners:
        ids = range(first_id, first_id + count)
        emit_mixed(broker.listeners, MixedPublishedEvent(host.name, "", ids, envelopes, contents, queue))
    return queue.enqueue_mixed(first_id, envelopes, contents)


def count_by_exchange(host: HostContext, envelopes: Sequence[Envelope]) -> None:
    """Count a mixed run at its exchanges. Each of its messages has one queue."""
    names = set(map(_EXCHANGE, envelopes))
    counts = {names.pop(): len(envelopes)} if len(names) == 1 else Counter(map(_EXCHANGE, envelopes))
    for name, count in counts.items():
        exchange = host.exchanges.get(name)
        if exchange is not None:
            exchange.published_in += count
            exchange.published_out += count


def publish_among(
    host: HostContext, queues: Sequence[Queue], envelopes: Sequence[Envelope], contents: Sequence[bytes]
) -> Sequence[int]:
    """Publish a mixed run, each message to the queue at its index in `queues`. Each queue gets its messages in order.

    Returns the offsets of messages that a queue refused, rising.
    """
    offsets_of: dict[Queue, list[int]] = {}
    for offset, queue in enumerate(queues):
        offsets_of.setdefault(queue, []).append(offset)
    refused: list[int] = []
    for queue, offsets in offsets_of.items():
        some = publish_mixed(host, queue, [envelopes[at] for at in offsets], [contents[at] for at in offsets])
        refused += [offsets[at] for at in some]
    refused.sort()
    return refused
