"""Applies the rules of a message's address before routing: expiry, time stamp, duplicates, delay, retention, diverts.

Unmarked messages to addresses without rules skip this. Source: address-settings page 1.2, 1.3, 3.2, 3.6, 3.7.
"""

from collections.abc import Mapping, Sequence

from ...settings import Divert
from ..clock import due_after
from ..context import HostContext
from ..exchanges.delayed_exchange import DelayedExchange, delay_ms
from ..messages.content import DEDUPLICATION_ID, DELAY, NATIVE, SCHEDULED_DELIVERY, PropertyValue, encode_header
from ..messages.dead_letter import ORIG_ADDRESS, ORIG_MESSAGE_ID, hornetq_headers
from ..messages.duplicates import IdCache, duplicate_id
from ..messages.field_table import Field, FieldTable
from ..messages.message import Envelope
from ..rules.expiry_policy import NO_EXPIRY_POLICY
from .arrival_rules import HOPS_MAX, ArrivalRules, matching_diverts
from .publish import publish_onward, publish_run, retain
from .publish_events import DuplicateEvent
from .route import ALL_TAKEN, Outcome, Route
from .service import ServiceExchange

INGRESS_TIMESTAMP = "_AMQ_INGRESS_TIMESTAMP"


def publish(host: HostContext, route: Route, envelope: Envelope, contents: Sequence[bytes]) -> Outcome:
    """Publish a run: apply the rules of its address, then put it into its queues."""
    if route.arrival is not None:
        return arrive(host, route, route.arrival, envelope, contents)
    if envelope.summary.is_marked:
        rules = host.router.arrival_rules(route.exchange.name, route.routing_key)
        return arrive(host, route, rules, envelope, contents)
    return publish_run(host, route, envelope, contents)


def publish_by_name(host: HostContext, envelope: Envelope, contents: Sequence[bytes]) -> Outcome:
    """Look up the route of a run, and publish it. If its exchange is gone, it is unroutable."""
    exchange = host.exchanges.get(envelope.exchange)
    if exchange is None:
        return Outcome(contents, ())
    return publish(host, host.router.route_of(exchange, envelope.routing_key), envelope, contents)


def arrive(
    host: HostContext,
    route: Route,
    rules: ArrivalRules,
    envelope: Envelope,
    contents: Sequence[bytes],
    passed: tuple[Divert, ...] = (),
) -> Outcome:
    """Publish a run to an address with rules, or a run of marked messages. `passed`: diverts that have forwarded it."""
    sites = host.broker.sites
    if rules.site is not None and rules.site != sites.now:
        with sites.at(rules.site):
            return arrive(host, route, rules, envelope, contents, passed)
    if rules.expiry is not NO_EXPIRY_POLICY and not envelope.expiry_is_settled:
        envelope = envelope.with_expiration(rules.expiry.applied_to(envelope.expiration_ms))
    if envelope.copies and not isinstance(route.exchange, ServiceExchange):
        route = route.for_each()
    if not rules.needs_each_message and not envelope.summary.is_marked:
        return (publish_onward if passed else publish_run)(host, route, envelope, contents)
    unroutable: list[bytes] = []
    refused: list[int] = []
    for offset, content in enumerate(contents):
        outcome = _arrive_one(host, route, rules, envelope, content, passed)
        if outcome.unroutable:
            unroutable.append(content)  # as it was published
        if outcome.refused:
            refused.append(offset)
    return Outcome(unroutable, refused) if unroutable or refused else ALL_TAKEN


def _arrive_one(
    host: HostContext, route: Route, rules: ArrivalRules, envelope: Envelope, content: bytes, passed: tuple[Divert, ...]
) -> Outcome:
    headers = envelope.headers(content) if envelope.summary.is_marked else {}
    id_ = duplicate_id_of(host, rules, headers) if headers and not passed else None
    if id_ is None:
        return _publish_one(host, route, rules, envelope, content, headers, passed)
    if _is_duplicate(host, rules.address, id_):
        return ALL_TAKEN
    first_id = host.broker.next_id
    outcome = _publish_one(host, route, rules, envelope, content, headers, passed)
    if not outcome.refused:  # a refused message may be published again
        _remember(host, rules, id_, first_id)
    return outcome


def _publish_one(
    host: HostContext,
    route: Route,
    rules: ArrivalRules,
    envelope: Envelope,
    content: bytes,
    headers: FieldTable,
    passed: tuple[Divert, ...],
) -> Outcome:
    """Publish a message that is not a duplicate."""
    broker = host.broker
    publish_in = publish_onward if passed else publish_run
    added: FieldTable = {}
    if rules.has_ingress_timestamp:
        added[INGRESS_TIMESTAMP] = Field("l", broker.clock.wall_ms())
    due_ns = due_ns_of(host, route, headers, added) if headers else None
    if added:
        content = envelope.spliced(content, added)
        envelope = envelope.for_added_headers()
    if rules.retroactive_count:
        retain(host, rules.address, rules.retroactive_count, envelope, content)
    diverts: Sequence[Divert] = ()
    if rules.diverts and len(passed) < HOPS_MAX:
        # A divert forwards a message once: in a cycle of two diverts, copies would double at each round.
        others = tuple(one for one in rules.diverts if one not in passed)
        diverts = matching_diverts(others, envelope, content)
        broker.turn.effort += len(rules.diverts)
    for divert in diverts:
        _divert(host, divert, rules.address, envelope, content, passed)
    if any(divert.is_exclusive for divert in diverts):
        return ALL_TAKEN
    outcome = publish_in(host, route, envelope, (content,), due_ns)
    return ALL_TAKEN if diverts and not outcome.refused else outcome  # a diverted message is not unroutable


def duplicate_id_of(host: HostContext, rules: ArrivalRules, headers: FieldTable) -> str | None:
    """The duplicate id in the headers of a message; None: there is none, or the address does not detect duplicates."""
    if not rules.id_cache_size:
        return None
    with_plugin_header = DEDUPLICATION_ID in headers and host.broker.settings.sets_id_cache_size(
        rules.address, host.name
    )
    return duplicate_id(headers, with_plugin_header=with_plugin_header)


def _is_duplicate(host: HostContext, address: str, id_: str) -> bool:
    """Whether an id was published before. Counts the duplicate, whose confirm waits until the first message is safe."""
    cache = host.id_caches.get(address)
    if cache is None or id_ not in cache:
        return False
    broker = host.broker
    broker.counters.dropped += 1
    durability = broker.storage.durability
    if durability is not None and cache.message_id_of(id_) and (durability.is_behind or durability.sync_lsn_of_all()):
        broker.turn.records += 1  # the record of the first message: the confirm waits for it
    if broker.listeners:
        broker.emit(DuplicateEvent(host.name, address, id_))
    return True


def _remember(host: HostContext, rules: ArrivalRules, id_: str, first_id: int) -> None:
    """Remember a duplicate id. `first_id`: the id of its first message; diverts may have published several."""
    address, size = rules.address, rules.id_cache_size
    cache = host.id_caches.get(address)
    if cache is None:
        cache = host.id_caches[address] = IdCache(size)
    cache.size = size
    durability = host.broker.storage.durability
    is_recorded = durability is not None and durability.keep_id(host.name, address, id_, first_id, size)
    cache.remember(id_, first_id if is_recorded else 0)


def due_ns_of(host: HostContext, route: Route, headers: FieldTable, added: FieldTable) -> int | None:
    """When a message is due (monotonic ns); None: now. If it has an x-delay that counts, adds that to `added`.

    It counts at a delayed exchange, or with the option `delays_everywhere`, unless the message has a scheduled time.
    """
    clock = host.broker.clock
    wait_ms: int | None = None
    scheduled = headers.get(SCHEDULED_DELIVERY)
    if scheduled is not None and isinstance(scheduled.value, int) and not isinstance(scheduled.value, bool):
        wait_ms = scheduled.value - clock.wall_ms()
    elif isinstance(route.exchange, DelayedExchange) or host.broker.options.delays_everywhere:
        wait_ms = delay_ms(headers)
        if wait_ms is not None:
            added[DELAY] = Field("l", -wait_ms)  # negative, as by RabbitMQ's plugin: a forwarded copy is not delayed
    return due_after(clock, wait_ms) if wait_ms is not None and wait_ms > 0 else None


def _divert(
    host: HostContext, divert: Divert, address: str, envelope: Envelope, content: bytes, passed: tuple[Divert, ...]
) -> None:
    """Publish a copy to each forwarding address whose exchange exists, with the original address and message id."""
    added: FieldTable = {ORIG_ADDRESS: Field("S", address.encode()), ORIG_MESSAGE_ID: Field("l", host.broker.next_id)}
    if host.broker.options.legacy_hornetq_headers:
        added |= hornetq_headers(added)
    copy = envelope.spliced(content, added)
    for target in divert.forwarding_addresses:
        name, key = host.router.resolve_address(target, envelope.routing_key)
        exchange = host.exchanges.get(name)
        if exchange is None:
            continue
        forwarded = Envelope(name, key, envelope.for_added_headers().summary)
        forwarded.expiration_ms, forwarded.expiry_is_settled = envelope.expiration_ms, envelope.expiry_is_settled
        route = host.router.route_of(exchange, key)
        rules = route.arrival or host.router.arrival_rules(name, key)
        host.broker.activity.own += 1
        arrive(host, route, rules, forwarded, (copy,), (*passed, divert))


def answer_request(host: HostContext, properties: Mapping[str, PropertyValue], answer: object) -> None:
    """Publish an answer to the reply_to of a request, with its correlation_id. Without reply_to there is no answer."""
    reply_to = properties.get("reply_to")
    if not isinstance(reply_to, bytes) or not reply_to:
        return
    kept: dict[str, PropertyValue] = {"content_type": b"application/json"}
    if isinstance(properties.get("correlation_id"), bytes):
        kept["correlation_id"] = properties["correlation_id"]
    import json  # most brokers get no such request

    raw = json.dumps(answer).encode()
    reply = Envelope("", reply_to.decode("utf-8", "replace"))
    publish_by_name(host, reply, [NATIVE.join(encode_header(len(raw), kept), raw)])
